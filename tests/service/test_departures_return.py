"""Who comes back or is replaced; incidents of a pool that is gone; questions without a span."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import polars as pl
from pool_cases import BEGIN, FleetSource, Server, one_pool, retired, told, watched
from service_cases import shipped_plan

from driftwatch.collect.schema import Collected, empty_scrapes
from driftwatch.model import Incident, Target, TargetKey
from driftwatch.pipeline.departures import MOVED, NOT_LISTED, Departures, judged, retirements
from driftwatch.pipeline.incidents import NO_TARGET_LEFT, NOW_ELSEWHERE, closed_for
from driftwatch.pipeline.roster import Sources, roster
from driftwatch.pipeline.state import State
from tests.replayed_rows import evidence_only

PLAN = one_pool(shipped_plan())
KEY = TargetKey("a:8000", "0")


def test_who_comes_back_within_what_is_caught_up_is_seen() -> None:
    servers = [
        Server("a:8000", lambda _: 0.0, until=600),
        Server("a:8000", lambda _: 500.0, since=985),
        *[Server(f"b{k}:8000", lambda _: 100.0) for k in range(3)],
    ]
    source = FleetSource(servers, 25)
    source.servers = [replace(s, since=0.0, until=9e9) for s in servers]
    found = []
    for every in (2.5, 25):
        _, outcomes = watched([source], 25, PLAN, every=every)
        assert retired(outcomes) == {"a:8000": MOVED}
        rows = pl.concat([evidence_only(o.rows) for o in outcomes if len(o.rows)])
        found.append((rows.sort("instance", "start"), told(outcomes)))
    rows = found[0][0]
    back = rows.filter(pl.col("instance") == "a:8000", pl.col("generation_tokens_per_second") > 0)
    assert back["end"].min() == BEGIN + timedelta(minutes=18)
    for other, transitions in found[1:]:
        assert other.equals(rows)
        assert transitions == found[0][1]


def test_pod_and_model_outlast_a_tick_without_them() -> None:
    """Two pods in one answer share no label: the next one is compared with the last one known."""
    state = State()
    reborn = []
    for labels in ({"pod": "p-0", "model_name": "m"}, {}, {"pod": "p-1", "model_name": "m"}):
        brought = Collected(empty_scrapes(), {KEY: Target(KEY, labels)})
        sources = Sources(names=("fleet",), configured=frozenset({"fleet"}))
        there = roster(state.targets, state.departures, [brought], sources, empty_scrapes(), PLAN)
        reborn.append(there.reborn)
        state = replace(state, targets=there.targets)
    assert reborn == [frozenset(), frozenset(), {KEY}]
    assert state.targets[KEY].labels["pod"] == "p-1"


def open_ticket() -> dict[str, Incident]:
    incident = Incident(
        id="1",
        key='CoverageLost{pool="old"}',
        rule="CoverageLost",
        alert="CoverageLost",
        severity="ticket",
        target={"pool": "old"},
        state="firing",
        started_at=BEGIN,
        last_true_at=BEGIN,
    )
    return {incident.key: incident}


def test_a_pool_that_is_gone_closes_its_incidents() -> None:
    old, new = Target(KEY, {}, pool="old"), Target(KEY, {}, pool="new")
    for left, reasons, before, said in (
        ({KEY: new}, {}, {KEY: old}, NOW_ELSEWHERE.format("new")),
        ({KEY: new}, {}, {KEY: replace(old, pool=None)}, NO_TARGET_LEFT),
        ({}, {KEY: NOT_LISTED}, {KEY: old}, NO_TARGET_LEFT),
    ):
        after, closed = closed_for(PLAN.rules, open_ticket(), left, reasons, BEGIN, before)
        assert after == {}
        assert [t.reason for t in closed] == [said]


def test_a_pool_of_which_nothing_is_known_keeps_its_incidents() -> None:
    for left in ({}, {KEY: Target(KEY, {})}, {KEY: Target(KEY, {}, pool="old")}):
        after, closed = closed_for(PLAN.rules, open_ticket(), left, {}, BEGIN, {})
        assert list(after) == list(open_ticket())
        assert closed == ()


def test_those_that_left_together_are_compared_with_the_pool_before_the_first() -> None:
    """200 of 800 left a minute before 200 more; 360 of them lack, and another left long before."""

    def at(minute: float):
        return BEGIN + timedelta(minutes=minute)

    gone = [("a", 20.0, 200.0, 800.0), ("b", 21.0, 200.0, 590.0), ("c", 12.0, 400.0, 1200.0)]
    last = pl.DataFrame(
        [(n, "0", at(m), own, before, False) for n, m, own, before in gone],
        schema=["instance", "engine", "known_until", "own", "before", "falling"],
        orient="row",
    )
    traffic = pl.DataFrame(
        [("d", "0", "p", at(m), 440.0) for m in range(15, 28)],
        schema=["instance", "engine", "pool", "end", "tokens_per_second"],
        orient="row",
    )
    absent = pl.DataFrame(
        [(n, "0", at(27), at(m)) for n, m, _, _ in gone],
        schema=["instance", "engine", "end", "since"],
        orient="row",
    )
    pools = pl.DataFrame({"instance": list("abcd"), "engine": ["0"] * 4, "pool": ["p"] * 4})
    found = judged(absent, Departures(traffic=traffic, last=last), pools)
    # 360 of 400 lack; with c's 400 counted in, or with b's 590, it would seem moved
    assert set(found.filter("lost")["instance"]) == {"a", "b"}
    assert retirements(found) == (at(27), {TargetKey("c", "0"): NOT_LISTED})
