"""The outbox: what is to be sent, written in the same transaction as the state it tells of."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from sqlalchemy import Connection, delete, func, insert, select, update

from driftwatch.notify.plan import Delivery, PlannedDelivery
from driftwatch.store.rows import chunks, delivery_of, delivery_row
from driftwatch.store.tables import deliveries, incidents


def write(connection: Connection, planned: Iterable[PlannedDelivery]) -> None:
    """Add planned deliveries; one that is there already stays as it is.

    A resolve takes back advice of the incident that no receiver has yet: it says what to do about
    something that is over.
    """
    rows: dict[tuple[str, str, str], PlannedDelivery] = {}
    for delivery in planned:
        rows.setdefault((delivery.incident_id, delivery.event, delivery.receiver), delivery)
    for ids in chunks(sorted({incident_id for incident_id, _, _ in rows})):
        known = select(deliveries.c.incident_id, deliveries.c.event, deliveries.c.receiver)
        for there in connection.execute(known.where(deliveries.c.incident_id.in_(ids))):
            rows.pop((there.incident_id, there.event, there.receiver), None)
    over = {incident_id for incident_id, event, _ in rows if event == "resolved"}
    rows = {key: row for key, row in rows.items() if key[1] != "advised" or key[0] not in over}
    for ids in chunks(sorted(over)):
        connection.execute(
            delete(deliveries).where(
                deliveries.c.incident_id.in_(ids),
                deliveries.c.event == "advised",
                deliveries.c.status == "pending",
            )
        )
    if rows:
        connection.execute(insert(deliveries), [delivery_row(row) for row in rows.values()])


def read_due(connection: Connection, now: datetime) -> list[Delivery]:
    """Pending deliveries whose time has come, in the order in which they were planned.

    What comes after the firing page of an incident waits until that has reached the same receiver.
    """
    firing = deliveries.alias()
    waits = (
        select(firing.c.id)
        .where(
            firing.c.incident_id == deliveries.c.incident_id,
            firing.c.receiver == deliveries.c.receiver,
            firing.c.event == "firing",
            firing.c.status == "pending",
        )
        .exists()
    )
    query = (
        select(deliveries)
        .where(deliveries.c.status == "pending", deliveries.c.next_attempt_at <= now)
        .where((deliveries.c.event == "firing") | ~waits)
        .order_by(deliveries.c.id)
    )
    return [delivery_of(row) for row in connection.execute(query).mappings()]


def read_of(connection: Connection, incident_id: str) -> list[Delivery]:
    """Every delivery of one incident."""
    query = select(deliveries).where(deliveries.c.incident_id == incident_id)
    rows = connection.execute(query.order_by(deliveries.c.id)).mappings()
    return [delivery_of(row) for row in rows]


def read_notified(connection: Connection, also: Iterable[str] = ()) -> frozenset[tuple[str, str]]:
    """(incident id, receiver) of open incidents whose firing page is sent or still to be sent.

    Args:
        connection: to read with.
        also: ids of incidents that are over, of which the same is asked.
    """
    query = (
        select(deliveries.c.incident_id, deliveries.c.receiver)
        .join(incidents, incidents.c.id == deliveries.c.incident_id)
        .where((incidents.c.state != "resolved") | incidents.c.id.in_(sorted(also)))
        .where(deliveries.c.event == "firing", deliveries.c.status != "dead")
    )
    return frozenset((row.incident_id, row.receiver) for row in connection.execute(query))


def mark_sent(connection: Connection, delivery_id: int, at: datetime) -> bool:
    """Note that a receiver took it; False where it was not pending any more."""
    done = connection.execute(
        update(deliveries)
        .where(deliveries.c.id == delivery_id, deliveries.c.status == "pending")
        .values(
            status="sent",
            attempts=deliveries.c.attempts + 1,
            next_attempt_at=None,
            last_attempt_at=at,
            last_error=None,
            sent_at=at,
        )
    )
    return done.rowcount == 1


def mark_failed(
    connection: Connection,
    delivery_id: int,
    at: datetime,
    error: str,
    next_attempt_at: datetime | None,
) -> bool:
    """Note a failed attempt; without a next one the delivery is dead.

    When a firing page is given up, what waited for it is taken back: the receiver never heard of
    that incident.
    """
    row = connection.execute(
        select(deliveries).where(deliveries.c.id == delivery_id, deliveries.c.status == "pending")
    ).one_or_none()
    if row is None:
        return False
    connection.execute(
        update(deliveries)
        .where(deliveries.c.id == delivery_id)
        .values(
            status="dead" if next_attempt_at is None else "pending",
            attempts=deliveries.c.attempts + 1,
            next_attempt_at=next_attempt_at,
            last_attempt_at=at,
            last_error=error,
        )
    )
    if next_attempt_at is None and row.event == "firing":
        connection.execute(
            delete(deliveries).where(
                deliveries.c.incident_id == row.incident_id,
                deliveries.c.receiver == row.receiver,
                deliveries.c.event != "firing",
                deliveries.c.status == "pending",
            )
        )
    return True


def count_undelivered(connection: Connection) -> int:
    """How many deliveries no receiver has taken: pending and dead."""
    query = select(func.count()).select_from(deliveries).where(deliveries.c.status != "sent")
    return int(connection.execute(query).scalar_one())
