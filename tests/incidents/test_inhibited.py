"""Hysteresis, inhibition and the page of a pool, minute by minute on rows of real columns."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import polars as pl
import pytest

from driftwatch.condition import parse_condition
from driftwatch.model import Incident, Target, TargetKey, Transition
from driftwatch.notify.incidents import AFTER_INHIBITION_SECONDS
from driftwatch.pipeline.incident_groups import inhibitors_first
from driftwatch.pipeline.incidents import advanced, closed_for
from driftwatch.rulebook.rules import Group, Rule

START = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
T, F, U = True, False, None
Minutes = Mapping[str, Sequence[bool | None]]

SLOW = Rule(
    "SlowerAtEqualLoad",
    "SlowerAtEqualLoad",
    "speed",
    "page",
    when=parse_condition("slower_at_equal_load"),
    until=parse_condition("speed_recovered"),
    inhibited_by=("ReplicaSlow",),
)
REPLICA = Rule(
    "ReplicaSlow",
    "ReplicaSlow",
    "speed",
    "page",
    when=parse_condition("slower_than_pool"),
    inhibited_by=("SlowerAtEqualLoad",),
)
TOGETHER = replace(SLOW, together=Group(0.3, 3, 1800.0))
PER_POOL = replace(SLOW, per="pool")


def targets(many: int) -> dict[TargetKey, Target]:
    keys = [TargetKey(f"s{i}:8000", "0") for i in range(many)]
    return {key: Target(key, {}, "chat") for key in keys}


def table(of: Mapping[str, Minutes], many: int, minutes: int) -> pl.DataFrame:
    """Rows of each server: column → its values; a short row goes on as it ends, else False."""
    columns = ("slower_at_equal_load", "speed_recovered", "slower_than_pool")
    made = []
    for key in sorted(targets(many)):
        said = of.get(key.instance.split(":")[0], {})
        for minute in range(minutes):
            row = {
                c: (said[c][minute] if minute < len(said[c]) else said[c][-1]) if c in said else F
                for c in columns
            }
            end = START + timedelta(minutes=minute + 1)
            made.append({"instance": key.instance, "engine": "0", "end": end, **row})
    since = dict.fromkeys(
        ("seconds_since_last_token", "coverage_missing_seconds", "speed_change_ratio",
         "speed_change_threshold_ratio"),
        pl.lit(None, pl.Float64),
    )  # fmt: skip
    never = pl.lit(None, pl.Datetime("us", "UTC"))
    return pl.DataFrame(
        made, schema_overrides=dict.fromkeys(columns, pl.Boolean), orient="row"
    ).with_columns(
        pool=pl.lit("chat"), ever_seen=pl.lit(True), binding_since=never, deferred_since=never,
        **since,
    )  # fmt: skip


def live(
    rules: Sequence[Rule],
    of: Mapping[str, Minutes],
    minutes: int,
    many: int = 1,
    cuts: Sequence[int] = (),
    never: str = "",
) -> tuple[dict[str, Incident], list[Transition]]:
    """Live through the minutes, in pieces that end at ``cuts``; ``never`` never answered."""
    rows = table(of, many, minutes).with_columns(ever_seen=pl.col("instance") != f"{never}:8000")
    incidents: dict[str, Incident] = {}
    happened: list[Transition] = []
    bounds = [0, *sorted(cuts), minutes]
    for first, last in pairwise(bounds):
        span = (START + timedelta(minutes=first), START + timedelta(minutes=last))
        piece = rows.filter((pl.col("end") > span[0]) & (pl.col("end") <= span[1]))
        if piece.is_empty():
            continue
        verdicts = piece.select(rule.verdict.alias(rule.id) for rule in rules)
        incidents, told = advanced(rules, incidents, targets(many), piece, verdicts)
        happened += told
    return incidents, happened


def told(happened: Sequence[Transition]) -> list[tuple[str, str, int]]:
    """Alert@where, event, minute."""
    return [
        (
            f"{t.incident.alert}@{t.incident.target.get('instance', 'pool').split(':')[0]}",
            t.event,
            round((t.at - START).total_seconds() / 60),
        )
        for t in happened
    ]


def test_until_keeps_it_open_and_unknown_keeps_it_too() -> None:
    slow = {"slower_at_equal_load": [T, F, U, F, F], "speed_recovered": [F, F, U, U, T]}
    _, happened = live([SLOW], {"s0": slow}, 5)
    assert told(happened) == [("SlowerAtEqualLoad@s0", "firing", 1),
                              ("SlowerAtEqualLoad@s0", "resolved", 5)]  # fmt: skip


def test_until_says_nothing_of_what_does_not_fire() -> None:
    slow = {"slower_at_equal_load": [T, F, F], "speed_recovered": [F, F, F]}
    waiting = replace(SLOW, for_seconds=120.0)
    assert live([waiting], {"s0": slow}, 3) == ({}, [])


def test_until_keeps_what_only_waits_for_another() -> None:
    slow: Minutes = {
        "slower_than_pool": [*[T] * 5, F],
        "slower_at_equal_load": [F, T, F],
        "speed_recovered": [F],
    }
    (_, waiting) = live([SLOW, REPLICA], {"s0": slow}, 4)[0].values()
    assert (waiting.alert, waiting.state) == ("SlowerAtEqualLoad", "pending")
    told_later = told(live([SLOW, REPLICA], {"s0": slow}, 30)[1])
    assert told_later[-1] == ("SlowerAtEqualLoad@s0", "firing", 21)  # still slow after the other


def test_a_pool_is_over_when_all_of_it_is() -> None:
    first = {"slower_at_equal_load": [T, F], "speed_recovered": [F, T]}
    last = {"slower_at_equal_load": [T, F], "speed_recovered": [F, F, F, T]}
    _, happened = live([PER_POOL], {"s0": first, "s1": last}, 6, many=2)
    assert told(happened) == [("SlowerAtEqualLoad@pool", "firing", 1),
                              ("SlowerAtEqualLoad@pool", "resolved", 4)]  # fmt: skip


def test_a_pool_does_not_wait_for_who_never_answered() -> None:
    of: dict[str, Minutes] = {
        "s0": {"slower_at_equal_load": [T, F], "speed_recovered": [F, T]},
        "s1": {"slower_at_equal_load": [U], "speed_recovered": [U]},
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
        "speed_recovered": [F, F, F, F, T],
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
    limit = replace(REPLICA, id="Limit", alert="Limit", together=Group(0.3, 2, 1800.0))
    engine = replace(SLOW, inhibited_by=())
    slow: Minutes = {
        "slower_than_pool": [T],
        "slower_at_equal_load": [F, F, T],
        "speed_recovered": [F],
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
        "speed_recovered": [F, F, F, T],
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
        "speed_recovered": [F, F, U],
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


def _at(minute: int, recovered: int = 99) -> Minutes:
    seen = [minute <= m < recovered for m in range(100)]
    return {"slower_at_equal_load": seen, "speed_recovered": [not one for one in seen]}


def test_a_cause_that_a_pool_shares_is_one_page() -> None:
    of = {"s0": _at(0), "s1": _at(3), "s2": _at(5), "s3": _at(5), "s4": _at(9)}
    incidents, happened = live([TOGETHER], of, 20, many=8)
    assert told(happened) == [
        ("SlowerAtEqualLoad@s0", "firing", 1),
        ("SlowerAtEqualLoad@s1", "firing", 4),
        ("SlowerAtEqualLoad@pool", "firing", 6),  # instead of s2 and s3; s4 adds nothing
    ]
    page = happened[-1]
    assert [key.instance for key in page.concerned] == [f"s{i}:8000" for i in range(4)]
    assert [key.instance for key in page.told_before] == ["s0:8000", "s1:8000"]
    assert page.of_targets == 8
    assert page.incident.started_at == START - timedelta(minutes=9)  # the first one's ten minutes
    waiting = [i for i in incidents.values() if i.inhibited_by == "SlowerAtEqualLoad"]
    assert [i.target["instance"] for i in waiting] == ["s2:8000", "s3:8000", "s4:8000"]


def test_too_few_or_too_far_apart_are_pages_of_their_own() -> None:
    two = {"s0": _at(0), "s1": _at(0)}
    assert len(live([TOGETHER], two, 5, many=4)[1]) == 2
    of_ten = {f"s{i}": _at(0) for i in range(3)}
    assert told(live([TOGETHER], of_ten, 2, many=10)[1]) == [
        ("SlowerAtEqualLoad@pool", "firing", 1)
    ]
    assert len(live([TOGETHER], of_ten, 2, many=11)[1]) == 3  # 30 % of eleven are four
    assert len(live([TOGETHER], of_ten, 2, many=11, never="s10")[1]) == 1  # ten that ever answered
    apart = {"s0": _at(0), "s1": _at(20), "s2": _at(40)}
    assert len(live([TOGETHER], apart, 50, many=8)[1]) == 3
    for last, pages in ((29, 3), (30, 3)):  # within 30 min is one page of the pool
        ends = told(live([TOGETHER], {**apart, "s2": _at(last)}, 50, many=8)[1])
        assert (len(ends), "@pool" in ends[-1][0]) == (pages, last == 29)


def test_a_pools_page_ends_when_few_are_left_and_nobody_is_told_twice() -> None:
    of = {f"s{i}": _at(0, recovered=20 + i) for i in range(4)}
    incidents, happened = live([TOGETHER], of, 40, many=8)
    assert told(happened) == [
        ("SlowerAtEqualLoad@pool", "firing", 1),
        ("SlowerAtEqualLoad@pool", "resolved", 23),  # one of the three that are needed
    ]
    assert incidents == {}
    straggler = {**of, "s3": _at(0, recovered=60)}
    last = told(live([TOGETHER], straggler, 70, many=8)[1])[2:]
    assert last == [
        ("SlowerAtEqualLoad@s3", "firing", 38),
        ("SlowerAtEqualLoad@s3", "resolved", 61),
    ]


def test_members_that_leave_end_the_pools_page() -> None:
    of = {f"s{i}": _at(0) for i in range(4)}
    incidents, _ = live([TOGETHER], of, 2, many=8)
    gone = dict.fromkeys(list(targets(4)), "scaled down")
    left = {key: t for key, t in targets(8).items() if key not in gone}
    end = START + timedelta(minutes=3)
    incidents, told_of = closed_for([TOGETHER], incidents, left, gone, end)
    assert told_of == ()  # nobody was told of them one by one
    rows = table({}, 8, 4).filter(
        pl.col("end") > end, pl.col("instance").is_in([key.instance for key in left])
    )
    verdicts = rows.select(TOGETHER.verdict.alias(TOGETHER.id))
    incidents, happened = advanced([TOGETHER], incidents, left, rows, verdicts)
    assert told(happened) == [("SlowerAtEqualLoad@pool", "resolved", 4)]
    assert incidents == {}


def test_a_rule_that_speaks_for_pools_no_more_closes_their_page() -> None:
    incidents, _ = live([TOGETHER], {f"s{i}": _at(0) for i in range(4)}, 2, many=8)
    _, closed = closed_for([SLOW], incidents, targets(8), {}, START + timedelta(minutes=3))
    assert [t.reason for t in closed] == ["the rule is now per target"]


@pytest.mark.parametrize("seed", range(6))
def test_the_split_into_calls_changes_nothing(seed: int) -> None:
    chance = random.Random(seed)
    of = {
        f"s{i}": {
            name: [chance.choice([T, T, F, U]) for _ in range(60)]
            for name in ("slower_at_equal_load", "speed_recovered", "slower_than_pool")
        }
        for i in range(chance.randint(2, 6))
    }
    rules = [TOGETHER, replace(REPLICA, together=Group(0.5, 2, 600.0), keep_firing_for_seconds=120)]
    whole = live(rules, of, 60, many=7)
    assert whole[1]
    assert live(rules, of, 60, many=7, cuts=range(1, 60)) == whole
    assert live(rules, of, 60, many=7, cuts=chance.sample(range(1, 60), 5)) == whole
