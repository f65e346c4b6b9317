"""A service without its pipeline: incidents, an outbox in memory, and what people do."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta

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
