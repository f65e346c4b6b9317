"""Debian's Prometheus, with a recording's history and with a live replay of it."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import polars as pl
import pytest
from fakes.exposition_server import Page, ReplayedExposition, read_pages
from fakes.prometheus_server import PrometheusServer, backfill, scrape_config

from driftwatch.collect.prometheus.client import PrometheusAsker
from driftwatch.collect.prometheus.source import PrometheusSource
from driftwatch.collect.recordings.text import RecordingSource
from driftwatch.collect.schema import SCRAPE_SCHEMA

pytestmark = pytest.mark.usefixtures("real_prometheus")

KEY = ["instance", "engine", "time"]
NASTY = 'a "quoted" \\back\\slash\nnew line {job="x"} or vector(1) é'


@pytest.fixture(scope="module")
def run_main(shared_data: Path) -> Path:
    return shared_data / "vllm-0.32/run_main/scrapes.jsonl.gz"


@pytest.fixture(scope="module")
def pages(run_main: Path) -> list[Page]:
    return read_pages(run_main)


@pytest.fixture(scope="module")
def history(
    pages: list[Page], real_prometheus: None, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    blocks = tmp_path_factory.mktemp("prometheus") / "blocks"
    backfill(pages, {"job": "vllm", "instance": "host:8000", "pool": NASTY}, blocks)
    return blocks


def test_history_of_a_real_prometheus_is_the_recording(run_main: Path, history: Path) -> None:
    recording = RecordingSource(run_main, instance="host:8000")
    since, until = recording.span()
    with PrometheusServer(blocks=history) as server:
        source = PrometheusSource(PrometheusAsker(server.url), selector={"job": "vllm"})
        # in two intervals: what lies between them comes once
        middle = since + (until - since) / 2
        found = [source.collect(since, middle), source.collect(middle, until)]
        source.close()
    assert [f.problems for f in found] == [(), ()]
    ours = pl.concat([f.scrapes for f in found])
    # Prometheus keeps ms
    truth = recording.collect(since, until).scrapes.with_columns(pl.col("time").dt.round("1ms"))
    assert ours.select(KEY).is_duplicated().sum() == 0
    both = ours.join(truth, on=KEY, how="left", suffix="_truth")
    # two scrapes less than a step apart show as one
    assert truth.height - 2 <= both.height <= truth.height
    for column in SCRAPE_SCHEMA:
        if column not in KEY:
            assert both[column].to_list() == both[f"{column}_truth"].to_list(), column


def test_a_selector_value_reaches_prometheus_as_it_is(pages: list[Page], history: Path) -> None:
    since = datetime.fromtimestamp(pages[0][0], UTC)
    with PrometheusServer(blocks=history) as server:
        for pool, rows in ((NASTY, True), (NASTY.replace('"', "'"), False)):
            source = PrometheusSource(PrometheusAsker(server.url), selector={"pool": pool})
            found = source.collect(since, since + timedelta(minutes=1))
            source.close()
            assert found.problems == ()
            assert (found.scrapes.height > 0) == rows
            assert all(t.labels["pool"] == NASTY for t in found.targets.values())


def test_more_than_eleven_thousand_points_are_asked_in_pieces(
    pages: list[Page], history: Path
) -> None:
    # most of it lies before the recording: empty points cost nothing
    until = datetime.fromtimestamp(pages[0][0] + 12, UTC)
    with PrometheusServer(blocks=history) as server:
        source = PrometheusSource(PrometheusAsker(server.url), selector={"job": "vllm"})
        found = source.collect(until - timedelta(minutes=2), until)
        source.close()
    assert found.problems == ()
    times = [round(t * 1000) for t, _ in pages if t < until.timestamp()]
    assert len(times) > 2
    assert [round(t.timestamp() * 1000) for t in found.scrapes["time"]] == times


def test_a_live_prometheus_scraping_a_replay(pages: list[Page]) -> None:
    """The server goes down in the middle and comes back; a second target never answers."""
    moment = [pages[40][0]]
    held: list[Page] = [pages[40], (pages[41][0], None), pages[42]]
    with ReplayedExposition(held, clock=lambda: moment[0], when_down="drop") as vllm:
        config = scrape_config({"vllm": [vllm.instance, "127.0.0.1:1"]}, interval="1s")
        with PrometheusServer(config) as server:
            source = PrometheusSource(PrometheusAsker(server.url), selector={"job": "vllm"})
            began = datetime.now(UTC)
            target = f'instance="{vllm.instance}"'
            _wait(server, f"up{{{target}}} == 1 and on(instance) vllm:num_requests_running")
            moment[0] = pages[41][0]
            _wait(server, f"up{{{target}}} == 0")
            moment[0] = pages[42][0]
            _wait(server, f"up{{{target}}} == 1")
            found = source.collect(began - timedelta(seconds=2), datetime.now(UTC))
            source.close()
    assert found.problems == ()
    ours = found.scrapes.filter(pl.col("instance") == vllm.instance)
    assert ours["ok"].to_list()[0] is True
    assert ours["ok"].rle().struct.field("value").to_list() == [True, False, True]
    assert ours["time"].is_duplicated().sum() == 0
    assert ours.filter(~pl.col("ok"))["reason"].unique().to_list() == ["up == 0"]
    tokens = ours.filter("ok")["generation_tokens_total"].unique(maintain_order=True)
    assert tokens.is_sorted()
    assert tokens.len() == 2
    dead = found.scrapes.filter(pl.col("instance") == "127.0.0.1:1")
    assert dead.height > 0
    assert not dead["ok"].any()


def _wait(server: PrometheusServer, query: str) -> None:
    for _ in range(600):
        if server.query(query):
            return
        time.sleep(0.05)
    raise AssertionError(f"never true: {query}")
