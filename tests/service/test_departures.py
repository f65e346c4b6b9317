"""Who leaves on purpose makes no noise; who is lost is told of once."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import polars as pl
import pytest
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

from driftwatch.model import TargetKey
from driftwatch.pipeline.departures import FORGOTTEN, MOVED, NOT_LISTED
from driftwatch.pipeline.plan import Pool

PLAN = one_pool(shipped_plan())
TICKET = ("firing", "CoverageLost")


def test_half_vanish_and_the_rest_takes_over() -> None:
    servers = [Server(f"s{i}:8000", steady(100), until=900) for i in range(4)]
    servers += [Server(f"s{i}:8000", step(900, 100, 200)) for i in range(4, 8)]
    state, outcomes = watched([FleetSource(servers, 60)], 60, PLAN, every=5)
    assert events(outcomes) == []
    assert retired(outcomes) == {f"s{i}:8000": MOVED for i in range(4)}
    assert [key.instance for key in state.targets] == [f"s{i}:8000" for i in range(4, 8)]


@pytest.mark.parametrize("takes_over", [1080, 1130])
def test_who_is_scaled_down_is_no_ticket_in_the_minute_that_retires_it(takes_over: float) -> None:
    """Two of four leave; the others take over late, so that both would be decided in one minute."""
    servers = [Server(f"s{i}:8000", steady(100), until=900) for i in range(2)]
    servers += [Server(f"s{i}:8000", step(takes_over, 100, 200)) for i in range(2, 4)]
    source = FleetSource(servers, 40)
    state, before = watched([source], 16, PLAN, every=8)
    _, after = watched([source], 32, PLAN, state=state, begin=16)
    outcomes = [*before, *after]
    assert events(outcomes) == []
    assert retired(outcomes) == {f"s{i}:8000": MOVED for i in range(2)}


def test_half_vanish_with_their_traffic_and_it_is_one_ticket() -> None:
    servers = [Server(f"s{i}:8000", steady(100), until=900 if i < 4 else 9e9) for i in range(8)]
    state, outcomes = watched([FleetSource(servers, 60)], 60, PLAN, every=5)
    assert events(outcomes) == [TICKET]
    assert retired(outcomes) == {}
    assert len(state.targets) == 8
    (ticket,) = [t for o in outcomes for t in o.transitions]
    page = ticket.incident.page
    assert page is not None
    assert ticket.incident.key == 'CoverageLost{pool="chat"}'
    assert page["concerned"] == {
        "targets": 4,
        "of_targets": 8,
        "first": [f"s{i}:8000" for i in range(4)],
    }
    assert "(not listed by fleet)" in page["summary"]
    # 5 min gone on a tenth of the pool: told 5 to 9 min after the last scrape
    assert 20 <= told(outcomes)[0][2] <= 24


def test_one_of_many_is_retired_after_15_minutes_whatever_it_carried() -> None:
    servers = [Server(f"s{i}:8000", steady(100), until=900 if i < 1 else 9e9) for i in range(8)]
    state, outcomes = watched([FleetSource(servers, 60)], 60, PLAN, every=5)
    assert events(outcomes) == []
    assert retired(outcomes) == {"s0:8000": NOT_LISTED}
    (gone,) = [o for o in outcomes if o.retired]
    assert gone.forgotten["at"].to_list() == [BEGIN + timedelta(minutes=30)]
    assert len(state.targets) == 7


def test_the_one_server_of_a_pool_that_is_lost_is_a_ticket() -> None:
    """Its source still lists servers of another pool, so that it is known to be gone."""
    plan = replace(PLAN, pools=(Pool("one", match={"m": "1"}), Pool("rest")))
    servers = [Server("a:8000", steady(100), until=900, labels={"m": "1"})]
    servers += [Server(f"s{i}:8000", steady(100)) for i in range(2)]
    _, outcomes = watched([FleetSource(servers, 40)], 40, plan, every=5)
    assert events(outcomes) == [TICKET]
    assert retired(outcomes) == {}


def test_a_pool_without_traffic_goes_to_sleep() -> None:
    servers = [Server(f"s{i}:8000", step(300, 100, 0), until=900) for i in range(3)]
    state, outcomes = watched([FleetSource(servers, 40)], 40, PLAN, every=5)
    assert events(outcomes) == []
    assert set(retired(outcomes).values()) == {MOVED}
    assert state.targets == {}


def test_a_rollout_one_after_the_other() -> None:
    old = [Server(f"old{i}:8000", steady(100), until=900 + 90 * i) for i in range(8)]
    new = [Server(f"new{i}:8000", steady(100), since=880 + 90 * i) for i in range(8)]
    _, outcomes = watched([FleetSource([*old, *new], 60)], 60, PLAN, every=5)
    assert events(outcomes) == []
    assert retired(outcomes) == {f"old{i}:8000": MOVED for i in range(8)}


def test_what_comes_back_resolves_the_ticket() -> None:
    lost = [Server(f"s{i}:8000", steady(100), until=900) for i in range(4)]
    back = [Server(f"s{i}:8000", steady(100), since=2400) for i in range(4)]
    rest = [Server(f"s{i}:8000", steady(100)) for i in range(4, 8)]
    _, outcomes = watched([FleetSource([*lost, *back, *rest], 60)], 60, PLAN, every=5)
    assert events(outcomes) == [TICKET, ("resolved", "CoverageLost")]
    assert [t.reason for o in outcomes for t in o.transitions] == [None, None]


def test_a_server_that_fails_is_not_gone() -> None:
    servers = [Server(f"s{i}:8000", steady(100)) for i in range(3)]
    servers[0] = replace(servers[0], fails=(900, 9e9))
    state, outcomes = watched([FleetSource(servers, 60)], 60, PLAN, every=5)
    assert events(outcomes) == [TICKET]
    assert retired(outcomes) == {}
    assert sum(len(o.unseen) for o in outcomes) == 0
    assert len(state.targets) == 3


def test_who_crashed_and_was_replaced_is_let_go() -> None:
    servers = [
        Server("a:8000", steady(100), until=2000, fails=(900, 9e9)),
        Server("b:8000", step(900, 100, 200)),
    ]
    _, outcomes = watched([FleetSource(servers, 60)], 60, PLAN, every=5)
    assert events(outcomes) == [TICKET, ("resolved", "CoverageLost")]
    assert retired(outcomes) == {"a:8000": MOVED}


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
    state, outcomes = watched([source], 20, PLAN, every=5)
    assert len(state.targets) == 8
    assert sum(len(o.unseen) for o in outcomes) == 0


@pytest.mark.slow
def test_a_day_later_it_is_forgotten() -> None:
    servers = [Server(f"{n}:8000", steady(100), until=900 if n in "ab" else 9e9) for n in "abc"]
    source = FleetSource(servers, 25 * 60)
    _, outcomes = watched([source], 25 * 60, PLAN, every=60)
    assert events(outcomes) == [TICKET, ("resolved", "CoverageLost")]
    assert retired(outcomes) == dict.fromkeys(("a:8000", "b:8000"), FORGOTTEN)


def test_one_of_a_recording_ends() -> None:
    """A recording lists all its servers for ever; that one ends is seen in its scrapes."""
    servers = [Server(f"s{i}:8000", steady(100), until=900 if i < 2 else 9e9) for i in range(4)]
    source = FleetSource(servers, 60)
    source.servers = [replace(s, until=9e9) for s in servers]
    state, outcomes = watched([source], 60, PLAN, every=5)
    assert events(outcomes) == [TICKET]
    assert len(state.targets) == 4


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
