"""What is left of who was let go: state, incidents, a restart."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import polars as pl
from polars.testing import assert_frame_equal
from pool_cases import (
    BEGIN,
    FleetSource,
    Server,
    events,
    one_pool,
    retired,
    steady,
    step,
    told,
    watched,
)
from service_cases import shipped_plan

from driftwatch.collect.schema import KEY
from driftwatch.model import TargetKey
from driftwatch.pipeline.departures import MOVED
from driftwatch.pipeline.roster import UNCONFIGURED, Sources
from driftwatch.pipeline.state import State
from driftwatch.pipeline.tick import evaluate

PLAN = one_pool(shipped_plan())
TICKET = ("firing", "CoverageLost")


def test_the_state_is_empty_of_who_was_let_go() -> None:
    servers = [Server("a:8000", steady(100), until=900), Server("b:8000", step(900, 100, 200))]
    state, outcomes = watched([FleetSource(servers, 50)], 50, PLAN, every=5)
    assert retired(outcomes) == {"a:8000": MOVED}
    for frame in (
        state.scrapes,
        state.carried.inputs_seen,
        state.carried.plateau,
        state.carried.alive,
        state.departures.traffic,
        state.departures.last,
    ):
        assert "a:8000" not in frame["instance"].to_list()
    assert set(state.departures.origins) == {TargetKey("b:8000", "0")}
    assert state.departures.retired == frozenset()


def test_an_incident_of_who_was_let_go_resolves_with_the_reason() -> None:
    """Stuck until it is taken away: nobody ever saw the condition false."""
    stuck = Server("a:8000", step(600, 100, 0), until=1500)
    rest = Server("b:8000", step(600, 100, 200))
    source = FleetSource([stuck, rest], 40)
    present = pl.when(pl.col("instance") == "a:8000").then(3.0).otherwise(1.0)
    source.frame = source.frame.with_columns(running_requests=present)
    state, outcomes = watched([source], 40, PLAN, every=5)
    assert events(outcomes) == [("firing", "EngineStuck"), ("resolved", "EngineStuck")]
    assert retired(outcomes) == {"a:8000": MOVED}
    resolved = [t for o in outcomes for t in o.transitions][1]
    assert resolved.reason == MOVED
    page = resolved.incident.page
    assert page is not None
    assert page["resolved_reason"] == MOVED
    assert page["times"]["resolved_at"] is not None
    assert state.incidents == {}


def test_a_pool_of_which_nobody_is_left_closes_its_ticket() -> None:
    servers = [
        Server(f"s{i}:8000", steady(100), until=2400 + 60 * i, fails=(900, 1800)) for i in range(2)
    ]
    servers = [replace(s, rate=step(2000, 100, 0), fails=(900, 9e9)) for s in servers]
    source = FleetSource(servers, 80)
    state, outcomes = watched([source], 80, PLAN, every=5)
    # they failed while they carried traffic, and then were taken away: lost, as far as is known
    assert events(outcomes) == [TICKET]
    assert len(state.targets) == 2


def staying(state: State, name: str) -> pl.DataFrame:
    """A frame of the past, of the targets that are there and the ten minutes that windows read."""
    past = state.carried.past
    there = pl.col("instance").is_in([key.instance for key in state.targets])
    there &= pl.col("time") >= state.evaluated_until - timedelta(minutes=10)
    frame = getattr(past, name).join(past.targets.select("target", *KEY), on="target").filter(there)
    return frame.drop("target", "serial", "epoch", strict=False)


def test_a_restart_in_between_changes_nothing(tmp_path) -> None:
    from driftwatch.pipeline.stored_state import memory_of, state_from
    from driftwatch.store.store import Store, TickRecord

    gone = [Server(f"s{i}:8000", steady(100), until=900) for i in range(3)]
    rest = [Server(f"s{i}:8000", step(1080, 100, 160)) for i in range(3, 8)]
    source = FleetSource([*gone, *rest], 32)
    states, straight = [], []
    state: State | None = None
    for minute in range(1, 33):
        state, outcomes = watched([source], minute, PLAN, state=state, begin=minute - 1)
        states.append(state)
        straight += outcomes
    for cut in (16, 18, 20):
        path = tmp_path / f"{cut}.db"
        before, first = states[cut - 1], straight[:cut]
        with Store.open(path) as store:
            store.commit_tick(
                TickRecord(
                    incidents=before.incidents.values(),
                    scrapes=pl.concat([o.scrapes for o in first]),
                    since=BEGIN,
                    until=BEGIN + timedelta(minutes=cut),
                    memory=memory_of(before),
                )
            )
        with Store.open(path) as store:
            again = state_from(store, BEGIN + timedelta(minutes=cut))
        assert again.departures.origins == before.departures.origins
        assert again.departures.traffic.equals(before.departures.traffic)
        assert again.departures.last.equals(before.departures.last)
        # no more in memory than the last process had, and the same
        assert again.scrapes.select(*KEY, "time").equals(before.scrapes.select(*KEY, "time"))
        for name in ("scrapes", "last_values"):
            assert_frame_equal(staying(again, name), staying(before, name))
        _, rest_of_it = watched([source], 32, PLAN, state=again, begin=cut)
        outcomes = [*first, *rest_of_it]
        assert told(outcomes) == told(straight)
        assert retired(outcomes) == retired(straight) == {f"s{i}:8000": MOVED for i in range(3)}


def test_a_page_that_is_taken_out_of_the_configuration_is_let_go() -> None:
    """Its source tells of its targets itself: nobody waits for their traffic."""
    servers = [Server(f"s{i}:8000", steady(100)) for i in range(2)]
    state, _ = watched([FleetSource(servers, 30)], 10, PLAN)
    left = FleetSource(servers[1:], 30)
    collected = left.collect(BEGIN + timedelta(minutes=10), BEGIN + timedelta(minutes=11))
    for told_of in (
        Sources(names=("fleet",), configured=frozenset({"fleet"}), fixed=frozenset({"fleet"})),
        Sources(names=("other",), configured=frozenset({"other"})),
    ):
        after, outcome = evaluate(state, [collected], BEGIN + timedelta(minutes=11), PLAN, told_of)
        assert outcome.retired == {TargetKey("s0:8000", "0"): UNCONFIGURED}
        assert list(after.targets) == [TargetKey("s1:8000", "0")]
