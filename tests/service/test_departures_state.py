"""What is left of who was let go: state, incidents, a restart."""

from __future__ import annotations

from datetime import timedelta

import polars as pl
from pool_cases import (
    BEGIN,
    FleetSource,
    Server,
    events,
    one_pool,
    retired,
    steady,
    step,
    watched,
)
from service_cases import shipped_plan

from driftwatch.model import TargetKey
from driftwatch.pipeline.departures import NOT_LISTED
from driftwatch.pipeline.roster import UNCONFIGURED, Sources
from driftwatch.pipeline.tick import evaluate
from driftwatch.store.store import Store

PLAN = one_pool(shipped_plan())


def test_an_incident_of_who_was_let_go_resolves_with_the_reason() -> None:
    """Stuck until it is taken away: nobody ever saw the condition false."""
    stuck = Server("a:8000", step(600, 100, 0), until=1500)
    rest = Server("b:8000", step(600, 100, 200))
    source = FleetSource([stuck, rest], 40)
    present = pl.when(pl.col("instance") == "a:8000").then(3.0).otherwise(1.0)
    begun = pl.col("generation_tokens_total") / 100  # the peer's: that a is given none is no chance
    source.frame = source.frame.with_columns(running_requests=present, ttft_seconds_count=begun)
    state, outcomes = watched([source], 40, PLAN, every=5)
    assert events(outcomes) == [("firing", "EngineStuck"), ("resolved", "EngineStuck")]
    assert retired(outcomes) == {"a:8000": NOT_LISTED}
    resolved = [t for o in outcomes for t in o.transitions][1]
    assert resolved.reason == NOT_LISTED
    page = resolved.incident.page
    assert page is not None
    assert page["resolved_reason"] == NOT_LISTED
    assert page["times"]["resolved_at"] is not None
    assert state.incidents == {}


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
        after, outcome = evaluate(
            state, [collected], BEGIN + timedelta(minutes=11), PLAN, Store.in_memory(), told_of
        )
        assert outcome.retired == {TargetKey("s0:8000", "0"): UNCONFIGURED}
        assert list(after.targets) == [TargetKey("s1:8000", "0")]
