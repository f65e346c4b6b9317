"""How much of a history is evaluated at once changes nothing that is found."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import polars as pl
import pytest

from driftwatch.cli.options import plan_from
from driftwatch.collect.prometheus.client import PrometheusAsker
from driftwatch.collect.prometheus.source import PrometheusSource
from driftwatch.collect.recordings import open_recording
from driftwatch.collect.recordings.compact import CompactRecordingSource, write_manifest, write_part
from driftwatch.collect.schema import Collected, scrape_frame
from driftwatch.model import Target, TargetKey
from driftwatch.pipeline.replay import (
    LONGEST,
    LONGEST_OF_API,
    MOST_SCRAPES,
    SHORTEST,
    HeldSource,
    replay,
    stride_of,
)
from driftwatch.pipeline.state import State
from driftwatch.pipeline.tick import CATCH_UP

ROUNDS, APART = 15, timedelta(minutes=31)  # 7.8 h: more than a live service catches up


@pytest.fixture(scope="module")
def hours(shared_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """run_cap again and again: each time a server that starts anew, pages, and is started again."""
    run = open_recording(shared_data / "vllm-0.32/run_cap/scrapes.jsonl.gz", instance="host:8000")
    collected = run.collect(*run.span())
    folder = tmp_path_factory.mktemp("hours")
    own_times = ("created_seconds", "process_start_time_seconds")
    rounds = [
        collected.scrapes.with_columns(
            pl.col("time") + k * APART,
            pl.col(own_times) + (k * APART).total_seconds(),
        )
        for k in range(ROUNDS)
    ]
    write_manifest(folder, write_part(folder, "all", pl.concat(rounds)), collected.targets)
    return folder


def found(recording: Path, stride: timedelta | None) -> tuple[list[object], pl.DataFrame]:
    source = CompactRecordingSource(recording)
    plan = replace(plan_from(config=None), simulations=0)  # test_page_advice replays across splits
    outcomes = list(replay([source], source.span(), plan, stride=stride))
    source.close()
    told = [t.incident.page for outcome in outcomes for t in outcome.transitions]
    return told, pl.concat(o.verdicts for o in outcomes if len(o.verdicts))


def test_few_targets_are_given_more_hours_at_once_and_the_findings_are_the_same(
    hours: Path,
) -> None:
    assert ROUNDS * APART > CATCH_UP
    by_itself, verdicts = found(hours, None)
    assert len(by_itself) == 2 * ROUNDS
    for stride in (timedelta(minutes=23), timedelta(hours=3)):
        told, same = found(hours, stride)
        assert told == by_itself
        assert same.equals(verdicts)


def scraped_by(targets: int, seconds: int) -> State:
    """A state after two scrapes of each target."""
    times = [datetime(2026, 11, 16, tzinfo=UTC) + timedelta(seconds=seconds * n) for n in (0, 1)]
    keys = [TargetKey(f"h{n:04}:8000", "0") for n in range(targets)]
    rows = [{"instance": k.instance, "engine": k.engine, "time": t} for k in keys for t in times]
    return State(scrapes=scrape_frame(rows), targets={key: Target(key) for key in keys})


def test_memory_does_not_grow_with_the_number_of_targets_nor_with_that_of_scrapes() -> None:
    recorded = [HeldSource(Collected(scrape_frame([]), {}))]
    api = [PrometheusSource(PrometheusAsker("http://h:9090"), selector={})]
    assert stride_of(State(), recorded) == SHORTEST  # how many there are is not known yet
    assert stride_of(scraped_by(1, 60), recorded) == LONGEST
    assert stride_of(scraped_by(1, 60), api) == LONGEST_OF_API
    for targets, seconds in ((7, 15), (40, 30), (100, 60)):
        stride = stride_of(scraped_by(targets, seconds), recorded)
        assert 0.9 * MOST_SCRAPES < stride.total_seconds() / seconds * targets <= MOST_SCRAPES
    assert stride_of(scraped_by(1000, 15), recorded) == SHORTEST
