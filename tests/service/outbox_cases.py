"""Incidents, pages and receivers for tests of the outbox; the store is the real one."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import outbox
from fakes.manual_clock import ManualClock
from made_incidents import incident_of, with_values
from small_page import small_page

from driftwatch.errors import DeliveryError
from driftwatch.incidents.delivery import PlannedDelivery
from driftwatch.incidents.incident import Event, Incident, Transition
from driftwatch.receivers.sender import Conversation, Message
from driftwatch.service.metrics import OwnMetrics
from driftwatch.service.outbox import Outbox
from driftwatch.store.store import Store, TickRecord

NOW = datetime(2026, 11, 18, 2, 56, tzinfo=UTC)


def incident(number: int, **rest: object) -> Incident:
    rule = f"Rule{number}"
    page = small_page(rule=rule)
    fired = incident_of(f"{number:012x}", rule=rule, pool=f"p{number}", at=NOW, page=page)
    return with_values(fired, **rest)


def planned(number: int, event: Event = "firing", receiver: str = "desk") -> PlannedDelivery:
    page = small_page(event=event, rule=f"Rule{number}")
    return outbox.planned(f"{number:012x}", page, NOW, receiver, event)


def commit(store: Store, *deliveries: PlannedDelivery) -> None:
    """A tick that plans these; their incidents fire, or resolve where a delivery says so."""
    over = {int(one.subject, 16) for one in deliveries if one.event == "resolved"}
    numbers = {int(one.subject, 16) for one in deliveries if one.kind == "incident"}
    fired = [incident(n) for n in sorted(numbers - over)]
    ended = [Transition(incident(n, resolved_at=NOW), "resolved", NOW) for n in sorted(over)]
    for one in ended:
        if not any(there.id == one.incident.id for there in store.open_incidents().values()):
            store.commit_tick(TickRecord(NOW, incidents=[_open(one.incident)]))
    known = [one for one in store.open_incidents().values() if int(one.id, 16) not in over]
    every = {one.id: one for one in (*known, *fired)}
    store.commit_tick(
        TickRecord(
            NOW + timedelta(minutes=1),
            incidents=every.values(),
            transitions=[*(Transition(one, "firing", NOW) for one in fired), *ended],
            deliveries=deliveries,
        )
    )


def _open(one: Incident) -> Incident:
    return with_values(one, resolved_at=None)


@dataclass
class Desk:
    """A receiver in memory: ``answer`` decides what becomes of each message."""

    answer: Callable[[Message], Conversation | None] = lambda message: None
    messages: list[Message] = field(default_factory=list)  # every attempt
    taken: list[tuple[str, str]] = field(default_factory=list)  # (rule, event)

    def send(self, message: Message) -> Conversation | None:
        self.messages.append(message)
        conversation = self.answer(message)
        self.taken.append((message.page.rule, message.event))
        return conversation


def refusing(
    text: str, *, permanent: bool = False, after: float | None = None, rules: Iterable[str] = ()
) -> Callable[[Message], None]:
    """Refuses every message, or those about these rules."""
    chosen = set(rules)

    def answer(message: Message) -> None:
        if not chosen or message.page.rule in chosen:
            raise DeliveryError(text, permanent=permanent, retry_after_seconds=after)

    return answer


def outbox_of(store: Store, clock: ManualClock, **desks: Desk) -> tuple[Outbox, OwnMetrics]:
    metrics = OwnMetrics(clock.now)
    outbox = Outbox(store, clock, metrics)
    outbox.adopt(desks)
    return outbox, metrics


def value(metrics: OwnMetrics, name: str, **labels: str) -> float | None:
    return metrics.registry.get_sample_value(name, labels)
