"""The outbox of a store: what tests look up in it, and what a receiver's queue writes to it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from sqlalchemy import select, update

from driftwatch.incidents.delivery import (
    Action,
    AttemptResult,
    Delivery,
    MessageEvent,
    PlannedDelivery,
)
from driftwatch.store.deliveries import DELIVERIES, _delivery
from driftwatch.store.history import TargetAdvice, write_advices
from driftwatch.store.store import Store
from driftwatch.store.tables import actions, deliveries


def planned(
    subject: str,
    payload: object,
    at: datetime,
    receiver: str = "oncall",
    event: MessageEvent = "firing",
    number: int = 0,
) -> PlannedDelivery:
    """One message to one receiver."""
    return PlannedDelivery(
        subject=subject,
        event=event,
        receiver=receiver,
        payload=payload,
        planned_at=at,
        number=number,
    )


def all_deliveries(store: Store) -> list[Delivery]:
    """Every delivery, in the order of planning."""
    with store._reading() as connection:
        rows = connection.execute(DELIVERIES.order_by(deliveries.c.id)).mappings().all()
    return [_delivery(row) for row in rows]


def due_deliveries(store: Store, now: datetime, receiver: str | None = None) -> list[Delivery]:
    """What is pending and its turn: one incident's go to a receiver one after the other."""
    due, waited_for = list[Delivery](), set[tuple[str, str]]()
    for one in all_deliveries(store):
        if one.status != "pending" or receiver not in (None, one.receiver):
            continue
        is_next = (one.incident_id or "", one.receiver) not in waited_for
        if one.incident_id is not None:
            waited_for.add((one.incident_id, one.receiver))
        if is_next and one.next_attempt_at is not None and one.next_attempt_at <= now:
            due.append(one)
    return due


def undelivered_count(store: Store) -> int:
    """How many deliveries their receivers have not taken: pending and dead."""
    return sum(one.status in ("pending", "dead") for one in all_deliveries(store))


def mark_sent(
    store: Store, delivery: Delivery, at: datetime, conversation: Mapping[str, str] | None = None
) -> bool:
    """Note that a receiver took it."""
    attempted = _attempted(store, delivery)
    return store.write_result(AttemptResult(attempted, at, conversation=conversation))


def mark_failed(
    store: Store, delivery: Delivery, at: datetime, error: str, next_attempt_at: datetime | None
) -> bool:
    """Note a failed attempt; without a next one the delivery is dead."""
    return store.write_result(
        AttemptResult(_attempted(store, delivery), at, error, next_attempt_at)
    )


def _attempted(store: Store, delivery: Delivery) -> Delivery:
    """The delivery, as a claim counts its attempt."""
    attempts = delivery.attempts + 1
    mine = (deliveries.c.id == delivery.id, deliveries.c.attempts == delivery.attempts)
    with store.one_transaction() as connection:
        connection.execute(update(deliveries).where(*mine).values(attempts=attempts))
    return delivery.model_copy(update={"attempts": attempts})


def latest_actions(store: Store, limit: int) -> list[Action]:
    """What people did last, newest first."""
    query = select(actions).order_by(actions.c.id.desc()).limit(limit)
    with store.one_transaction() as connection:
        return [Action(**row) for row in connection.execute(query).mappings()]


def write_advice(store: Store, row: TargetAdvice) -> None:
    """Keep an answer."""
    with store.one_transaction() as connection:
        write_advices(connection, [row])
