"""A real server's recording as eight replicas, of which four leave under load."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path

import polars as pl
import pytest
from pool_cases import one_pool
from service_cases import FrameSource, shipped_plan

from driftwatch.collect.recordings.text import RecordingSource
from driftwatch.model import Target, TargetKey, Transition
from driftwatch.pipeline.departures import MOVED
from driftwatch.pipeline.state import Outcome, State
from driftwatch.pipeline.tick import tick

PLAN = one_pool(shipped_plan())
NAMES = [f"r{i}:8000" for i in range(8)]
LEFT = NAMES[:4]
# seven minutes into run_cap the server is under full load, and stays so for five more
CUT = timedelta(minutes=7)
STOP = timedelta(minutes=16)


@pytest.fixture(scope="module")
def server(shared_data: Path) -> pl.DataFrame:
    source = RecordingSource(shared_data / "vllm-0.32" / "run_cap")
    return source.collect(*source.span()).scrapes


def fleet(server: pl.DataFrame, *, moved: bool) -> FrameSource:
    """Eight copies; from the cut on four are gone, and what they generate the others do, or not."""
    first = server["time"].min()
    assert isinstance(first, datetime)
    cut = pl.lit(first + CUT, dtype=server.schema["time"])
    tokens = pl.col("generation_tokens_total")
    at_cut = server.filter(pl.col("time") < cut)["generation_tokens_total"].drop_nulls()[-1]
    doubled = tokens + (tokens - at_cut).clip(lower_bound=0)
    rest = server.with_columns(generation_tokens_total=doubled) if moved else server
    copies = [
        (server.filter(pl.col("time") < cut) if name in LEFT else rest).with_columns(
            instance=pl.lit(name)
        )
        for name in NAMES
    ]
    targets = {
        TargetKey(name, "0"): Target(TargetKey(name, "0"), {"instance": name}) for name in NAMES
    }
    return FrameSource(pl.concat(copies).sort("instance", "engine", "time"), targets)


def run(source: FrameSource) -> tuple[State, list[Outcome], datetime]:
    first = source.frame["time"].min()
    assert isinstance(first, datetime)
    state, outcomes = State(collected_until={source.name: first}), []
    for minute in range(1, int(STOP / timedelta(minutes=1)) + 1):
        state, outcome = tick([source], state, first + timedelta(minutes=minute), PLAN)
        outcomes.append(outcome)
    return state, outcomes, first


def coverage(outcomes: list[Outcome]) -> list[Transition]:
    return [t for o in outcomes for t in o.transitions if t.incident.alert == "CoverageLost"]


def test_four_of_eight_vanish_with_their_traffic(server: pl.DataFrame) -> None:
    state, outcomes, first = run(fleet(server, moved=False))
    (ticket,) = coverage(outcomes)
    assert ticket.event == "firing"
    assert timedelta(minutes=5) <= ticket.at - (first + CUT) <= timedelta(minutes=8)
    assert ticket.incident.page is not None
    assert ticket.incident.page["concerned"]["targets"] == 4
    assert ticket.incident.page["concerned"]["first"] == LEFT
    assert len(state.targets) == 8


def test_four_of_eight_leave_and_the_others_take_over(server: pl.DataFrame) -> None:
    state, outcomes, _ = run(fleet(server, moved=True))
    assert coverage(outcomes) == []
    assert {k.instance: why for o in outcomes for k, why in o.retired.items()} == dict.fromkeys(
        LEFT, MOVED
    )
    assert [key.instance for key in state.targets] == NAMES[4:]
    # the source goes on listing them, as a recording does; they stay away
    assert {key.instance for key in state.departures.retired} == set(LEFT)
