"""Evidence out of a real Prometheus: asked ahead, gone half-way, gone on with, or empty."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import polars as pl
import pytest

from driftwatch.backtest.archive import Archive
from driftwatch.backtest.archive_writer import keep
from driftwatch.collect.prometheus.client import PrometheusAsker
from driftwatch.collect.prometheus.source import PrometheusSource
from driftwatch.collect.recordings.history import RetryingSource
from driftwatch.collect.schema import Collected
from driftwatch.errors import Unavailable
from driftwatch.pipeline.state import CAPACITY_REASON
from driftwatch.service.configuration import plan_of_rules
from driftwatch.service.replay import replay
from driftwatch.testing import prometheus_server
from driftwatch.testing.exposition_server import Page, read_pages
from driftwatch.testing.prometheus_server import PrometheusServer, backfill

pytestmark = pytest.mark.prometheus

LABELS = {"job": "vllm", "instance": "host:8000"}
MIDNIGHT = datetime(2026, 11, 17, tzinfo=UTC)
SPAN = MIDNIGHT - timedelta(minutes=8), MIDNIGHT + timedelta(minutes=4)


@pytest.fixture(scope="module")
def prometheus(
    shared_data: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[PrometheusServer]:
    """run_main over a midnight, with a gap of six minutes and its counters as they were."""
    if not prometheus_server.installed():
        pytest.skip(prometheus_server.NOT_INSTALLED)
    pages: list[Page] = read_pages(shared_data / "vllm-0.32/run_main/scrapes.jsonl.gz")
    by = SPAN[0].timestamp() - pages[0][0] // 60 * 60
    shifted = [(at + by, body) for at, body in pages]
    late = SPAN[0].timestamp() + 180
    shifted = [page for page in shifted if not late < page[0] < late + 360]
    blocks = tmp_path_factory.mktemp("prometheus") / "blocks"
    backfill(shifted, LABELS, blocks)
    with PrometheusServer(blocks=blocks) as server:
        yield server


class Ending:
    """A source that is gone from a time on, as a database that is shut down."""

    def __init__(self, source: PrometheusSource, at: datetime | None = None) -> None:
        self._source, self.at = source, at
        self.name, self.settle_seconds = source.name, source.settle_seconds
        self.intervals: list[tuple[datetime, datetime]] = []

    def collect(self, since: datetime, until: datetime) -> Collected:
        self.intervals.append((since, until))
        if self.at is not None and until > self.at:
            nowhere = PrometheusAsker("http://127.0.0.1:9", timeout_seconds=1)
            return PrometheusSource(nowhere, selector={"job": ["vllm"]}).collect(since, until)
        return self._source.collect(since, until)

    def identity(self) -> dict[str, object]:
        return self._source.identity()

    def close(self) -> None:
        self._source.close()


def ending(url: str, at: datetime | None = None) -> tuple[RetryingSource, Ending]:
    selector = {"job": ["vllm"]}
    source = Ending(PrometheusSource(PrometheusAsker(url), selector=selector), at)
    return RetryingSource(source, pause=lambda _: None), source


def every_row(archive: Archive) -> pl.DataFrame:
    rows = [archive.rows(day, archive.columns(day)) for day in archive.days]
    return pl.concat(rows).sort("instance", "engine", "end")


def test_rows_are_those_of_a_replay_and_each_stretch_is_asked_for_once(
    prometheus: PrometheusServer, tmp_path: Path
) -> None:
    plan = plan_of_rules(())
    source, asked = ending(prometheus.url)
    rows = every_row(keep([source], SPAN, plan, tmp_path))
    since = [first for first, _ in asked.intervals]
    assert since == sorted(set(since))
    again, _ = ending(prometheus.url)
    outcomes = list(replay([again], SPAN, plan.without_rules()))
    wanted = pl.concat(one.rows.hstack(one.judged) for one in outcomes if len(one.rows))
    wanted = wanted.drop(CAPACITY_REASON, strict=False).sort("instance", "engine", "end")
    assert rows.equals(wanted.select(rows.columns))
    assert len(rows) == 12


def test_an_api_that_is_gone_half_way_leaves_the_whole_days_and_is_gone_on_with(
    prometheus: PrometheusServer, tmp_path: Path
) -> None:
    plan = plan_of_rules(())
    gone, _ = ending(prometheus.url, MIDNIGHT + timedelta(minutes=1))
    with pytest.raises(Unavailable) as told:
        keep([gone], SPAN, plan, tmp_path / "one")
    assert told.value.message.endswith("; 1 day is kept")
    assert told.value.help_text == "the same command goes on with the first day that is not kept"
    back, asked = ending(prometheus.url)
    resumed = keep([back], SPAN, plan, tmp_path / "one")
    assert min(since for since, _ in asked.intervals) >= MIDNIGHT
    whole, _ = ending(prometheus.url)
    assert every_row(resumed).equals(every_row(keep([whole], SPAN, plan, tmp_path / "two")))
