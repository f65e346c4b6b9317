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

pytestmark = pytest.mark.usefixtures("real_prometheus")

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
