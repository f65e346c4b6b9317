"""A window of stored minutes says what its scrapes said."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from pathlib import Path

import polars as pl
import pytest
from click.testing import CliRunner
from service_cases import FrameSource, shipped_plan

from driftwatch.cli.main import cli
from driftwatch.clock import ManualClock
from driftwatch.collect.recordings.text import RecordingSource
from driftwatch.collect.schema import Collected
from driftwatch.detect.reference import no_reference
from driftwatch.diagnose.evidence_table import WINDOW_SCHEMA
from driftwatch.errors import NoVerdict
from driftwatch.model import Target
from driftwatch.pipeline.explain import Window, explain
from driftwatch.pipeline.state import State
from driftwatch.pipeline.stored_evidence import stored_evidence
from driftwatch.pipeline.tick import evaluate
from driftwatch.service.run import Service
from driftwatch.store import Store
from driftwatch.store.minute_columns import rolled_up, stored_rows

PLAN = shipped_plan()
TEN = timedelta(minutes=10)


@pytest.fixture(scope="module")
def watched(shared_data: Path) -> tuple[Collected, State, pl.DataFrame]:
    source = RecordingSource(shared_data / "vllm-0.32" / "run_cap")
    since, until = source.span()
    collected = source.collect(since, until)
    state, outcome = evaluate(State(), [collected], until, PLAN, Store.in_memory())
    return collected, state, stored_rows(outcome.rows, outcome.minutes)


def until(rows: pl.DataFrame, minutes: int) -> datetime:
    first = rows["end"].min()
    assert isinstance(first, datetime)
    return first + timedelta(minutes=minutes)


def _row(stored: pl.DataFrame, target: Target) -> pl.DataFrame:
    first = stored["end"][0] - timedelta(seconds=stored["seconds"][0])
    window = pl.DataFrame(
        [(*target.key, first, stored["end"][-1])], schema=WINDOW_SCHEMA, orient="row"
    )
    return stored_evidence(stored, window, {target.key: target}, PLAN, no_reference())


def test_what_came_before_a_restart_is_not_in_it(
    watched: tuple[Collected, State, pl.DataFrame],
) -> None:
    _, state, rows = watched
    (target,) = state.targets.values()
    stored = rows.with_columns(seconds=pl.lit(60.0))
    restart = stored.filter("restarted")["end"][0]
    inside = (pl.col("end") > restart - TEN / 2) & (pl.col("end") <= restart + TEN / 2)
    row = _row(stored.filter(inside), target).row(0, named=True)
    after = stored.filter((pl.col("end") > restart) & (pl.col("end") <= restart + TEN / 2))
    assert row["restarted"]
    assert row["duration_seconds"] == pytest.approx(after["duration_seconds"].sum())
    assert row["finished_requests"] == after["prompt_tokens_count"].sum()


def test_explain_answers_from_minutes(
    watched: tuple[Collected, State, pl.DataFrame], tmp_path: Path
) -> None:
    collected, state, rows = watched
    (known,) = state.targets
    path, end = tmp_path / "d.db", until(rows, 11)
    source = FrameSource(collected.scrapes, {known: Target(known, {"instance": known.instance})})
    first = collected.scrapes["time"].min()
    assert isinstance(first, datetime)
    with Store.open(path) as store:
        clock = ManualClock(first)
        service = Service([source], PLAN, store, [], clock)
        for _ in range(6):
            clock.advance(TEN / 2)
            service.tick_once()
        service.stop()
    asked = ["explain", known.text, "--db", str(path), "--json", "--at", end.isoformat()]
    result = CliRunner().invoke(cli, asked)
    assert result.exit_code == 0, result.output
    told = json.loads(result.stdout)
    assert told["diagnosis"]["leaf"] == "concurrency_cap_binding"
    assert told["evidence"]["binding_limit"]["value"] == "max_num_seqs"
    with Store.open(path) as store, pytest.raises(NoVerdict) as caught:
        before = Window(first - 9 * TEN, first - 8 * TEN)
        explain(store, Target(known, {}), before, PLAN, no_reference())
    assert "its minutes reach from" in (caught.value.help_text or "")


def test_ten_minute_rows_say_what_they_cannot(
    watched: tuple[Collected, State, pl.DataFrame], tmp_path: Path
) -> None:
    _, state, rows = watched
    (target,) = state.targets.values()
    ten = rolled_up(rows, 600).with_columns(seconds=pl.lit(600.0))
    row = _row(ten.head(2).tail(1), target).row(0, named=True)
    assert row["finished_requests"] == ten["prompt_tokens_count"][1]
    assert row["prompt_tokens_mean_ratio"] is None  # without a reference
    assert row["end"] - row["start"] == TEN
