"""Who receives which message: stories of one incident, with an outbox in memory."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

import pytest
from made_incidents import NOON, incident_of, with_values
from page_cases import CAP

from driftwatch.incidents.delivery import Action, ActionName, PlannedDelivery
from driftwatch.incidents.incident import Incident, Transition
from driftwatch.incidents.planner import OutboxRecord, Plan, Routes, Subscription, plan_deliveries
from driftwatch.incidents.silence import Silence, parse_matchers
from driftwatch.model import Severity
from driftwatch.notify.page import Acknowledgement

NOW = NOON
PAGE = CAP.page()
HOUR = timedelta(hours=1)
# the usual receivers: one for pages, one for everything, one that only rules and pools name
ONCALL = Subscription("oncall", ("page",))
LOG = Subscription("log", ("page", "ticket", "notice"))
BOSS = Subscription("boss", ())


def firing(name: str = "a", severity: Severity = "page", pool: str = "p") -> Incident:
    return incident_of(name, pool=pool, servers=(name,), at=NOW, severity=severity, page=PAGE)


def silence(
    matcher: str = "alert=X", id_: str = "quiet", hours: float = 1, after_hours: float = 0
) -> Silence:
    starts_at = NOW + after_hours * HOUR
    until = starts_at + hours * HOUR
    rest = {"created_by": "Ana", "created_at": NOW, "starts_at": starts_at}
    return Silence(id=id_, matchers=parse_matchers([matcher]), until=until, **rest)


@dataclass
class Pager:
    """Plans and commits; asserts that nothing is planned twice."""

    routes: Routes = field(default_factory=lambda: Routes((ONCALL, BOSS)))
    silences: list[Silence] = field(default_factory=list)
    incidents: dict[str, Incident] = field(default_factory=dict)
    outbox: list[PlannedDelivery] = field(default_factory=list)
    pending: set[str] = field(default_factory=set)  # receivers that take nothing
    dead: set[str] = field(default_factory=set)  # receivers of whom every page was given up
    actions: list[Action] = field(default_factory=list)

    def tick(self, hours: float, *transitions: Transition) -> Plan:
        for one in transitions:
            if one.event == "resolved":
                self.incidents.pop(one.incident.key, None)
            else:
                self.incidents[one.incident.key] = one.incident
        plan = plan_deliveries(
            transitions,
            self.routes,
            self.silences,
            NOW + hours * HOUR,
            open_incidents=self.incidents,
            records=map(self._record, self.outbox),
            actions=self.actions,
        )
        self.outbox += plan.deliveries
        keys = [(d.subject, d.event, d.number, d.receiver) for d in self.outbox]
        assert len(keys) == len(set(keys)), "planned twice"
        self.incidents = dict(plan.open_incidents)
        self.actions = [a for a in self.actions if a.id not in plan.planned_actions]
        return plan

    def _record(self, one: PlannedDelivery) -> OutboxRecord:
        """As the store groups them: taken at once."""
        pending, dead = one.receiver in self.pending, one.receiver in self.dead
        about = (one.subject, one.receiver, one.event, one.number, one.planned_at)
        return OutboxRecord(*about, pending, dead)

    def does(self, what: str, hours: float) -> Plan:
        """One step: ``fire``, ``fire ticket``, ``update``, ``resolve``, ``ack``, ``unack``; or time
        passes.
        """
        at = NOW + hours * HOUR
        verb, _, severity = what.partition(" ")
        if verb == "fire":
            incident = firing("a", severity or "page")  # type: ignore[arg-type]
            return self.tick(hours, Transition(incident, "firing", at))
        incident = next(iter(self.incidents.values()), firing())
        if verb == "resolve":
            over = with_values(incident, resolved_at=at)
            return self.tick(hours, Transition(over, "resolved", at))
        if verb == "update":
            return self.tick(hours, Transition(incident, "updated", at))
        if verb in ("ack", "unack"):
            self.act("acknowledge" if verb == "ack" else "unacknowledge", at)
        return self.tick(hours)

    def act(self, action: ActionName, at: datetime) -> None:
        """What the store does."""
        (incident,) = self.incidents.values()
        number = len(self.outbox) + len(self.actions) + 1
        self.actions.append(Action(number, incident.id, action, at, "Ana", "", "slack"))
        by = Acknowledgement(by="Ana", at=at) if action == "acknowledge" else None
        self.incidents[incident.key] = with_values(incident, acknowledgement=by)


def sent(plan: Plan) -> str:
    """``log firing, oncall firing 1``: receiver, event and number, in order."""
    texts = (f"{d.receiver} {d.event} {d.number or ''}".strip() for d in plan.deliveries)
    return ", ".join(texts)


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
    because = routes.why_not_sent(firing("a", severity, pool))
    assert because.startswith(
        receivers.replace(" ", ", ") or f"none takes {severity}s: boss takes "
    )
    assert routed.reaches_nobody is (not receivers and severity != "notice")
