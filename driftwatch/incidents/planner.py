"""Plans the messages about incidents: one pure function.

* A page goes to the receivers of the incident's rule, else of its pool, else to those that take its
  severity (:class:`Routes`). A receiver that a reload adds gets the pages of firing incidents.
* A silence holds back pages, repeats and updates. After it, receivers without the page get the
  page, the others one update.
* A page is repeated every :data:`REPEAT_AFTER` until somebody acknowledges it. An acknowledgement
  and its end are updates to the receivers of the page.
* While another alert inhibits an incident on all of its servers, only its resolve is sent.
* A resolve and a verdict go to the receivers that got the page or wait for it, also during a
  silence, so that nothing stays open there. The store withdraws a page that was not sent by then.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from driftwatch.incidents.delivery import Action, PlannedDelivery
from driftwatch.incidents.incident import Event, Incident, Transition
from driftwatch.incidents.silence import Silence, silenced_by
from driftwatch.model import Severity
from driftwatch.numbers import clean

# between two pages to one receiver, until somebody acknowledges; tickets and notices wait
REPEAT_AFTER = timedelta(hours=4)


@dataclass(frozen=True, slots=True)
class Subscription:
    """The severities that a receiver takes."""

    receiver: str  # name
    severities: tuple[Severity, ...] = ("page", "ticket")


@dataclass(frozen=True, slots=True)
class Route:
    """The receivers of an incident."""

    receivers: tuple[str, ...]  # by name
    why: str  # the deciding setting, in words
    # a page or ticket has no receiver; a notice needs none
    reaches_nobody: bool = False


# what a configuration without receivers may add
FIRST_RECEIVER = "receivers: [{name: oncall, slack: {webhook_url_file: slack.url}}]"


@dataclass(frozen=True, slots=True)
class Routes:
    """The configuration's receivers, by severity, pool and rule."""

    subscriptions: tuple[Subscription, ...] = ()  # every receiver there is
    of_rules: Mapping[str, Collection[str]] = field(default_factory=dict)  # rule id → receivers
    of_pools: Mapping[str, Collection[str]] = field(default_factory=dict)  # pool → receivers

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all receivers."""
        return tuple(one.receiver for one in self.subscriptions)

    def of(self, incident: Incident) -> Route:
        """Who gets its messages."""
        return self.of_alert(incident.severity, incident.rule, incident.pool)

    def of_alert(self, severity: Severity, rule: str = "", pool: str = "") -> Route:
        """The rule's receivers, else the pool's, else all; only those that take the severity."""
        taking = self.of_severity(severity)
        for names, why in (
            (self.of_rules.get(rule, ()), f"receivers of rule {rule}"),
            (self.of_pools.get(pool, ()), f"receivers of pool {pool}"),
        ):
            if there := tuple(dict.fromkeys(name for name in names if name in taking.receivers)):
                return Route(there, why)
        return taking

    def of_severity(self, severity: Severity) -> Route:
        """All receivers that take the severity."""
        taking = tuple(o.receiver for o in self.subscriptions if severity in o.severities)
        if taking or severity == "notice":
            return Route(taking, f"receivers that take {severity}s")
        return Route((), f"no receiver takes {severity}s", reaches_nobody=True)

    def why_not_sent(self, incident: Incident) -> str:
        """Why no receiver got its message, and what to set."""
        severity, receivers = incident.severity, self.of(incident).receivers
        if receivers:
            return f"{', '.join(receivers)} gets it from driftwatch run; a replay sends nothing"
        each = [f"{o.receiver} takes {'s, '.join(o.severities)}s" for o in self.subscriptions]
        if not each:
            return f"the configuration has no receivers: add {FIRST_RECEIVER}"
        return f"none takes {severity}s: {'; '.join(each)}. Add {severity} to the severities of one"


@dataclass(frozen=True, slots=True)
class OutboxRecord:
    """The messages of one event of one incident for one receiver, summed up."""

    subject: str  # incident id
    receiver: str
    event: str
    number: int  # the largest
    last_at: datetime  # when the last one was sent, else planned
    is_pending: bool = False  # at least one waits
    is_dead: bool = False  # all are dead


@dataclass(frozen=True, slots=True)
class Plan:
    """The planner's decisions."""

    # the given incidents, each with the silence that holds back its page
    open_incidents: Mapping[str, Incident]
    transitions: tuple[Transition, ...]  # the given transitions, likewise
    deliveries: tuple[PlannedDelivery, ...]  # in order
    planned_actions: tuple[int, ...] = ()  # numbers of the actions planned here


@dataclass(frozen=True, slots=True)
class MessageAbout:
    """The facts of a message beside the incident's page."""

    event: Event
    at: datetime  # when it is planned
    number: int = 0  # of this event for this receiver
    changed: str | None = None  # news that the page does not have


# (the incident with its page, the message) → payload
Render = Callable[[Incident, MessageAbout], Any]


def plan_deliveries(
    transitions: Iterable[Transition],
    routes: Routes,
    silences: Iterable[Silence],
    now: datetime,
    *,
    open_incidents: Mapping[str, Incident],
    records: Iterable[OutboxRecord] = (),
    actions: Iterable[Action] = (),
    render: Render = lambda incident, about: incident.page,
) -> Plan:
    """Plan the deliveries of one tick, or of people's actions between two ticks.

    Args:
        transitions: in order, each incident with its page.
        open_incidents: key → incident after the tick, with the store's acknowledgement.
        records: of these incidents and of those of the transitions.
        actions: acknowledgements, and their ends, without a message yet.

    Raises ValueError: an incident of a transition has no page.
    """
    draft = _Draft(routes, tuple(silences), now, records, render)
    marked = [draft.plan_transition(transition) for transition in transitions]
    by_id = {incident.id: incident for incident in open_incidents.values()}
    planned_actions = [draft.plan_action(one, by_id.get(one.incident_id or "")) for one in actions]
    fresh = {t.incident.id for t in marked if t.event == "firing"}
    after = {
        key: draft.plan_open_incident(incident, is_fresh=incident.id in fresh)
        for key, incident in sorted(open_incidents.items())
    }
    return Plan(after, tuple(marked), tuple(draft.deliveries), tuple(planned_actions))


class _Draft:
    """A plan in the making."""

    def __init__(
        self,
        routes: Routes,
        silences: Sequence[Silence],
        now: datetime,
        records: Iterable[OutboxRecord],
        render: Render,
    ) -> None:
        self._routes, self._silences, self._now, self._render = routes, silences, now, render
        self._names = frozenset(routes.names)
        # incident id → receiver → event → record; each planned delivery adds one
        self._records: dict[str, dict[str, dict[str, OutboxRecord]]] = {}
        for one in records:
            self._add(one)
        # incident id → the silence that holds back its page in this plan; None = none
        self._held: dict[str, str | None] = {}
        self._updates_held: set[str] = set()
        self.deliveries: list[PlannedDelivery] = []

    def plan_transition(self, transition: Transition) -> Transition:
        """Plan a transition; returns it with the silence that holds back its page."""
        incident, event = transition.incident, transition.event
        silence = self._silence(incident)
        if event == "firing":
            self._held[incident.id] = silence
            if silence is None:
                self._send(self._routes.of(incident).receivers, incident, event)
        else:
            if event != "updated" or silence is None:
                self._send(self._reached(incident), incident, event)
            else:
                self._updates_held.add(incident.id)
            silence = self._held.get(incident.id, incident.silenced_by)
        return replace(transition, incident=_with_silence(incident, silence))

    def plan_action(self, action: Action, incident: Incident | None) -> int:
        """Plan an update to those who got the page; none where the incident is over."""
        if incident is not None and incident.page is not None:
            what = "acknowledged" if action.action == "acknowledge" else "not acknowledged any more"
            changed = f"{what}, by {clean(action.by)}"
            comment = f": {clean(action.comment)}" if action.comment else ""
            self._send(self._reached(incident), incident, "updated", changed + comment)
        return action.id

    def plan_open_incident(self, incident: Incident, *, is_fresh: bool) -> Incident:
        """Plan missing pages and repeats; returns the incident with the silence of its page."""
        if not incident.is_firing:
            return _with_silence(incident, None)
        silence = self._silence(incident)
        self._held[incident.id] = silence
        if silence is None and incident.page is not None and incident.inhibited_by is None:
            if incident.silenced_by is not None:
                self._send(self._reached(incident), incident, "updated", "the silence is over")
            if incident.acknowledgement is None:
                self._send_owed(incident, is_fresh=is_fresh)
        # a silence made after the page holds back updates only
        is_held = is_fresh or incident.silenced_by is not None or incident.id in self._updates_held
        return _with_silence(incident, silence if is_held else None)

    def _send_owed(self, incident: Incident, *, is_fresh: bool) -> None:
        """Send the page to those who never got it, and repeat it to those who got it long ago."""
        if not is_fresh:
            receivers = self._routes.of(incident).receivers
            owed = [name for name in receivers if "firing" not in self._records_of(incident, name)]
            self._send(owed, incident, "firing")
        if incident.severity == "page":
            due = [name for name in sorted(self._names) if self._is_due(incident, name)]
            self._send(due, incident, "firing")

    def _is_due(self, incident: Incident, receiver: str) -> bool:
        """Whether the repeat to this receiver is due."""
        records = self._records_of(incident, receiver)
        if "firing" not in records or records["firing"].is_pending:
            return False
        last = max(records[event].last_at for event in ("firing", "updated") if event in records)
        return self._now - last >= REPEAT_AFTER

    def _records_of(self, incident: Incident, receiver: str) -> Mapping[str, OutboxRecord]:
        return self._records.get(incident.id, {}).get(receiver, {})

    def _reached(self, incident: Incident) -> list[str]:
        """Receivers that got its page or wait for it."""
        of = self._records.get(incident.id, {})
        pages = {name: events["firing"] for name, events in of.items() if "firing" in events}
        return [n for n, page in pages.items() if n in self._names and not page.is_dead]

    def _silence(self, incident: Incident) -> str | None:
        return silenced_by(incident, self._silences, self._now)

    def _add(self, one: OutboxRecord) -> None:
        of = self._records.setdefault(one.subject, {}).setdefault(one.receiver, {})
        of[one.event] = one

    def _send(
        self,
        receivers: Iterable[str],
        incident: Incident,
        event: Event,
        changed: str | None = None,
    ) -> None:
        if incident.page is None:
            raise ValueError(f"incident {incident.id} has a message and no page")
        payloads: dict[int, Any] = {}
        for name in sorted(receivers):
            before = self._records_of(incident, name).get(event)
            number = 0 if before is None else before.number + 1
            if number not in payloads:
                about = MessageAbout(event, self._now, number, changed)
                payloads[number] = self._render(incident, about)
            self.deliveries.append(
                PlannedDelivery(
                    subject=incident.id,
                    event=event,
                    receiver=name,
                    payload=payloads[number],
                    planned_at=self._now,
                    number=number,
                )
            )
            self._add(OutboxRecord(incident.id, name, event, number, self._now, is_pending=True))


def _with_silence(incident: Incident, silence: str | None) -> Incident:
    return incident.model_copy(update={"silenced_by": silence})
