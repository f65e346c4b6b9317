"""Who comes back or is replaced; incidents of a pool that is gone."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import polars as pl
from pool_cases import BEGIN, FleetSource, Server, one_pool, retired, told, watched
from service_cases import shipped_plan

from driftwatch.collect.schema import Collected, empty_scrapes
from driftwatch.detect.references import Reference, References, TargetDays
from driftwatch.incidents.incident import Incident
from driftwatch.model import Target, TargetKey
from driftwatch.pipeline.detection import Detection
from driftwatch.pipeline.incidents import NO_TARGET_LEFT, NOW_ELSEWHERE, closed_for
from driftwatch.pipeline.roster import NOT_LISTED, Sources, roster
from driftwatch.pipeline.state import State
from tests.replayed_rows import evidence_only

PLAN = one_pool(shipped_plan())
KEY = TargetKey("a:8000", "0")


def test_who_comes_back_within_what_is_caught_up_is_seen() -> None:
    servers = [
        Server("a:8000", lambda _: 0.0, until=600),
        Server("a:8000", lambda _: 500.0, since=1600),
        *[Server(f"b{k}:8000", lambda _: 100.0) for k in range(3)],
    ]
    source = FleetSource(servers, 35)
    source.servers = [replace(s, since=0.0, until=9e9) for s in servers]
    found = []
    days = TargetDays(measures=((BEGIN.date() - timedelta(days=1), (1.0, None, 0.6, 0.0)),))
    learnt = [Reference("chat", KEY, BEGIN, days)]
    for every in (2.5, 35):
        detection = Detection(references=References().with_more(learnt))
        state = State(detection=detection, collected_until={"fleet": BEGIN})
        state, outcomes = watched([source], 35, PLAN, every=every, state=state)
        assert state.detection.references.days("chat", KEY) == days
        assert retired(outcomes) == {"a:8000": NOT_LISTED}
        rows = pl.concat([evidence_only(o.rows) for o in outcomes if len(o.rows)])
        found.append((rows.sort("instance", "start"), told(outcomes)))
    rows = found[0][0]
    back = rows.filter(pl.col("instance") == "a:8000", pl.col("generation_tokens_per_second") > 0)
    assert back["end"].min() == BEGIN + timedelta(minutes=28)
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
        there = roster(state, [brought], sources, empty_scrapes(), PLAN)
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
