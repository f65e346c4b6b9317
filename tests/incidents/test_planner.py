"""Who receives which message: stories of one incident, then what holds for any story."""

from __future__ import annotations

from dataclasses import replace

import pytest
from made_incidents import with_values
from planning_cases import BOSS, LOG, NOW, ONCALL, Pager, firing, sent, silence

from driftwatch.incidents.incident import Transition
from driftwatch.incidents.planner import Routes, Subscription
from driftwatch.incidents.silence import Silence
from driftwatch.model import Severity

BOTH = Routes((ONCALL, LOG))
HIDDEN = silence(hours=6, after_hours=0.2)


def with_end(one: Silence) -> Silence:
    return one.model_copy(update={"expired_at": NOW})


Steps = list[tuple[float, str, str]]

# name → (the pager, steps: hours, what happens, what is planned)
STORIES: dict[str, tuple[Pager, Steps]] = {
    "a page goes to every receiver of its severity, once": (
        Pager(BOTH),
        [(0, "fire", "log firing, oncall firing"), (1, "", "")],
    ),
    "it is repeated every four hours": (
        Pager(),
        [
            (0, "fire", "oncall firing"),
            (3.99, "", ""),
            (4.5, "", "oncall firing 1"),
            (8.4, "", ""),
            (8.5, "", "oncall firing 2"),
        ],
    ),
    "an update takes the place of a repeat": (
        Pager(),
        [
            (0, "fire", "oncall firing"),
            (3, "update", "oncall updated"),
            (4, "update", "oncall updated 1"),
            (7.9, "", ""),
            (8, "", "oncall firing 1"),
        ],
    ),
    "a ticket is not repeated": (Pager(BOTH), [(0, "fire ticket", "log firing"), (99, "", "")]),
    "a notice is not repeated": (Pager(BOTH), [(0, "fire notice", "log firing"), (99, "", "")]),
    "a receiver that is down gathers one page": (
        Pager(pending={"oncall"}),
        [(0, "fire", "oncall firing"), (4, "", ""), (8, "", "")],
    ),
    "an acknowledgement is an update, and stops repeats until its end": (
        Pager(BOTH),
        [
            (0, "fire", "log firing, oncall firing"),
            (0.7, "ack", "log updated, oncall updated"),
            (50, "update", "log updated 1, oncall updated 1"),
            (100, "", ""),
            (113, "unack", "log updated 2, oncall updated 2"),
            (116.9, "", ""),
            (117, "", "log firing 1, oncall firing 1"),
        ],
    ),
    "who never got the page gets nothing after it": (
        Pager(BOTH, dead={"oncall"}),
        [
            (0, "fire", "log firing, oncall firing"),
            (0.7, "ack", "log updated"),
            (1, "resolve", "log resolved"),
        ],
    ),
    "a silenced page goes out once when no silence matches": (
        Pager(silences=[silence(), silence(id_="second", after_hours=0.5)]),
        [
            (0, "fire", ""),
            (0.5, "", ""),
            (1, "", ""),
            (1.2, "update", ""),
            (1.5, "", "oncall firing"),
            (2, "", ""),
        ],
    ),
    "fired and resolved in silence: nothing": (
        Pager(silences=[silence()]),
        [(0, "fire", ""), (0.5, "resolve", "")],
    ),
    "a later silence holds back updates and repeats, not the resolve": (
        Pager(silences=[HIDDEN]),
        [
            (0, "fire", "oncall firing"),
            (1, "update", ""),
            (5, "", ""),
            (6.21, "", "oncall updated"),
            (10.21, "", "oncall firing 1"),
            (10.3, "resolve", "oncall resolved"),
        ],
    ),
    "a later silence that held nothing back ends without a word": (
        Pager(silences=[silence(after_hours=0.2)]),
        [(0, "fire", "oncall firing"), (1, "", ""), (2, "", ""), (4, "", "oncall firing 1")],
    ),
    "a silence of something else holds nothing back": (
        Pager(silences=[silence("alert=Y"), silence(hours=0)]),
        [(0, "fire", "oncall firing")],
    ),
    "a silence that a person ended": (
        Pager(silences=[with_end(silence())]),
        [(0, "fire", "oncall firing")],
    ),
}


@pytest.mark.parametrize("name", STORIES)
def test_story(name: str) -> None:
    pager, steps = STORIES[name]
    told = []
    for hours, what, _ in steps:
        # a new process has what is stored and nothing else
        pager = replace(pager, incidents=dict(pager.incidents), outbox=list(pager.outbox))
        told.append((hours, what, sent(pager.does(what, hours))))
        assert sent(pager.tick(hours)) == "", "planned again at the same time"
    assert told == steps


def test_the_silence_that_holds_a_page_back_is_named() -> None:
    pager = Pager(silences=[silence()])
    held = pager.does("fire", 0)
    assert held.transitions[0].incident.silenced_by == "quiet"
    assert next(iter(pager.incidents.values())).silenced_by == "quiet"
    pager.does("", 1)
    assert next(iter(pager.incidents.values())).silenced_by is None


def test_a_silence_of_one_server_holds_nothing_back_when_another_joins() -> None:
    pager = Pager(silences=[silence("instance=a", hours=9)])
    assert sent(pager.does("fire", 0)) == ""
    (key, one) = next(iter(pager.incidents.items()))
    joined = (*one.servers, *firing("b").servers)
    pager.incidents[key] = with_values(one, servers=joined)
    assert sent(pager.does("", 0.1)) == "oncall firing"


def test_one_that_another_alert_speaks_for_says_nothing_but_its_end() -> None:
    pager = Pager()
    pager.does("fire", 0)
    ((key, one),) = pager.incidents.items()
    pager.incidents[key] = with_values(one, inhibited_by="Y")
    assert sent(pager.does("", 5)) == ""
    assert sent(pager.does("resolve", 6)) == "oncall resolved"


def test_a_receiver_that_a_reload_adds_gets_what_fires() -> None:
    pager = Pager()
    pager.does("fire", 0)
    pager.routes = BOTH
    assert sent(pager.does("", 0.1)) == "log firing"


def test_fired_and_resolved_in_one_tick_is_planned_in_order() -> None:
    incident = firing()
    over = with_values(incident, resolved_at=NOW)
    pager = Pager()
    plan = pager.tick(0, Transition(incident, "firing", NOW), Transition(over, "resolved", NOW))
    assert sent(plan) == "oncall firing, oncall resolved"


def test_what_people_did_with_one_that_is_over_is_planned_for_nobody() -> None:
    pager = Pager()
    pager.does("fire", 0)
    pager.act("acknowledge", NOW)
    plan = pager.does("resolve", 0.1)
    assert sent(plan) == "oncall resolved"
    assert len(plan.planned_actions) == 1


RECEIVERS = (
    Subscription("oncall"),
    Subscription("lead", ("page",)),
    Subscription("team", ("ticket", "notice")),
    Subscription("log", ("notice",)),
)
RULES, POOLS = {"X": ("log",)}, {"a": ("team", "gone")}


@pytest.mark.parametrize(
    ("routes", "severity", "pool", "receivers", "why"),
    [
        # whoever names a receiver, it gets its severities alone; else the next road decides
        (Routes(RECEIVERS, RULES, POOLS), "notice", "a", "log", "receivers of rule X"),
        (Routes(RECEIVERS, RULES, POOLS), "ticket", "a", "team", "receivers of pool a"),
        (Routes(RECEIVERS, RULES, POOLS), "page", "a", "oncall lead", "receivers that take pages"),
        (Routes(RECEIVERS, {"X": ("lead",)}, POOLS), "page", "a", "lead", "receivers of rule X"),
        (Routes(RECEIVERS, {}, POOLS), "ticket", "b", "oncall team", "receivers that take"),
        (Routes(RECEIVERS, {}, POOLS), "page", "b", "oncall lead", "receivers that take pages"),
        (Routes(RECEIVERS), "ticket", "a", "oncall team", "receivers that take tickets"),
        (Routes(RECEIVERS, {"X": ("gone",)}), "page", "a", "oncall lead", "receivers that take"),
        (Routes(RECEIVERS), "notice", "a", "team log", "receivers that take notices"),
        (Routes(RECEIVERS, {"X": ("oncall", "log")}), "notice", "a", "log", "receivers of rule X"),
        (Routes((BOSS,)), "ticket", "a", "", "no receiver takes tickets"),
        (Routes((BOSS,)), "notice", "a", "", "receivers that take notices"),
    ],
)
def test_the_narrowest_route_wins(
    routes: Routes, severity: Severity, pool: str, receivers: str, why: str
) -> None:
    routed = routes.of(firing("a", severity, pool))
    assert " ".join(routed.receivers) == receivers
    assert routed.why.startswith(why)
    assert routed.reaches_nobody is (not receivers and severity != "notice")
