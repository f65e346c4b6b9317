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
from driftwatch.pipeline.tick import CATCH_UP
from driftwatch.service.replay import (
    replay,
)

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


@pytest.mark.slow
def test_few_targets_are_given_more_hours_at_once_and_the_findings_are_the_same(
    hours: Path,
) -> None:
    assert ROUNDS * APART > CATCH_UP
    by_itself, verdicts = found(hours, None)
    assert len(by_itself) == 2 * ROUNDS
    told, same = found(hours, timedelta(minutes=23))
    assert told == by_itself
    assert same.equals(verdicts)
