"""A simulated fleet through promtool and a real Prometheus says what its recording says."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import polars as pl
import pytest
from fakes.fleet_files import write_openmetrics
from fakes.prometheus_server import PrometheusServer

from driftwatch.collect.prometheus.client import PrometheusAsker
from driftwatch.collect.prometheus.source import PrometheusSource
from driftwatch.collect.recordings import open_recording
from driftwatch.collect.schema import SCRAPE_SCHEMA
from driftwatch.fleet.generate import generate, generate_compact
from driftwatch.fleet.scenario.model import Scenario

pytestmark = pytest.mark.usefixtures("real_prometheus")

KEY = ["instance", "engine", "time"]


@pytest.fixture(scope="module")
def made() -> Scenario:
    return Scenario.model_validate(
        {
            "name": "short",
            "title": "six minutes",
            "duration": "6m",
            "start": "2026-11-16T09:58:00Z",  # over the edge of a block
            "traffic": {"requests_per_second": 2.0},
            "truth": {},
        }
    )


def test_promtool_takes_it_and_prometheus_says_the_same(made: Scenario, tmp_path: Path) -> None:
    generate_compact(made, 2, tmp_path / "compact")
    text = write_openmetrics(made, generate(made, 2), tmp_path)
    promtool = shutil.which("promtool")
    assert promtool is not None
    ran = subprocess.run(
        [promtool, "tsdb", "create-blocks-from", "openmetrics", str(text), str(tmp_path / "data")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    recording = open_recording(tmp_path / "compact")
    since, until = recording.span()
    truth = recording.collect(since, until).scrapes.filter("ok")
    with PrometheusServer(blocks=tmp_path / "data") as server:
        source = PrometheusSource(PrometheusAsker(server.url), selector={"job": "vllm"})
        found = source.collect(since, until)
        source.close()
    assert found.problems == ()
    ours = found.scrapes.filter("ok")
    truth = truth.with_columns(pl.col("time").dt.round("1ms"))
    both = ours.join(truth, on=KEY, how="inner", suffix="_truth")
    assert both.height >= truth.height - 2  # two scrapes within a step show as one
    for column in SCRAPE_SCHEMA:
        if column in KEY or both[column].dtype not in (pl.Float64, pl.List(pl.Float64)):
            continue
        same = both.select(pl.col(column).eq_missing(pl.col(f"{column}_truth")).all()).item()
        assert same, column
