"""Two backends with the same data: the same scrape table, and the same evidence."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import polars as pl
import pytest
from fakes import victoria_metrics_server
from fakes.exposition_server import Page, read_pages
from fakes.prometheus_server import PrometheusServer, backfill
from fakes.victoria_metrics_server import VictoriaMetricsServer
from polars.testing import assert_frame_equal

from driftwatch.collect.pages import PageParser
from driftwatch.collect.prometheus.client import PrometheusAsker
from driftwatch.collect.prometheus.source import PrometheusSource
from driftwatch.collect.schema import SCRAPE_SCHEMA, Collected
from driftwatch.pipeline.roster import TickInput
from driftwatch.pipeline.state import State
from driftwatch.pipeline.tick import evaluate
from driftwatch.service.configuration import plan_of_rules
from driftwatch.store.store import Store

pytestmark = pytest.mark.usefixtures("real_prometheus")

JOB = {"job": "vllm"}
LABELS = {**JOB, "instance": "host:8000", "pod": 'a "quoted"\npod'}


@pytest.fixture(scope="module")
def pages(shared_data: Path) -> list[Page]:
    if not victoria_metrics_server.installed():
        pytest.skip(victoria_metrics_server.NOT_INSTALLED)
    # ten minutes, with a failed scrape among them
    found = read_pages(shared_data / "vllm-0.32/run_main/scrapes.jsonl.gz")
    found = [page for page in found if page[0] < found[0][0] + 600]
    return [*found[:30], (found[30][0], None), *found[31:]]


def collected(url: str, pages: list[Page]) -> list[Collected]:
    """The same minutes of either, in two intervals."""
    since = datetime.fromtimestamp(pages[0][0] // 60 * 60, UTC)
    source = PrometheusSource(PrometheusAsker(url), selector=JOB)
    middle = since + timedelta(minutes=4)
    found = [source.collect(since, middle), source.collect(middle, since + timedelta(minutes=9))]
    source.close()
    return found


def test_two_backends_one_table_and_one_evidence(pages: list[Page], tmp_path: Path) -> None:
    backfill(pages, LABELS, tmp_path / "blocks")
    with PrometheusServer(blocks=tmp_path / "blocks") as prometheus:
        one = collected(prometheus.url, pages)
    with VictoriaMetricsServer() as victoria:
        victoria.hold(pages, LABELS)
        other = collected(victoria.url, pages)
    assert [f.problems for f in (*one, *other)] == [()] * 4
    assert [f.silent for f in (*one, *other)] == [None] * 4
    assert [f.targets for f in one] == [f.targets for f in other]
    ours, theirs = (pl.concat([f.scrapes for f in found]) for found in (one, other))
    assert ours.height > 80
    # VictoriaMetrics keeps 15 digits or so of a number
    assert_frame_equal(ours, theirs, rel_tol=1e-12, abs_tol=0)
    exact = [c for c in SCRAPE_SCHEMA if c.endswith(("_total", "_requests", "_buckets", "_count"))]
    assert ours.select(exact).equals(theirs.select(exact))
    recording = _read_directly(pages, one)
    told = pl.col("time").dt.round("1ms"), pl.when("ok").then("reason").alias("reason")
    direct = pl.concat([found.scrapes for found in recording]).with_columns(told)
    assert_frame_equal(direct, ours.with_columns(told))
    rows = [_evidence(found) for found in (one, other, recording)]
    assert rows[0].height >= 8
    assert_frame_equal(rows[0], rows[1], rel_tol=1e-9, abs_tol=1e-9)
    # a moment to the microsecond is another one in a column or two of times
    assert_frame_equal(rows[0], rows[2], rel_tol=1e-6, abs_tol=1e-6)


def _read_directly(pages: list[Page], like: list[Collected]) -> list[Collected]:
    """The pages as a recording of them is read, in the same intervals and with the same labels."""
    batch = PageParser().batch()
    for at, body in pages:
        # Prometheus keeps ms
        time = datetime.fromtimestamp(round(at, 3), UTC)
        if body is None:
            batch.fail("host:8000", time, "up == 0")
        else:
            batch.add("host:8000", time, body.encode())
    frame = batch.finish().scrapes
    whole = [frame.filter(pl.col("time").is_in(one.scrapes["time"].implode())) for one in like]
    return [replace(one, scrapes=rows) for one, rows in zip(like, whole, strict=True)]


def _evidence(found: list[Collected]) -> pl.DataFrame:
    until = found[-1].scrapes["time"].max()
    assert isinstance(until, datetime)
    given = TickInput({str(n): one for n, one in enumerate(found)}, until)
    _, outcome = evaluate(State(), given, plan_of_rules(()), Store.in_memory())
    return outcome.rows
