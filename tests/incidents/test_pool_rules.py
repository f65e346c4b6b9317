"""Rules in a pool: one incident each, and which of two causes speaks."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from minute_rows import (
    DRIFT,
    FULL,
    SLOW,
    START,
    WAVE,
    Minutes,
    concerned,
    lived,
    rule_of,
    targets,
    told,
)

from driftwatch.pipeline import incidents as pipeline
from driftwatch.pipeline.incidents import close_departed
from driftwatch.rulebook.rules import Override, Rule

FULL_AND_MISSED = {"limit_full": "s", "target_missed": "T"}
OVERLOAD: Minutes = {f"s{i}": FULL_AND_MISSED for i in range(4)}
IS_SLOW = {"slower_at_equal_load": "T"}


@pytest.mark.parametrize(
    ("name", "rules", "of", "events", "counted"),
    [
        (
            "a slow engine silences its own server only",
            [SLOW, FULL],
            {**OVERLOAD, "s0": {**FULL_AND_MISSED, **IS_SLOW}},
            ["1 firing Full", "1 firing Slow"],
            {"Full": "s1 s2 s3", "Slow": "s0"},
        ),
        (
            "alone it speaks for both",
            [FULL, SLOW],
            {"s0": {**FULL_AND_MISSED, **IS_SLOW}},
            ["1 firing Slow"],
            {"Full": "", "Slow": "s0"},
        ),
        (
            "it comes later: the batch says nothing more of it",
            [SLOW, FULL],
            {**OVERLOAD, "s0": {**FULL_AND_MISSED, "slower_at_equal_load": "FFT"}},
            ["1 firing Full", "3 firing Slow"],
            {"Full": "s1 s2 s3", "Slow": "s0"},
        ),
        (
            "traffic is the pool's: of two names of one cause the first speaks",
            [DRIFT, FULL],
            {**OVERLOAD, "s0": {**FULL_AND_MISSED, "lengths_moved": "T"}},
            ["1 firing Drift"],
            {"Drift": "s0", "Full": ""},
        ),
        (
            "and the one that fires first stays",
            [DRIFT, FULL],
            {**OVERLOAD, "s0": {**FULL_AND_MISSED, "lengths_moved": "FFT"}},
            ["1 firing Full"],
            {"Drift": "", "Full": "s0 s1 s2 s3"},
        ),
        (
            "a notice folds into any page of its pool",
            [SLOW, WAVE],
            {"s0": IS_SLOW, "s1": {"requests_wait": "T"}},
            ["1 firing Slow"],
            {"Slow": "s0", "Wave": ""},
        ),
        (
            "a ticket silences no page",
            [SLOW.model_copy(update={"severity": "ticket"}), FULL],
            {"s0": {**FULL_AND_MISSED, **IS_SLOW}},
            ["1 firing Full", "1 firing Slow"],
            {"Full": "s0", "Slow": "s0"},
        ),
    ],
)
def test_two_causes(
    name: str, rules: list[Rule], of: Minutes, events: list[str], counted: dict[str, str]
) -> None:
    whole = lived(rules, of, 4, 6)
    assert (told(whole[1]), concerned(whole[0])) == (events, counted), name
    assert lived(rules, of, 4, 6, [1, 2, 4]) == whole, "the length of a tick changes nothing"


def test_what_waited_for_another_fires_when_that_is_over() -> None:
    of = {"s0": {**FULL_AND_MISSED, "slower_at_equal_load": "TTTF"}}
    _, happened, _ = lived([SLOW, FULL], of, 1, 30)
    assert told(happened) == ["1 firing Slow", "4 resolved Slow", "18 firing Full"]


def test_a_notice_folds_into_what_is_just_over() -> None:
    """The backlog after a hang belongs to the hang; a page is sent all the same."""
    of = {"s0": {"slower_at_equal_load": "TTTF", "requests_wait": "FFFFT" + "T" * 14 + "F"}}
    assert told(lived([SLOW, WAVE], of, 1, 40, [3, 4, 6])[1]) == [
        "1 firing Slow",
        "4 resolved Slow",
    ]
    later = {"s0": {**of["s0"], "requests_wait": "F" * 20 + "T"}}
    assert told(lived([SLOW, WAVE], later, 1, 25)[1])[2:] == ["21 firing Wave"]
    page = WAVE.model_copy(update={"severity": "page"})
    assert told(lived([SLOW, page], of, 1, 6)[1])[2:] == ["5 firing Wave"]


def test_target_missed_holds_whatever_until_says() -> None:
    rule = rule_of(
        "R", "requests_wait AND target_missed", until="NOT target_missed OR NOT requests_wait"
    )
    of = {"s0": {"requests_wait": "TF", "target_missed": "TTTF"}}
    _, happened, _ = lived([rule], of, 1, 6)
    assert told(happened) == ["1 firing R", "4 resolved R"]
    # unknown is no recovery
    of = {"s0": {"requests_wait": "TF", "target_missed": "T??????"}}
    assert told(lived([rule], of, 1, 6)[1]) == ["1 firing R"]


def test_looks_are_of_the_minutes_of_the_grid() -> None:
    _, _, refreshes = lived([FULL], OVERLOAD, 4, 25)
    assert [one.at.minute for one in refreshes] == [10, 20]
    assert all(one.incident.is_firing for one in refreshes)


END = START + timedelta(minutes=9)


def test_servers_that_leave_and_rules_that_go() -> None:
    incidents, _, _ = lived([FULL], OVERLOAD, 4, 3)
    (key,) = incidents
    every = targets(4)
    assert close_departed([FULL], incidents, every, {}, END) == (incidents, ())
    # after a restart no source has listed them yet
    assert close_departed([FULL], incidents, {}, {}, END) == (incidents, ())

    s0, *others = every
    moved = {**every, s0: replace(every[s0], pool="rag")}
    gone = dict.fromkeys(others, "the server is gone")
    after, ended = close_departed([FULL], incidents, moved, {}, END)
    assert ended == () and after[key].concerned == tuple(others)
    after, ended = close_departed([FULL], incidents, moved, gone, END)
    assert after == {}
    assert [(one.event, one.reason) for one in ended] == [("resolved", "the server is gone")]
    only = {s0: "the server is gone"}
    after, _ = close_departed([FULL], incidents, every, only, END)
    assert after[key].concerned == tuple(others)

    off = FULL.model_copy(update={"enabled": False, "reason": "too loud"})
    there = FULL.model_copy(update={"overrides": (Override(("chat",), off),)})
    for rules, why in (
        ([], pipeline.REMOVED),
        ([off], pipeline.DISABLED.format("too loud")),
        ([there], pipeline.NOW_OFF),
    ):
        after, ended = close_departed(rules, incidents, every, {}, END)
        assert (after, [one.reason for one in ended]) == ({}, [why])
