"""Who is told what, and why: one pure function from state changes to planned deliveries.

* A firing incident is told to the receivers that its rule names, else to every one of its
  severity: reason ``first``.
* Where a silence matches, nothing is planned and the incident names the silence. When the silence
  is over and the incident still fires, the page goes out then: reason ``silence ended``.
* A follow-up (advice that came after the page, the verdict on the change that it advised) goes to
  the receivers of the firing page as well; advice not while a silence matches: it asks for
  something.
* A resolve goes to the receivers that its firing page went to, and to no other: reason
  ``resolved``. It is sent although a silence may match by then, so that nothing stays open at
  the receiver.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Literal

from driftwatch.model import Event, Incident, Severity, Transition
from driftwatch.notify.silence import Silence, silenced_by

Reason = Literal["first", "silence ended", "advised", "verified", "resolved"]
DeliveryStatus = Literal["pending", "sent", "dead"]


@dataclass(frozen=True, slots=True)
class PlannedDelivery:
    """One page to one receiver; (incident, event, receiver) is planned once, ever."""

    incident_id: str  # which incident
    event: Event  # firing, advised, verified or resolved
    receiver: str  # the receiver's name, never its URL
    reason: Reason  # why it is sent
    payload: Mapping[str, Any]  # the page as JSON
    planned_at: datetime  # from when it may be sent


@dataclass(frozen=True, slots=True)
class Delivery:
    """A planned delivery in the outbox, and how far it got."""

    id: int  # number in the outbox, of a page or of a report
    incident_id: str  # of a report its week
    event: Event | Literal["report"]
    receiver: str
    reason: Reason
    payload: Mapping[str, Any]
    planned_at: datetime
    status: DeliveryStatus  # pending, sent, or dead (given up; it stays counted as undelivered)
    attempts: int  # attempts made
    next_attempt_at: datetime | None  # when to try next, None unless pending
    last_attempt_at: datetime | None  # when it was tried last, None before
    last_error: str | None  # why the last attempt failed
    sent_at: datetime | None  # when a receiver took it


@dataclass(frozen=True, slots=True)
class Plan:
    """What the planner decided."""

    # the incidents it was given, each naming the silence that holds it back
    open_incidents: Mapping[str, Incident]
    transitions: tuple[Transition, ...]  # the same for the transitions it was given
    deliveries: tuple[PlannedDelivery, ...]  # what to send, ordered by time, incident and receiver


def plan_deliveries(
    transitions: Iterable[Transition],
    receivers: Iterable[tuple[str, Collection[Severity]]],
    silences: Iterable[Silence],
    now: datetime,
    *,
    open_incidents: Mapping[str, Incident],
    notified: Collection[tuple[str, str]],
    of_rules: Mapping[str, Collection[str]] | None = None,
) -> Plan:
    """Plan the deliveries of one tick.

    ``transitions``: in order, each incident with its page; ``receivers``: (name, severities it
    wants); ``open_incidents``: key → incident after the tick; ``notified``: (incident id, receiver)
    whose firing page is in the outbox and not given up; ``of_rules``: rule id → the receivers that
    it names, whatever severities they take; where none of them is there, those of the severity.
    Raises ValueError: an incident has no page.
    """
    routes = [(name, frozenset(severities)) for name, severities in receivers]
    chosen = of_rules or {}
    silences = tuple(silences)
    delivered = set(notified)
    planned: list[PlannedDelivery] = []
    silence_of: dict[str, str] = {}  # incident id → silence, for those that fired in this tick
    marked: list[Transition] = []
    for transition in transitions:
        incident = transition.incident
        if transition.event == "resolved":
            names = [name for name, _ in routes if (incident.id, name) in delivered]
            planned += _to(names, incident, "resolved", "resolved", now)
        elif transition.event != "firing":
            asks = transition.event == "advised"
            if not (asks and silenced_by(incident, silences, now)):
                names = [name for name, _ in routes if (incident.id, name) in delivered]
                planned += _to(names, incident, transition.event, transition.event, now)
        elif (silence := silenced_by(incident, silences, now)) is not None:
            silence_of[incident.id] = silence
        else:
            names = _first_told(incident, routes, chosen.get(incident.rule, ()))
            delivered |= {(incident.id, name) for name in names}
            planned += _to(names, incident, "firing", "first", now)
        quiet = silence_of.get(incident.id, incident.silenced_by)
        marked.append(replace(transition, incident=replace(incident, silenced_by=quiet)))
    after: dict[str, Incident] = {}
    for key, incident in sorted(open_incidents.items()):
        silence = silence_of.get(incident.id)
        if silence is None and incident.state == "firing" and incident.silenced_by is not None:
            silence = silenced_by(incident, silences, now)
            if silence is None:
                names = _first_told(incident, routes, chosen.get(incident.rule, ()))
                planned += _to(names, incident, "firing", "silence ended", now)
        after[key] = replace(incident, silenced_by=silence)
    return Plan(open_incidents=after, transitions=tuple(marked), deliveries=tuple(planned))


def _first_told(
    incident: Incident,
    routes: Sequence[tuple[str, Collection[Severity]]],
    chosen: Collection[str],
) -> list[str]:
    """Who gets the firing page."""
    named = [name for name, _ in routes if name in chosen]
    return named or [name for name, wanted in routes if incident.severity in wanted]


def _to(
    names: Iterable[str], incident: Incident, event: Event, reason: Reason, now: datetime
) -> list[PlannedDelivery]:
    if incident.page is None:
        raise ValueError(f"incident {incident.id} is to be told of and its page is not rendered")
    return [
        PlannedDelivery(
            incident_id=incident.id,
            event=event,
            receiver=name,
            reason=reason,
            payload=incident.page,
            planned_at=now,
        )
        for name in sorted(names)
    ]
