"""Who leaves on purpose makes no noise; who is lost is told of once."""

from __future__ import annotations

from dataclasses import replace
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
from driftwatch.pipeline.roster import NOT_LISTED, UNCONFIGURED, Sources
from driftwatch.pipeline.tick import evaluate
from driftwatch.store.store import Store

PLAN = one_pool(shipped_plan())
TICKET = ("firing", "CoverageLost")


def test_who_is_not_listed_is_retired_after_15_minutes_whatever_it_carried() -> None:
    servers = [Server(f"s{i}:8000", steady(100), until=900 if i < 4 else 9e9) for i in range(8)]
    state, outcomes = watched([FleetSource(servers, 60)], 60, PLAN, every=5)
    assert events(outcomes) == []
    assert retired(outcomes) == {f"s{i}:8000": NOT_LISTED for i in range(4)}
    (gone,) = [o for o in outcomes if o.retired]
    assert gone.rows["end"].max() == BEGIN + timedelta(minutes=30)
    assert len(state.targets) == 4


def test_a_rollout_one_after_the_other() -> None:
    old = [Server(f"old{i}:8000", steady(100), until=900 + 90 * i) for i in range(8)]
    new = [Server(f"new{i}:8000", steady(100), since=880 + 90 * i) for i in range(8)]
    _, outcomes = watched([FleetSource([*old, *new], 60)], 60, PLAN, every=5)
    assert events(outcomes) == []
    assert retired(outcomes) == {f"old{i}:8000": NOT_LISTED for i in range(8)}


def test_the_last_server_of_a_source_is_retired_where_the_source_answers_without_it() -> None:
    """No scrape of another server shows that anybody looked; the listing does."""
    state, outcomes = watched(
        [FleetSource([Server("a:8000", steady(100), until=900)], 60)], 60, PLAN, every=5
    )
    assert events(outcomes) == []
    assert retired(outcomes) == {"a:8000": NOT_LISTED}
    assert not state.targets


def test_a_server_that_fails_is_not_gone() -> None:
    servers = [Server(f"s{i}:8000", steady(100)) for i in range(3)]
    servers[0] = replace(servers[0], fails=(900, 9e9))
    state, outcomes = watched([FleetSource(servers, 60)], 60, PLAN, every=5)
    assert events(outcomes) == [TICKET]
    assert retired(outcomes) == {}
    assert len(state.targets) == 3


def test_who_crashed_and_was_replaced_is_let_go() -> None:
    servers = [
        Server("a:8000", steady(100), until=2000, fails=(900, 9e9)),
        Server("b:8000", step(900, 100, 200)),
    ]
    _, outcomes = watched([FleetSource(servers, 60)], 60, PLAN, every=5)
    assert events(outcomes) == [TICKET, ("resolved", "CoverageLost")]
    assert retired(outcomes) == {"a:8000": NOT_LISTED}


def test_who_never_answered_is_missed_by_nobody() -> None:
    servers = [
        Server("a:8000", steady(100), until=900, fails=(0, 9e9)),
        Server("b:8000", steady(100)),
    ]
    _, outcomes = watched([FleetSource(servers, 40)], 40, PLAN, every=5)
    assert events(outcomes) == []
    assert retired(outcomes) == {"a:8000": NOT_LISTED}


def test_a_source_that_cannot_say_has_nobody_leave() -> None:
    servers = [Server(f"s{i}:8000", steady(100), until=900 if i < 4 else 9e9) for i in range(8)]
    source = FleetSource(servers, 20)
    source.frame = source.frame.filter(pl.col("time") < BEGIN + timedelta(minutes=15))
    source.silent = lambda until: "503" if until > BEGIN + timedelta(minutes=15) else None
    state, _ = watched([source], 20, PLAN, every=5)
    assert len(state.targets) == 8


def test_one_of_a_recording_ends() -> None:
    """A recording lists all its servers for ever; that one ends is seen in its scrapes."""
    servers = [Server(f"s{i}:8000", steady(100), until=900 if i < 2 else 9e9) for i in range(4)]
    source = FleetSource(servers, 60)
    source.servers = [replace(s, until=9e9) for s in servers]
    state, outcomes = watched([source], 60, PLAN, every=5)
    assert events(outcomes) == []
    assert retired(outcomes) == {f"s{i}:8000": NOT_LISTED for i in range(2)}
    assert len(state.targets) == 2


def test_a_pod_reborn_with_another_model_inherits_nothing() -> None:
    """The new one has no KV gauge: the old one's memory of it must not count as lost."""
    old = Server("a:8000", steady(100), until=900, labels={"pod": "p-0", "model_name": "m1"})
    new = Server("a:8000", steady(10_000), since=900, labels={"pod": "p-1", "model_name": "m2"})
    source = FleetSource([old, new], 25)
    kv = pl.when(pl.col("model_name") == "m1").then(pl.col("kv_cache_usage_ratio"))
    source.frame = source.frame.with_columns(kv_cache_usage_ratio=kv)
    state, outcomes = watched([source], 25, PLAN)
    assert events(outcomes) == []
    assert [set(o.reborn) for o in outcomes if o.reborn] == [{TargetKey("a:8000", "0")}]
    assert state.targets[TargetKey("a:8000", "0")].labels["model_name"] == "m2"
    rates = pl.concat([o.rows for o in outcomes])["generation_tokens_per_second"].drop_nulls()
    # nothing is subtracted from the other pod's counter
    assert set(rates.round(0).unique()) <= {100.0, 10_000.0}


# --- what is left of who was let go: state, incidents, a restart


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
    assert page.resolved_reason == NOT_LISTED
    assert page.times.resolved_at is not None
    assert state.incidents == {}


def test_a_page_that_is_taken_out_of_the_configuration_is_let_go() -> None:
    """Its source tells of its targets itself: nobody waits for their traffic."""
    servers = [Server(f"s{i}:8000", steady(100)) for i in range(2)]
    state, _ = watched([FleetSource(servers, 30)], 10, PLAN)
    left = FleetSource(servers[1:], 30)
    collected = left.collect(BEGIN + timedelta(minutes=10), BEGIN + timedelta(minutes=11))
    for told_of in (
        Sources(names=("fleet",), configured=frozenset({"fleet"}), pages=frozenset({"fleet"})),
        Sources(names=("other",), configured=frozenset({"other"})),
    ):
        after, outcome = evaluate(
            state, [collected], BEGIN + timedelta(minutes=11), PLAN, Store.in_memory(), told_of
        )
        assert outcome.retired == {TargetKey("s0:8000", "0"): UNCONFIGURED}
        assert list(after.targets) == [TargetKey("s1:8000", "0")]
