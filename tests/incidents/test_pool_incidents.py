"""One incident for what servers of a pool have in common, minute by minute."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

import pytest
from minute_cases import (
    REPLICA,
    SLOW,
    START,
    TOGETHER,
    F,
    Minutes,
    T,
    U,
    live,
    targets,
    told,
)

from driftwatch.incidents.incident import Transition
from driftwatch.pipeline.incidents import closed_for
from driftwatch.rulebook.rules import Group

POOL = "SlowerAtEqualLoad@pool"


def at(minute: int, recovered: int = 99) -> Minutes:
    """Slow from a minute on, and well again from another."""
    seen = [minute <= m < recovered for m in range(100)]
    return {"slower_at_equal_load": seen, "gauges_live": [not one for one in seen]}


def extents(happened: Sequence[Transition]) -> list[tuple[str, int, int]]:
    """Event, minute, and how many servers it is about."""
    return [
        (event, minute, max(1, len(t.concerned)))
        for t, (_, event, minute) in zip(happened, told(happened), strict=True)
    ]


@pytest.mark.parametrize("apart", [1, 2, 3, 6])
def test_two_servers_with_one_cause_are_one_incident(apart: int) -> None:
    incidents, happened = live([TOGETHER], {"s0": at(0), "s1": at(apart)}, 30, many=2)
    if apart <= 3:  # the page goes out as soon as nobody is left to wait for
        assert extents(happened) == [("firing", 1 + apart, 2)]
    else:
        assert extents(happened) == [("firing", 4, 1), ("updated", 1 + apart, 2)]
        assert told(happened)[0][0] == "SlowerAtEqualLoad@s0"
    assert told(happened)[-1][0] == POOL
    assert len({t.incident.id for t in happened}) == 1
    assert {t.incident.key for t in happened} == {'SlowerAtEqualLoad{pool="chat"}'}
    members = [i for i in incidents.values() if i.part_of is not None]
    assert [i.target["instance"] for i in members] == ["s0:8000", "s1:8000"]
    assert {(i.state, i.inhibited_by) for i in members} == {("pending", "SlowerAtEqualLoad")}


def test_three_of_eight_and_then_all_of_them() -> None:
    of = {f"s{i}": at(i if i < 3 else 20 + i) for i in range(8)}
    _, happened = live([TOGETHER], of, 60, many=8)
    # 3 of 8, doubled, all: not one message a server
    assert extents(happened) == [("firing", 4, 3), ("updated", 26, 6), ("updated", 29, 8)]
    assert {t.of_targets for t in happened} == {8}
    assert len({t.incident.id for t in happened}) == 1
    assert happened[0].incident.started_at == START - timedelta(minutes=5)  # its six minutes


def test_a_fleet_is_one_page_at_once() -> None:
    of = {f"s{i}": at(0) for i in range(100)}
    assert extents(live([TOGETHER], of, 10, many=100)[1]) == [("firing", 1, 100)]


def test_one_of_many_waits_and_is_a_page_about_a_server() -> None:
    incidents, happened = live([TOGETHER], {"s0": at(0, recovered=20)}, 30, many=8)
    assert told(happened) == [
        ("SlowerAtEqualLoad@s0", "firing", 4),
        ("SlowerAtEqualLoad@s0", "resolved", 21),
    ]
    assert (happened[0].concerned, happened[0].of_targets) == ((), None)
    assert incidents == {}


def test_a_pool_of_one_does_not_wait() -> None:
    incidents, happened = live([TOGETHER], {"s0": at(0)}, 10, many=1)
    assert told(happened) == [("SlowerAtEqualLoad@s0", "firing", 1)]
    assert list(incidents) == ['SlowerAtEqualLoad{engine="0",instance="s0:8000"}']
    # a server that never answered is nobody to wait for
    assert told(live([TOGETHER], {"s0": at(0)}, 10, many=2, never="s1")[1]) == told(happened)


def test_what_ends_while_it_waits_is_no_page() -> None:
    assert live([TOGETHER], {"s0": at(0, recovered=2)}, 10, many=8) == ({}, [])


def test_who_begins_long_after_has_another_cause() -> None:
    of = {"s0": at(0), "s1": at(50), "s2": at(51), "s3": at(60)}
    incidents, happened = live([TOGETHER], of, 99, many=8)
    assert extents(happened) == [("firing", 4, 1), ("firing", 54, 2)]
    assert len({t.incident.id for t in happened}) == 2
    assert [i.extent for i in incidents.values() if i.extent is not None] == [2, 1]
    days = replace(TOGETHER, together=Group(180.0, 86400.0))
    one = live([days], of, 99, many=8)[1]
    assert extents(one) == [("firing", 4, 1), ("updated", 51, 2), ("updated", 61, 4)]


def test_it_is_over_when_all_are_well() -> None:
    of = {f"s{i}": at(0, recovered=20 + 10 * i) for i in range(4)}
    incidents, happened = live([TOGETHER], of, 70, many=8)
    assert told(happened) == [(POOL, "firing", 4), (POOL, "resolved", 51)]
    assert incidents == {}


def test_the_only_server_that_people_know_of_is_well_again() -> None:
    of = {"s0": at(0, recovered=6), "s1": at(5)}
    _, happened = live([TOGETHER], of, 20, many=8)
    assert extents(happened)[:3] == [("firing", 4, 1), ("updated", 7, 1)]
    assert [name for name, _, _ in told(happened)] == [
        "SlowerAtEqualLoad@s0",
        "SlowerAtEqualLoad@s1",
    ]


def test_two_causes_in_one_pool_are_two_incidents() -> None:
    limit = replace(REPLICA, id="Limit", alert="Limit", group="limits", together=Group())
    engine = replace(TOGETHER, inhibited_by=())
    of: dict[str, Minutes] = {"s0": at(0), "s1": {"slower_than_pool": [T]}}
    _, happened = live([engine, limit], of, 20, many=4)
    assert told(happened) == [("Limit@s1", "firing", 4), ("SlowerAtEqualLoad@s0", "firing", 4)]


def test_two_names_of_one_cause_are_one_incident() -> None:
    """Rules that stand in one group and inhibit each other: one carries both."""
    pair = [TOGETHER, replace(REPLICA, together=Group())]
    of: dict[str, Minutes] = {"s0": at(0), "s1": {"slower_than_pool": [F, F, T]}}
    _, happened = live(pair, of, 20, many=2)
    assert [(t.event, t.incident.alert) for t in happened] == [("firing", "SlowerAtEqualLoad")]
    assert [key.instance for key in happened[0].concerned] == ["s0:8000", "s1:8000"]


def test_members_that_leave_close_the_pools_incident_and_say_why() -> None:
    incidents, _ = live([TOGETHER], {f"s{i}": at(0) for i in range(4)}, 6, many=8)
    gone = dict.fromkeys(list(targets(8))[:4], "scaled down")
    left = {key: t for key, t in targets(8).items() if key not in gone}
    some = dict.fromkeys(list(gone)[:3], "scaled down")
    kept, closed = closed_for([TOGETHER], incidents, left, some, START + timedelta(minutes=7))
    assert closed == ()  # one of them is slow still
    assert [i.extent for i in kept.values() if i.extent is not None] == [4]
    after, closed = closed_for([TOGETHER], incidents, left, gone, START + timedelta(minutes=7))
    assert [(t.reason, t.incident.target) for t in closed] == [("scaled down", {"pool": "chat"})]
    assert after == {}


def test_a_rule_that_speaks_for_pools_no_more_closes_their_page() -> None:
    incidents, _ = live([TOGETHER], {"s0": at(0)}, 6, many=8)
    _, closed = closed_for([SLOW], incidents, targets(8), {}, START + timedelta(minutes=7))
    assert [t.reason for t in closed] == ["the rule is now per target"]


@pytest.mark.parametrize("seed", range(8))
def test_the_split_into_calls_changes_nothing(seed: int) -> None:
    chance = random.Random(seed)
    of = {
        f"s{i}": {
            name: [chance.choice([T, T, F, U]) for _ in range(60)]
            for name in ("slower_at_equal_load", "gauges_live", "slower_than_pool")
        }
        for i in range(chance.randint(2, 6))
    }
    rules = [
        replace(TOGETHER, together=Group(120.0, chance.choice([300.0, 1800.0]))),
        replace(REPLICA, together=Group(60.0, 600.0), keep_firing_for_seconds=120),
    ]
    whole = live(rules, of, 60, many=7)
    assert whole[1]
    assert live(rules, of, 60, many=7, cuts=range(1, 60)) == whole
    assert live(rules, of, 60, many=7, cuts=chance.sample(range(1, 60), 5)) == whole
    open_ids: set[str] = set()
    for one in whole[1]:  # an incident fires once, is updated while it is open, and ends once
        assert (one.incident.id in open_ids) == (one.event != "firing")
        if one.event != "updated":
            open_ids ^= {one.incident.id}
