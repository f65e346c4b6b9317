"""Who is sent what, and why: one pure function from what happened to planned deliveries.

* A firing incident goes to the receivers that it is routed to
  (:class:`Routes`): reason ``first``. Whom it is owed is read from the outbox,
  so a receiver that a reload adds is sent what fires (``route changed``).
* While a silence matches (of a pool's incident: it, or each of its servers), nothing that asks for
  something is planned: no page, repeat or advice. What was held back goes out when no silence holds
  any more: ``silence ended``.
* An acknowledgement and its end go to those who got the page; while it holds, nothing is repeated
  or sent to somebody new. It holds until it is given back or the incident resolves.
* Until somebody acknowledges it the page is repeated.
* A resolve goes to those who got a page, also while pages are held back, so that nothing stays open
  at a receiver. So does the verdict on a change.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Literal

from driftwatch.incidents.delivery import (
    Acknowledgement,
    Action,
    MessageEvent,
    PlannedDelivery,
    Reason,
)
from driftwatch.incidents.incident import Incident, Transition
from driftwatch.incidents.silence import Silence, silenced_by
from driftwatch.model import Severity

# until somebody acknowledges it; a ticket and a notice wait
REPEAT_SECONDS: Mapping[Severity, float | None] = {
    "page": 4 * 3_600.0,
    "ticket": None,
    "notice": None,
}


@dataclass(frozen=True, slots=True)
class Subscription:
    """What a receiver takes."""

    receiver: str  # its name
    # used where no rule or pool names receivers; a notice needs `notice` here
    severities: tuple[Severity, ...] = ("page", "ticket")


@dataclass(frozen=True, slots=True)
class Routed:
    """Who is told of an incident."""

    receivers: tuple[str, ...]  # by name
    why: str  # what decided, in words
    repeat_seconds: float | None = None  # between two pages until acknowledged, None = no repeat
    # no receiver could be found for a page or ticket; a notice may go to nobody
    reaches_nobody: bool = False


@dataclass(frozen=True, slots=True)
class Routes:
    """The configuration's routing."""

    subscriptions: tuple[Subscription, ...] = ()  # every receiver there is
    of_rules: Mapping[str, Collection[str]] = field(default_factory=dict)  # rule id → receivers
    of_pools: Mapping[str, Collection[str]] = field(default_factory=dict)  # pool → receivers

    @property
    def names(self) -> tuple[str, ...]:
        """Every receiver there is."""
        return tuple(one.receiver for one in self.subscriptions)

    def of(self, incident: Incident) -> Routed:
        """Who is told of an incident."""
        severity, pool = incident.severity, incident.target.get("pool", "")
        for names, why in (
            (self.of_rules.get(incident.rule, ()), f"receivers of rule {incident.rule}"),
            (self.of_pools.get(pool, ()), f"receivers of pool {pool}"),
        ):
            if existing := self._existing(names):
                return self._routed(existing, severity, why)
        return self.of_severity(severity)

    def of_severity(self, severity: Severity) -> Routed:
        """Who takes the severity, else nobody."""
        taking = self._taking(severity)
        if taking or severity == "notice":
            return self._routed(taking, severity, f"receivers that take {severity}s")
        return Routed((), f"no receiver takes {severity}s", reaches_nobody=True)

    def _taking(self, severity: Severity) -> tuple[str, ...]:
        return tuple(one.receiver for one in self.subscriptions if severity in one.severities)

    def _existing(self, names: Iterable[str]) -> tuple[str, ...]:
        """The configured ones among them, each once: a rule may name others."""
        every = self.names
        return tuple(dict.fromkeys(name for name in names if name in every))

    def _routed(self, names: tuple[str, ...], severity: Severity, why: str) -> Routed:
        if severity == "notice":
            names = tuple(name for name in names if name in self._taking(severity))
        return Routed(names, why, REPEAT_SECONDS[severity])


@dataclass(frozen=True, slots=True)
class OutboxRecord:
    """What the outbox holds of one event about one incident, for one receiver."""

    subject: str  # incident id
    receiver: str
    event: str
    number: int  # largest number of them
    first_at: datetime  # when the first one was planned
    planned_at: datetime  # when the last one was planned
    last_at: datetime  # when the last one was sent, or planned where it is not sent yet
    is_pending: bool = False  # one of them is still to be sent
    is_dead: bool = False  # all of them were given up


class OutboxHistory:
    """Outbox records, found by what the planner asks; grows with what it plans."""

    def __init__(self, records: Iterable[OutboxRecord]) -> None:
        self._of: dict[tuple[str, str], list[OutboxRecord]] = {}
        for record in records:
            self.add(record)

    def add(self, record: OutboxRecord) -> None:
        """One more record; of the same event the later one counts beside the earlier."""
        self._of.setdefault((record.subject, record.event), []).append(record)

    def pages(self, incident_id: str, receiver: str | None = None) -> list[OutboxRecord]:
        """Records of the firing page, to one receiver or to all."""
        every = self._of.get((incident_id, "firing"), [])
        return [one for one in every if receiver in (None, one.receiver)]

    def receivers_of(self, incident_id: str) -> list[str]:
        """Who got the firing page, or will: it is not given up. By name."""
        return sorted({one.receiver for one in self.pages(incident_id) if not one.is_dead})

    def next_number(self, subject: str, receiver: str, event: str) -> int:
        """The number of the next message of this event: 0 for the first."""
        every = self._of.get((subject, event), ())
        return max((one.number for one in every if one.receiver == receiver), default=-1) + 1

    def given_back_at(self, incident_id: str) -> datetime | None:
        """When it was last planned to tell receivers that nobody has it any more."""
        every = self._of.get((incident_id, "unacknowledged"), ())
        return max((one.planned_at for one in every), default=None)


@dataclass(frozen=True, slots=True)
class Plan:
    """What the planner decided."""

    # the incidents it was given, each naming what holds its page back
    open_incidents: Mapping[str, Incident]
    transitions: tuple[Transition, ...]  # the same for the transitions it was given
    deliveries: tuple[PlannedDelivery, ...]  # what to send, in order
    planned_actions: tuple[int, ...] = ()  # numbers of the actions whose messages are among them


def plan_deliveries(
    transitions: Iterable[Transition],
    routes: Routes,
    silences: Iterable[Silence],
    now: datetime,
    *,
    open_incidents: Mapping[str, Incident],
    records: Iterable[OutboxRecord] = (),
    actions: Iterable[Action] = (),
) -> Plan:
    """Plan the deliveries of one tick, or of what people did between two.

    ``transitions``: in order, each incident with its page; ``routes``: who is sent what;
    ``silences``: those that hold or held, with when they ended; ``open_incidents``: key → incident
    after the tick, acknowledged as the store has it; ``records``: what the outbox holds of these
    incidents and of those of the transitions; ``actions``: what people did that nobody was told of.
    Raises ValueError: an incident of a transition has no page.
    """
    members: dict[str, list[Incident]] = {}
    for one in open_incidents.values():
        if one.part_of is not None:
            members.setdefault(one.part_of, []).append(one)
    by_end = sorted(silences, key=lambda silence: (silence.ends_at, silence.id))
    draft = _Draft(routes, by_end, now, OutboxHistory(records), members)
    marked = [draft.follow(transition) for transition in transitions]
    by_id = {incident.id: incident for incident in open_incidents.values()}
    planned_actions = [draft.act(action, by_id.get(action.incident_id or "")) for action in actions]
    fresh = {t.incident.id for t in marked if t.event == "firing"}
    after = {
        key: draft.advance(incident, is_fresh=incident.id in fresh)
        for key, incident in sorted(open_incidents.items())
    }
    return Plan(
        open_incidents=after,
        transitions=tuple(marked),
        deliveries=tuple(draft.deliveries),
        planned_actions=tuple(planned_actions),
    )


class _Draft:
    """A plan in the making."""

    def __init__(
        self,
        routes: Routes,
        silences: Sequence[Silence],
        now: datetime,
        history: OutboxHistory,
        members: Mapping[str, Sequence[Incident]],
    ) -> None:
        self._routes, self._silences, self._now = routes, silences, now
        self._history = history
        # key of a pool's incident → the incidents of servers that it speaks for
        self._members = members
        self._names = frozenset(routes.names)
        # incident id → silence that held the page that fired in this plan, None = none
        self._held: dict[str, str | None] = {}
        self._routed: dict[str, Routed] = {}
        self.deliveries: list[PlannedDelivery] = []

    def follow(self, transition: Transition) -> Transition:
        """What happened to one incident; gives it back, naming what holds its page back."""
        incident, event = transition.incident, transition.event
        silence = self._silenced_by(incident, self._now)
        if event == "firing":
            self._held[incident.id] = silence
            if silence is None:
                self._send(self._route(incident).receivers, incident, "firing", "first")
        elif event != "advised" or silence is None:
            state = Acknowledgement.of_incident(incident)
            self._send(self._reached(incident), incident, event, event, state)
        if event != "firing":
            silence = self._held.get(incident.id, incident.silenced_by)
        return replace(transition, incident=replace(incident, silenced_by=silence))

    def act(self, action: Action, incident: Incident | None) -> int:
        """Tell who got the page; of an incident that is over there is nothing to tell."""
        if incident is not None and incident.page is not None:
            name: Literal["acknowledged", "unacknowledged"] = f"{action.action}d"  # type: ignore[assignment]
            occasion = Acknowledgement.of_action(action)
            self._send(self._reached(incident), incident, name, name, occasion)
        return action.id

    def advance(self, incident: Incident, *, is_fresh: bool) -> Incident:
        """What the time that passed brings to one open incident."""
        if incident.state != "firing":
            return replace(incident, silenced_by=None)
        silence = self._silenced_by(incident, self._now)
        self._held[incident.id] = silence
        is_told_of = silence is None and incident.page is not None
        if is_told_of and incident.acknowledged_at is None:
            self._send_owed(incident, is_fresh=is_fresh)
            self._repeat(incident)
        # one that was sent before is not marked: nothing of it is owed when the silence ends
        is_held = is_fresh or incident.is_quiet
        return replace(incident, silenced_by=silence if is_held else None)

    def _send_owed(self, incident: Incident, *, is_fresh: bool) -> None:
        """The page, to whom it was never sent."""
        if is_fresh:
            return
        names = [
            name
            for name in self._route(incident).receivers
            if not self._history.pages(incident.id, name)
        ]
        reason: Reason = "first"
        if incident.is_quiet:
            reason = "silence ended"
        elif self._history.pages(incident.id):
            reason = "route changed"
        self._send(names, incident, "firing", reason)

    def _repeat(self, incident: Incident) -> None:
        seconds = self._route(incident).repeat_seconds
        if seconds is None:
            return
        history = self._history
        given_back = history.given_back_at(incident.id)
        due = []
        for name in sorted(self._names):
            pages = history.pages(incident.id, name)
            if not pages or any(one.is_pending for one in pages):
                continue
            last = max(one.last_at for one in pages)
            begins = last if given_back is None else max(last, given_back)
            if self._now - begins >= timedelta(seconds=seconds):
                due.append(name)
        self._send(due, incident, "firing", "repeat")

    def _reached(self, incident: Incident) -> list[str]:
        """Who got its page, of those that there are."""
        return [name for name in self._history.receivers_of(incident.id) if name in self._names]

    def _route(self, incident: Incident) -> Routed:
        if incident.id not in self._routed:
            self._routed[incident.id] = self._routes.of(incident)
        return self._routed[incident.id]

    def _silenced_by(self, incident: Incident, at: datetime) -> str | None:
        """Id of the silence of an incident, or of the first to end where each server has one."""
        by = silenced_by(incident, self._silences, at)
        members = self._members.get(incident.key, ())
        if by is not None or not members:
            return by
        each = {silenced_by(one, self._silences, at) for one in members}
        ids = (one.id for one in self._silences if one.id in each)
        return None if None in each else next(ids)

    def _send(
        self,
        names: Iterable[str],
        incident: Incident,
        event: MessageEvent,
        reason: Reason,
        occasion: Acknowledgement | None = None,
    ) -> None:
        if incident.page is None:
            raise ValueError(f"incident {incident.id} is to be sent and its page is not rendered")
        for name in sorted(names):
            at, number = self._now, self._history.next_number(incident.id, name, event)
            self.deliveries.append(
                PlannedDelivery(
                    subject=incident.id,
                    event=event,
                    receiver=name,
                    reason=reason,
                    payload=incident.page,
                    planned_at=at,
                    number=number,
                    occasion=occasion,
                )
            )
            planned = OutboxRecord(incident.id, name, event, number, at, at, at, is_pending=True)
            self._history.add(planned)
