"""How much of a history is evaluated at once changes nothing that is found."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import polars as pl
import pytest

from driftwatch.cli.options import plan_from
from driftwatch.collect.recordings import open_recording
from driftwatch.collect.recordings.compact import CompactRecordingSource, write_manifest, write_part
from driftwatch.pipeline.replay import LONGEST, SHORTEST, TARGET_HOURS, replay, stride_of
from driftwatch.pipeline.tick import CATCH_UP

ROUNDS, APART = 9, timedelta(minutes=31)  # 4.6 h: more than one long stride


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
    assert SHORTEST < LONGEST < CATCH_UP
    by_itself, verdicts = found(hours, None)
    assert len(by_itself) == 2 * ROUNDS
    for stride in (timedelta(minutes=23), timedelta(hours=1)):
        told, same = found(hours, stride)
        assert told == by_itself
        assert same.equals(verdicts)


def test_memory_does_not_grow_with_the_number_of_targets() -> None:
    assert stride_of(0) == SHORTEST  # how many there are is not known yet
    assert stride_of(1) == LONGEST
    for targets in (7, 40, 100):
        assert stride_of(targets) * targets <= timedelta(hours=TARGET_HOURS)
    assert stride_of(1000) == SHORTEST
