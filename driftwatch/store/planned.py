"""Write new deliveries to the outbox, and withdraw those that they replace."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from datetime import datetime

from sqlalchemy import Connection, bindparam, delete, func, insert, or_, select, update

from driftwatch.documents import to_json
from driftwatch.incidents.delivery import PlannedDelivery
from driftwatch.notify.page import Page
from driftwatch.store.database import chunks
from driftwatch.store.tables import deliveries, incidents, payloads

# what a resolve takes the place of, where its receiver was never sent it; what some process is
# sending now has an attempt without an error
_REPLACED = ("firing", "updated")
_RESOLVED_FIRST = "withdrawn: the incident resolved before the receiver took this"
_FIRES_AGAIN = "withdrawn: the same alert fired again before the receiver took this"
_table = deliveries.c
_BESIDE_RESOLVE = (
    update(deliveries)
    .where(
        _table.incident_id == bindparam("b_subject"),
        _table.receiver == bindparam("b_receiver"),
        _table.status == "pending",
        or_(*(_table.event == event for event in _REPLACED)),
        or_(_table.attempts == 0, _table.last_error.is_not(None)),
    )
    .values(status="withdrawn", next_attempt_at=None, last_error=_RESOLVED_FIRST)
)


def write_deliveries(
    connection: Connection, planned: Iterable[PlannedDelivery], by_labels: Collection[str] = ()
) -> None:
    """Add planned deliveries; one that is there already stays as it is.

    ``by_labels``: receivers that know alerts by their labels alone.

    A resolve withdraws the page and the updates that its receiver was never sent: it says that the
    incident was, and that it is over. A verdict stays.
    """
    new: dict[tuple[object, ...], PlannedDelivery] = {}
    for one in planned:
        new.setdefault((one.kind, one.subject, one.event, one.number, one.receiver), one)
    table = deliveries.c
    unique = (table.kind, table.subject, table.event, table.number, table.receiver)
    for ids in chunks(sorted({one.subject for one in new.values()})):
        for there in connection.execute(select(*unique).where(table.subject.in_(ids))):
            new.pop(tuple(there), None)
    written = list(new.values())
    ended = {(one.subject, one.receiver) for one in written if one.event == "resolved"}
    if ended:
        beside = [{"b_subject": s, "b_receiver": r} for s, r in sorted(ended)]
        connection.execute(_BESIDE_RESOLVE, beside)
    _settle_overtaken(connection, written, by_labels)
    rows = [
        {
            "kind": one.kind,
            "subject": one.subject,
            "incident_id": one.incident_id,
            "event": one.event,
            "number": one.number,
            "receiver": one.receiver,
            "payload_id": payload_id,
            "planned_at": one.planned_at,
            "attempts": 0,
            **_status_of(one, is_over=(one.subject, one.receiver) in ended),
        }
        for one, payload_id in zip(written, _write_payloads(connection, written), strict=True)
    ]
    if rows:
        connection.execute(insert(deliveries), rows)


def _status_of(one: PlannedDelivery, *, is_over: bool) -> dict[str, object]:
    """``is_over``: its receiver gets the resolve with it."""
    if is_over and one.event in _REPLACED:
        return {"status": "withdrawn", "next_attempt_at": None, "last_error": _RESOLVED_FIRST}
    return {"status": "pending", "next_attempt_at": one.planned_at, "last_error": None}


def _settle_overtaken(
    connection: Connection, planned: Sequence[PlannedDelivery], by_labels: Collection[str]
) -> None:
    """Pending resolves of earlier incidents of what fires anew: after its page one would be read
    as the page's own.

    They are tried at once, before the page; where a receiver knows alerts by labels alone
    (``by_labels``: such receivers) they are withdrawn: the alert goes on.
    """
    pages = {(o.subject, o.receiver): o for o in planned if (o.event, o.number) == ("firing", 0)}
    table, key_of = deliveries.c, dict[str, str]()
    query = select(table.id, table.receiver, table.incident_id, incidents.c.key)
    query = query.join(incidents, incidents.c.id == table.incident_id).where(
        table.receiver.in_(sorted({receiver for _, receiver in pages})),
        table.status == "pending",
        table.event == "resolved",
    )
    if not pages or not (waiting := connection.execute(query).all()):
        return
    for ids in chunks(sorted({subject for subject, _ in pages})):
        rows = connection.execute(
            select(incidents.c.id, incidents.c.key).where(incidents.c.id.in_(ids))
        )
        key_of |= {row.id: row.key for row in rows}
    again = {(key_of[id_], receiver): page for (id_, receiver), page in pages.items()}
    overtaken = [row for row in waiting if (row.key, row.receiver) in again]
    withdraw(connection, [row.id for row in overtaken if row.receiver in by_labels], _FIRES_AGAIN)
    for row in (row for row in overtaken if row.receiver not in by_labels):
        now = again[row.key, row.receiver].planned_at
        values = {"attempts": 0, "next_attempt_at": now}
        connection.execute(update(deliveries).where(table.id == row.id).values(**values))


def withdraw(connection: Connection, numbers: Sequence[int], why: str) -> None:
    """Withdraw deliveries by their numbers, for a reason."""
    values = {"status": "withdrawn", "next_attempt_at": None, "last_error": why}
    for ids in chunks(numbers):
        connection.execute(update(deliveries).where(deliveries.c.id.in_(ids)).values(**values))


def _write_payloads(connection: Connection, planned: Sequence[PlannedDelivery]) -> list[int]:
    """The payload id of each delivery; receivers of an equal payload share one."""
    documents = {id(one.payload): one.payload for one in planned}
    texts = {
        number: one.text() if isinstance(one, Page) else to_json(one)
        for number, one in documents.items()
    }
    new = sorted(set(texts.values()))
    if not new:
        return []
    query = insert(payloads).returning(payloads.c.id, sort_by_parameter_order=True)
    ids = connection.execute(query, [{"document": text} for text in new]).scalars()
    id_of = dict(zip(new, ids, strict=True))
    return [id_of[texts[id(one.payload)]] for one in planned]


def forget_payloads(connection: Connection, before: datetime) -> None:
    """Delete what was sent, given up or withdrawn before a time, and what no delivery has."""
    table = deliveries.c
    over = func.coalesce(table.sent_at, table.last_attempt_at, table.planned_at)
    connection.execute(
        update(deliveries)
        .where(table.payload_id.is_not(None), table.status != "pending", over < before)
        .values(payload_id=None)
    )
    is_needed = select(table.id).where(table.payload_id == payloads.c.id).exists()
    connection.execute(delete(payloads).where(~is_needed))
