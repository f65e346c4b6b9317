"""Who leaves on purpose makes no noise; who is lost is told of once."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import polars as pl
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
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

from driftwatch.diagnose.evidence_order import evidence_only
from driftwatch.model import TargetKey
from driftwatch.pipeline.departures import FORGOTTEN, MOVED, NOT_LISTED
from driftwatch.pipeline.plan import Pool

PLAN = one_pool(shipped_plan())
# an example takes seconds: what fails is told as it was found
NO_SHRINK = (Phase.explicit, Phase.reuse, Phase.generate)
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


def test_the_whole_pool_is_gone() -> None:
    servers = [Server(f"s{i}:8000", steady(100), until=900) for i in range(3)]
    state, outcomes = watched([FleetSource(servers, 60)], 60, PLAN, every=5)
    assert events(outcomes) == [TICKET]
    assert len(state.targets) == 3


def test_a_pool_without_traffic_goes_to_sleep() -> None:
    servers = [Server(f"s{i}:8000", step(300, 100, 0), until=900) for i in range(3)]
    state, outcomes = watched([FleetSource(servers, 40)], 40, PLAN, every=5)
    assert events(outcomes) == []
    assert set(retired(outcomes).values()) == {MOVED}
    assert state.targets == {}


def test_a_pool_of_one_is_renamed() -> None:
    servers = [
        Server("old:8000", steady(500), until=900),
        Server("new:8000", steady(480), since=960),
    ]
    state, outcomes = watched([FleetSource(servers, 60)], 60, PLAN, every=5)
    assert events(outcomes) == []
    assert retired(outcomes) == {"old:8000": MOVED}
    assert list(state.targets) == [TargetKey("new:8000", "0")]


def test_a_rollout_one_after_the_other() -> None:
    old = [Server(f"old{i}:8000", steady(100), until=900 + 90 * i) for i in range(8)]
    new = [Server(f"new{i}:8000", steady(100), since=880 + 90 * i) for i in range(8)]
    _, outcomes = watched([FleetSource([*old, *new], 60)], 60, PLAN, every=5)
    assert events(outcomes) == []
    assert retired(outcomes) == {f"old{i}:8000": MOVED for i in range(8)}


def test_one_to_sixty_to_one() -> None:
    """The demand stays, the replicas follow an autoscaler's whim; nobody is told anything."""
    demand, count = 6_000.0, 60

    def alive(t: float) -> int:
        up = 1 + int(max(0.0, t - 300) / 10)
        down = count - int(max(0.0, t - 1500) / 13)
        return max(1, min(count, up, down))

    servers = []
    for i in range(count):
        since = 0.0 if i == 0 else 300 + 10.0 * i
        until = 9e9 if i == 0 else 1500 + 13.0 * (count - i)
        servers.append(
            Server(f"s{i:03}:8000", lambda t: demand / alive(t), since=since, until=until)
        )
    state, outcomes = watched([FleetSource(servers, 60)], 60, PLAN, every=5)
    assert events(outcomes) == []
    assert len(retired(outcomes)) == 59
    assert set(retired(outcomes).values()) == {MOVED}
    assert list(state.targets) == [TargetKey("s000:8000", "0")]


def test_what_comes_back_resolves_the_ticket() -> None:
    lost = [Server(f"s{i}:8000", steady(100), until=900) for i in range(4)]
    back = [Server(f"s{i}:8000", steady(100), since=2400) for i in range(4)]
    rest = [Server(f"s{i}:8000", steady(100)) for i in range(4, 8)]
    _, outcomes = watched([FleetSource([*lost, *back, *rest], 60)], 60, PLAN, every=5)
    assert events(outcomes) == [TICKET, ("resolved", "CoverageLost")]
    assert [t.reason for o in outcomes for t in o.transitions] == [None, None]


def test_traffic_that_moves_late_ends_it_with_a_reason() -> None:
    gone = [Server(f"s{i}:8000", steady(100), until=900) for i in range(4)]
    rest = [Server(f"s{i}:8000", step(2400, 100, 200)) for i in range(4, 8)]
    _, outcomes = watched([FleetSource([*gone, *rest], 60)], 60, PLAN, every=5)
    assert events(outcomes) == [TICKET, ("resolved", "CoverageLost")]
    assert set(retired(outcomes).values()) == {MOVED}


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
    rest = [
        replace(s, rate=step(900, 100, 200) if i > 1 else s.rate) for i, s in enumerate(servers)
    ]
    source = FleetSource(rest, 60)
    source.servers = [replace(s, until=9e9) for s in servers]
    state, outcomes = watched([source], 60, PLAN, every=5)
    assert events(outcomes) == []
    assert set(retired(outcomes)) == {"s0:8000", "s1:8000"}
    assert len(state.targets) == 2


@settings(max_examples=2, deadline=None, phases=NO_SHRINK)
@given(
    every=st.sampled_from([1.5, 7, 40]),
    until=st.integers(600, 1500),
    moved=st.booleans(),
)
def test_how_minutes_are_split_changes_nothing(every: float, until: int, moved: bool) -> None:
    gone = [Server(f"s{i}:8000", steady(100), until=until + 37 * i) for i in range(3)]
    rest = [Server(f"s{i}:8000", step(until, 100, 160 if moved else 100)) for i in range(3, 8)]
    source = FleetSource([*gone, *rest], 40)
    source.servers = [replace(s, until=9e9) for s in source.servers]
    one, by_minutes = watched([source], 40, PLAN)
    other, at_once = watched([source], 40, PLAN, every=every)
    assert told(by_minutes) == told(at_once)
    assert retired(by_minutes) == retired(at_once)
    rows = [
        pl.concat([evidence_only(o.rows) for o in outcomes if len(o.rows)]).sort(
            "instance", "start"
        )
        for outcomes in (by_minutes, at_once)
    ]
    assert rows[0].equals(rows[1])
    assert one.departures.traffic.equals(other.departures.traffic)


@settings(max_examples=5, deadline=None, phases=NO_SHRINK)
@given(
    rates=st.lists(st.floats(20, 500), min_size=2, max_size=9),
    gone=st.integers(1, 8),
    at=st.integers(600, 1200),
    noise=st.floats(0.97, 1.03),
)
def test_traffic_tells_scaling_from_losing(
    rates: list[float], gone: int, at: int, noise: float
) -> None:
    gone = min(gone, len(rates) - 1)
    carried, total = sum(rates[:gone]), sum(rates)
    grown = total / (total - carried) * noise
    share = carried / total
    for moves in (True, False):
        servers = [Server(f"s{i}:8000", steady(r), until=at) for i, r in enumerate(rates[:gone])]
        servers += [
            Server(f"s{i}:8000", step(at, r, r * (grown if moves else noise)))
            for i, r in enumerate(rates[gone:], start=gone)
        ]
        _, outcomes = watched([FleetSource(servers, 50)], 50, PLAN, every=10)
        if moves:
            assert events(outcomes) == []
            assert len(retired(outcomes)) == gone
        elif gone < 2:
            assert events(outcomes) == []
            assert len(retired(outcomes)) == 1
        elif share > 0.1:
            assert events(outcomes) == [TICKET]
            assert retired(outcomes) == {}


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
