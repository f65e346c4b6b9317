"""An outbox in memory: what the planner planned, as it reads it back."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

from driftwatch.incidents.delivery import Action, ActionName, PlannedDelivery
from driftwatch.incidents.incident import Incident, Transition
from driftwatch.incidents.planner import OutboxRecord, Plan, Routes, Subscription, plan_deliveries
from driftwatch.incidents.silence import Silence, parse_matchers
from driftwatch.model import Severity

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
HOUR = timedelta(hours=1)
MINUTE = timedelta(minutes=1)
ONCALL = Subscription("oncall", ("page",))
BOSS = Subscription("boss", ())


def firing(name: str = "a", severity: Severity = "page") -> Incident:
    return Incident(
        id=name * 12,
        key=f"X{{instance={name}}}",
        rule="X",
        alert="X",
        severity=severity,
        target={"instance": name},
        state="firing",
        started_at=NOW - HOUR,
        last_true_at=NOW,
        firing_at=NOW,
        page={"event": "firing", "instance": name},
    )


def silence(
    matcher: str = "alert=X", id_: str = "quiet", hours: float = 1, after_hours: float = 0
) -> Silence:
    starts_at = NOW + after_hours * HOUR
    until = starts_at + hours * HOUR
    return Silence(id_, parse_matchers([matcher]), until, "Ana", NOW, starts_at)


def records_of(deliveries: Iterable[PlannedDelivery]) -> list[OutboxRecord]:
    """As the store groups them: taken at once."""
    return [
        OutboxRecord(
            *(one.subject, one.receiver, one.event),
            *(one.number, one.planned_at, one.planned_at, one.planned_at),
        )
        for one in deliveries
    ]


@dataclass
class Pager:
    """A service without its pipeline: incidents, an outbox, and what people do."""

    routes: Routes = field(default_factory=lambda: Routes((ONCALL, BOSS)))
    silences: list[Silence] = field(default_factory=list)
    incidents: dict[str, Incident] = field(default_factory=dict)
    outbox: list[PlannedDelivery] = field(default_factory=list)
    pending: set[str] = field(default_factory=set)  # receivers that take nothing
    dead: set[str] = field(default_factory=set)  # receivers of whom every page was given up
    actions: list[Action] = field(default_factory=list)

    def tick(self, hours: float, *transitions: Transition) -> Plan:
        """Plan and commit; returns the plan."""
        now = NOW + hours * HOUR
        for one in transitions:
            if one.event == "resolved":
                self.incidents.pop(one.incident.key, None)
            else:
                self.incidents[one.incident.key] = one.incident
        plan = plan_deliveries(
            transitions,
            self.routes,
            self.silences,
            now,
            open_incidents=self.incidents,
            records=[
                replace(
                    one,
                    is_pending=one.receiver in self.pending,
                    is_dead=one.receiver in self.dead,
                )
                for one in records_of(self.outbox)
            ],
            actions=self.actions,
        )
        keys = [(d.kind, d.subject, d.event, d.number, d.receiver) for d in self.outbox]
        keys += [(d.kind, d.subject, d.event, d.number, d.receiver) for d in plan.deliveries]
        assert len(keys) == len(set(keys)), "planned twice"
        self.outbox += plan.deliveries
        self.incidents = dict(plan.open_incidents)
        self.actions = [a for a in self.actions if a.id not in plan.planned_actions]
        return plan

    def fire(self, hours: float = 0, name: str = "a", severity: Severity = "page") -> Plan:
        at = NOW + hours * HOUR
        incident = replace(firing(name, severity), firing_at=at, last_true_at=at)
        return self.tick(hours, Transition(incident, "firing", at))

    def resolve(self, hours: float, name: str = "a") -> Plan:
        at = NOW + hours * HOUR
        incident = next(i for i in self.incidents.values() if i.id == name * 12)
        over = replace(incident, state="resolved", resolved_at=at)
        return self.tick(hours, Transition(over, "resolved", at))

    def act(self, action: ActionName, hours: float) -> None:
        """What the store does."""
        at = NOW + hours * HOUR
        (incident,) = self.incidents.values()
        number = 1 + sum(one.event.endswith("acknowledged") for one in self.outbox)
        self.actions.append(
            Action(number + len(self.actions), incident.id, action, at, "Ana", "", "slack")
        )
        is_mine = action == "acknowledge"
        self.incidents[incident.key] = replace(
            incident,
            acknowledged_at=at if is_mine else None,
            acknowledged_by="Ana" if is_mine else None,
            acknowledged_comment=None,
        )

    def sent(self, plan: Plan) -> list[tuple[str, str, str, int]]:
        return [(d.receiver, d.event, d.reason, d.number) for d in plan.deliveries]
