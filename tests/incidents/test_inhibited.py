"""Hysteresis and inhibition, minute by minute on rows of real columns."""

from __future__ import annotations

from dataclasses import replace

import pytest
from minute_cases import PER_POOL, REPLICA, SLOW, F, Minutes, T, U, live, told

from driftwatch.incidents.life_cycle import AFTER_INHIBITION_SECONDS
from driftwatch.pipeline.inhibition import inhibitors_first
from driftwatch.rulebook.rules import Group


def test_until_keeps_it_open_and_unknown_keeps_it_too() -> None:
    slow = {"slower_at_equal_load": [T, F, U, F, F], "gauges_live": [F, F, U, U, T]}
    _, happened = live([SLOW], {"s0": slow}, 5)
    assert told(happened) == [("SlowerAtEqualLoad@s0", "firing", 1),
                              ("SlowerAtEqualLoad@s0", "resolved", 5)]  # fmt: skip


def test_until_says_nothing_of_what_does_not_fire() -> None:
    slow = {"slower_at_equal_load": [T, F, F], "gauges_live": [F, F, F]}
    waiting = replace(SLOW, for_seconds=120.0)
    assert live([waiting], {"s0": slow}, 3) == ({}, [])


def test_until_keeps_what_only_waits_for_another() -> None:
    slow: Minutes = {
        "slower_than_pool": [*[T] * 5, F],
        "slower_at_equal_load": [F, T, F],
        "gauges_live": [F],
    }
    (_, waiting) = live([SLOW, REPLICA], {"s0": slow}, 4)[0].values()
    assert (waiting.alert, waiting.state) == ("SlowerAtEqualLoad", "pending")
    told_later = told(live([SLOW, REPLICA], {"s0": slow}, 30)[1])
    assert told_later[-1] == ("SlowerAtEqualLoad@s0", "firing", 21)  # still slow after the other


def test_a_pool_is_over_when_all_of_it_is() -> None:
    first = {"slower_at_equal_load": [T, F], "gauges_live": [F, T]}
    last = {"slower_at_equal_load": [T, F], "gauges_live": [F, F, F, T]}
    _, happened = live([PER_POOL], {"s0": first, "s1": last}, 6, many=2)
    assert told(happened) == [("SlowerAtEqualLoad@pool", "firing", 1),
                              ("SlowerAtEqualLoad@pool", "resolved", 4)]  # fmt: skip


def test_a_pool_does_not_wait_for_who_never_answered() -> None:
    of: dict[str, Minutes] = {
        "s0": {"slower_at_equal_load": [T, F], "gauges_live": [F, T]},
        "s1": {"slower_at_equal_load": [U], "gauges_live": [U]},
    }
    assert len(live([PER_POOL], of, 4, many=2)[1]) == 1  # s1 may be slow still
    assert len(live([PER_POOL], of, 4, many=2, never="s1")[1]) == 2


def test_the_first_of_two_that_inhibit_each_other_stays() -> None:
    slow: Minutes = {"slower_than_pool": [T], "slower_at_equal_load": [F, F, T]}
    incidents, happened = live([SLOW, REPLICA], {"s0": slow}, 6)
    assert told(happened) == [("ReplicaSlow@s0", "firing", 1)]
    (waiting,) = [i for i in incidents.values() if i.alert == "SlowerAtEqualLoad"]
    assert (waiting.state, waiting.inhibited_by) == ("pending", "ReplicaSlow")
    same: Minutes = {"slower_than_pool": [T], "slower_at_equal_load": [T]}
    assert told(live([SLOW, REPLICA], {"s0": same}, 6)[1]) == [
        ("SlowerAtEqualLoad@s0", "firing", 1)
    ]
    other = live([SLOW, REPLICA], {"s0": {"slower_than_pool": [T]}, "s1": same}, 1, many=2)
    assert len(other[1]) == 2  # another server is another matter


def test_a_page_gives_way_to_a_later_one_that_would_contradict_it() -> None:
    """A slow engine fills its batch: the limit is found first, and then the engine."""
    limit = replace(REPLICA, id="Limit", alert="Limit")
    engine = replace(SLOW, inhibited_by=())
    slow: Minutes = {
        "slower_than_pool": [T],
        "slower_at_equal_load": [F, F, T, T, F],
        "gauges_live": [F, F, F, F, T],
    }
    for cuts in ((), (1, 2, 3)):
        incidents, happened = live([engine, limit], {"s0": slow}, 4, cuts=cuts)
        assert told(happened) == [
            ("Limit@s0", "firing", 1),
            ("Limit@s0", "resolved", 3),
            ("SlowerAtEqualLoad@s0", "firing", 3),
        ]
        assert happened[1].reason == (
            "SlowerAtEqualLoad says what is behind it, and takes its place"
        )
        open_pages = [i for i in incidents.values() if i.state == "firing"]
        assert [i.alert for i in open_pages] == ["SlowerAtEqualLoad"]
        (waiting,) = [i for i in incidents.values() if i.alert == "Limit"]
        assert waiting.inhibited_by == "SlowerAtEqualLoad"
    # what still holds when the engine is back is told of again
    later = told(live([engine, limit], {"s0": slow}, 30)[1])
    assert later[-1] == ("Limit@s0", "firing", 19)
    # another severity asks other people, and another server is another matter
    ticket = replace(engine, severity="ticket")
    assert ("Limit@s0", "resolved", 3) not in told(live([ticket, limit], {"s0": slow}, 4)[1])
    elsewhere = {"s0": {"slower_than_pool": [T]}, "s1": slow}
    assert ("Limit@s0", "resolved", 3) not in told(live([engine, limit], elsewhere, 4, many=2)[1])


def test_a_notice_or_a_pool_that_gives_way_is_told_of_no_slow_server() -> None:
    lengths = replace(REPLICA, id="LengthDrift", alert="LengthDrift", severity="notice")
    shift = replace(SLOW, id="TrafficShift", alert="TrafficShift", severity="notice")
    shift = replace(shift, inhibited_by=())
    lengths = replace(lengths, inhibited_by=("TrafficShift",))
    moved: Minutes = {"slower_than_pool": [T], "slower_at_equal_load": [F, T]}
    (reason,) = [t.reason for t in live([shift, lengths], {"s0": moved}, 3)[1] if t.reason]
    assert reason.startswith("TrafficShift says")
    assert "slow" not in reason and "page" not in reason


def test_a_pools_page_gives_way_when_half_of_its_servers_are_told_of_otherwise() -> None:
    limit = replace(REPLICA, id="Limit", alert="Limit", together=Group(0.0, 1800.0))
    engine = replace(SLOW, inhibited_by=())
    slow: Minutes = {
        "slower_than_pool": [T],
        "slower_at_equal_load": [F, F, T],
        "gauges_live": [F],
    }
    only_full: Minutes = {"slower_than_pool": [T]}
    for of, ends in (
        ({"s0": slow, "s1": slow}, True),
        ({"s0": slow, "s1": only_full}, True),
        ({"s0": slow, "s1": only_full, "s2": only_full}, False),
    ):
        incidents, happened = live([engine, limit], of, 6, many=3)
        pool = [(event, minute) for name, event, minute in told(happened) if name == "Limit@pool"]
        assert pool == [("firing", 1), *([("resolved", 3)] if ends else [])]
        firing = {i.alert for i in incidents.values() if i.state == "firing"}
        assert firing == ({"SlowerAtEqualLoad"} if ends else {"SlowerAtEqualLoad", "Limit"})


@pytest.mark.parametrize("last", [17, 18])
def test_what_was_inhibited_fires_only_when_it_outlasts_the_other(last: int) -> None:
    assert AFTER_INHIBITION_SECONDS == 900  # minutes 4 to 18
    slow: Minutes = {
        "slower_at_equal_load": [T, T, T, F],
        "gauges_live": [F, F, F, T],
        "slower_than_pool": [F, *[T] * (last - 1), F],
    }
    _, happened = live([SLOW, REPLICA], {"s0": slow}, 30)
    first = [("SlowerAtEqualLoad@s0", "firing", 1), ("SlowerAtEqualLoad@s0", "resolved", 4)]
    later = [("ReplicaSlow@s0", "firing", 18), ("ReplicaSlow@s0", "resolved", 19)]
    assert told(happened) == first + (later if last == 18 else [])


def test_what_is_unknown_for_an_hour_inhibits_no_more() -> None:
    """The baseline was retired while a loss was open: the limit of this server must still page."""
    engine = replace(SLOW, inhibited_by=())
    slow: Minutes = {
        "slower_at_equal_load": [T, T, U],
        "gauges_live": [F, F, U],
        "slower_than_pool": [F, F, F, T],
    }
    incidents, happened = live([engine, REPLICA], {"s0": slow}, 120)
    # an hour after the last minute that was known, and the minutes that what waited must outlast
    assert told(happened) == [
        ("SlowerAtEqualLoad@s0", "firing", 1),
        ("ReplicaSlow@s0", "firing", 2 + 60 + 15),
    ]
    assert {one.state for one in incidents.values()} == {"firing"}


def test_rules_come_after_those_that_inhibit_them() -> None:
    a, b, c = (replace(REPLICA, id=x, alert=x, inhibited_by=()) for x in "abc")
    a, b = replace(a, inhibited_by=("b", "c")), replace(b, inhibited_by=("c",))
    assert [rule.id for rule in inhibitors_first([a, b, c])] == ["c", "b", "a"]
    assert [rule.id for rule in inhibitors_first([REPLICA, SLOW])] == [REPLICA.id, SLOW.id]


def test_rules_that_wait_for_each_other_come_after_those_that_both_wait_for() -> None:
    a, b, c, d = (replace(REPLICA, id=x, alert=x, inhibited_by=()) for x in "abcd")
    a, b = replace(a, inhibited_by=("b",)), replace(b, inhibited_by=("a", "c"))
    c, d = replace(c, inhibited_by=("d",)), replace(d, inhibited_by=("c",))
    assert [rule.id for rule in inhibitors_first([a, b, c, d])] == ["c", "d", "a", "b"]
