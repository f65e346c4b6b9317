"""After a restart the past is made anew from the stored scrapes: the evidence stays the same."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path

import polars as pl
import pytest
from service_cases import FrameSource, shipped_plan

from driftwatch.collect.recording import RecordingSource
from driftwatch.diagnose.evidence_order import evidence_only
from driftwatch.service.state import State
from driftwatch.service.stored import memory_of, state_from
from driftwatch.service.tick import tick
from driftwatch.store.store import Store

PLAN = shipped_plan()


@pytest.mark.parametrize("stopped_after", [4, 14])
def test_a_restart_changes_no_evidence(
    shared_data: Path, tmp_path: Path, stopped_after: int
) -> None:
    recording = RecordingSource(shared_data / "vllm-0.32" / "run_cap")
    collected = recording.collect(*recording.span())
    source = FrameSource(collected.scrapes, collected.targets)
    first = collected.scrapes["time"].min()
    assert isinstance(first, datetime)
    state = State(collected_until={source.name: first})
    with Store.open(tmp_path / "driftwatch.db") as store:
        for n in range(1, 2 * stopped_after + 1):
            now = first + timedelta(seconds=30 * n)
            state, outcome = tick([source], state, now, PLAN)
            store.commit_tick(
                incidents=state.incidents.values(),
                transitions=outcome.transitions,
                deliveries=(),
                scrapes=outcome.scrapes if len(outcome.scrapes) else None,
                since=first,
                until=now,
                memory=memory_of(state),
            )
        again = state_from(store, now)
    # what came since the last whole minute is held in full in both
    assert again.scrapes.sort("time").equals(state.scrapes.sort("time"))
    kept, made = state.carried.past, again.carried.past
    since = state.evaluated_until
    assert since is not None
    window = pl.col("time") >= since - timedelta(minutes=15)
    numbers = ["serial", "epoch"]
    assert (
        made.scrapes.filter(window).drop(numbers).equals(kept.scrapes.filter(window).drop(numbers))
    )
    for n in range(1, 9):
        now += timedelta(minutes=1)
        state, uninterrupted = tick([source], state, now, PLAN)
        again, restarted = tick([source], again, now, PLAN)
        assert len(uninterrupted.rows) > 0
        assert evidence_only(restarted.rows).equals(evidence_only(uninterrupted.rows)), n
