"""One tick is one function: how minutes are split over calls changes nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from service_cases import FrameSource, shipped_plan

from driftwatch.collect.recordings.text import RecordingSource
from driftwatch.pipeline.state import State
from driftwatch.service.replay import Ticks
from driftwatch.store.store import Store
from tests.replayed_rows import evidence_only

PLAN = shipped_plan()


@pytest.fixture(scope="module")
def cap(shared_data: Path) -> FrameSource:
    return _frame_source(shared_data / "vllm-0.32" / "run_cap")


def _frame_source(path: Path) -> FrameSource:
    source = RecordingSource(path)
    collected = source.collect(*source.span())
    return FrameSource(collected.scrapes, collected.targets)


def _span(source: FrameSource) -> tuple[datetime, datetime]:
    first, last = source.frame["time"].min(), source.frame["time"].max()
    assert isinstance(first, datetime)
    assert isinstance(last, datetime)
    return first, last + timedelta(seconds=1)


def _live(
    source: FrameSource, nows: Sequence[datetime]
) -> tuple[State, list[dict[str, Any]], pl.DataFrame]:
    ticks = Ticks([source], PLAN, Store.in_memory(), _span(source)[0])
    told, rows = [], []
    for now in nows:
        outcome = ticks.tick(now)
        told += [dict(t.incident.page or {}) for t in outcome.transitions]
        if len(outcome.rows):
            rows.append(evidence_only(outcome.rows))
    return ticks.state, told, pl.concat(rows)


@pytest.mark.slow
def test_every_50_seconds_equals_all_at_once(cap: FrameSource) -> None:
    first, last = _span(cap)
    steps = [first + timedelta(seconds=50 * i) for i in range(1, 36)]
    _, told, rows = _live(cap, [*(s for s in steps if s < last), last])
    _, at_once, all_rows = _live(cap, [last])
    assert told == at_once
    assert len(told) == 2
    assert rows.equals(all_rows)


def test_a_source_is_asked_for_every_moment_once(cap: FrameSource) -> None:
    source = FrameSource(cap.frame, cap.targets)
    first, last = _span(source)
    _live(source, [first + timedelta(minutes=m) for m in (3, 4, 9)] + [last])
    assert source.asked[0][0] == first
    for (_, until), (since, _) in zip(source.asked, source.asked[1:], strict=False):
        assert until == since


def test_a_target_that_dies_mid_window_keeps_its_incident_open(cap: FrameSource) -> None:
    """NO_DATA neither resolves nor pages; the loss of coverage is its own ticket."""
    first, _ = _span(cap)
    dead_from = first + timedelta(minutes=12)
    alive = cap.frame.filter(pl.col("time") < dead_from)
    failed = pl.DataFrame(
        [
            {
                "instance": "host:8000",
                "engine": "0",
                "ok": False,
                "reason": "refused",
                "time": dead_from + timedelta(seconds=15 * i),
            }
            for i in range(120)
        ],
        schema_overrides=dict(cap.frame.schema),
    )
    frame = pl.concat(
        [
            alive,
            failed.select(
                pl.col(c) if c in failed.columns else pl.lit(None, dtype=t).alias(c)
                for c, t in cap.frame.schema.items()
            ).cast(cap.frame.schema),
        ]
    )
    source = FrameSource(frame, cap.targets)
    state, told, rows = _live(source, [dead_from + timedelta(minutes=30)])
    events = [(p["event"], p["alert"]) for p in told]
    assert events == [("firing", "BatchLimitBinding"), ("firing", "CoverageLost")]
    assert {i.alert for i in state.incidents.values()} == {"BatchLimitBinding", "CoverageLost"}
    lost = told[1]
    assert lost["severity"] == "ticket"
    assert "generation" in str(lost["evidence"]) or "running" in str(lost["evidence"])
    tail = rows.tail(5)
    assert tail["generation_tokens_per_second"].null_count() == 5
    assert tail["running_requests"].null_count() == 5


def test_a_restart_after_a_long_silence_is_a_restart(cap: FrameSource) -> None:
    """The server is away for 40 minutes: what it counted before is still known."""
    first, last = _span(cap)
    cut = first + timedelta(minutes=14, seconds=20)  # the recorded one is away for 35 s there
    away = timedelta(minutes=40)
    later = cap.frame.filter((pl.col("time") >= cut) & pl.col("ok")).with_columns(
        (pl.col("time") + away).cast(cap.frame.schema["time"]),
        pl.col("process_start_time_seconds", "created_seconds") + away.total_seconds(),
    )
    frame = pl.concat([cap.frame.filter(pl.col("time") < cut), later])
    source = FrameSource(frame, cap.targets)
    nows = [first + timedelta(minutes=m) for m in range(1, 69, 3)]
    _, _, by_minutes = _live(source, [*nows, last + away])
    _, _, at_once = _live(source, [last + away])
    assert by_minutes["restarted"].sum() == at_once["restarted"].sum() == 1
    assert by_minutes.equals(at_once)


def test_slow_scrapes_do_not_depend_on_the_split(cap: FrameSource) -> None:
    first, last = _span(cap)
    kept = cap.frame.filter(((pl.col("time") - first).dt.total_seconds() // 5 * 5 % 240) == 0)
    source = FrameSource(kept, cap.targets)
    _, _, by_minutes = _live(
        source, [first + timedelta(minutes=m) for m in range(1, 29, 3)] + [last]
    )
    _, _, at_once = _live(source, [last])
    assert by_minutes.equals(at_once)


def test_after_a_long_stop_the_last_six_hours_are_caught_up(cap: FrameSource) -> None:
    first, _ = _span(cap)
    ticks = Ticks([cap], PLAN, Store.in_memory(), first)
    ticks.state = replace(ticks.state, evaluated_until=first.replace(second=0, microsecond=0))
    now = first.replace(second=0, microsecond=0) + timedelta(hours=10)
    outcome = ticks.tick(now)
    assert outcome.rows["start"].min() == now - timedelta(hours=6)
    assert outcome.rows["end"].max() == now
