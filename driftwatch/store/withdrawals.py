"""What is not sent any more, as a later message says it: a page that its resolve comes beside."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta

from sqlalchemy import Connection, select, update

from driftwatch.incidents.delivery import PlannedDelivery
from driftwatch.store.database import chunks
from driftwatch.store.tables import deliveries, incidents

# what a resolve says as well: that it fired, and what people did until then
_SUPERSEDED = ("firing", "advised", "acknowledged", "unacknowledged")
_RESOLVED_FIRST = "withdrawn: the incident resolved before the receiver took this"
NEVER_TAKEN = "withdrawn: the receiver never took the page that this follows"
_FIRES_AGAIN = "withdrawn: the same alert fired again before the receiver took this"
# a page that its receiver has not been sent after so long is not sent beside its resolve
STALE = timedelta(minutes=15)


def pending_or_withdrawn(
    one: PlannedDelivery, over: Mapping[tuple[str, str], datetime]
) -> dict[str, object]:
    """The columns of a new delivery; ``over``: (incident, receiver) → its resolve's time."""
    ended_at = over.get((one.subject, one.receiver))
    fired_at = (one.payload.get("times") or {}).get("firing_at")
    since = one.planned_at if fired_at is None else datetime.fromisoformat(fired_at)
    if ended_at is not None and _is_superseded(one.event, one.number, since, ended_at):
        return {"status": "withdrawn", "next_attempt_at": None, "last_error": _RESOLVED_FIRST}
    return {"status": "pending", "next_attempt_at": one.planned_at, "last_error": None}


def _is_superseded(event: str, number: int, since: datetime, ended_at: datetime) -> bool:
    """Whether a message is not sent beside the resolve of its incident."""
    if event == "firing" and number == 0:
        return ended_at - since >= STALE
    return event in _SUPERSEDED


def withdraw_superseded(connection: Connection, over: Mapping[tuple[str, str], datetime]) -> None:
    """Withdraw what is not sent beside a resolve; ``over``: (incident, receiver) → its time."""
    table = deliveries.c
    for ids in chunks(sorted({subject for subject, _ in over})):
        columns = (table.id, table.subject, table.receiver, table.event, table.number)
        query = select(*columns, table.planned_at).where(
            table.incident_id.in_(ids),
            table.status == "pending",
            table.event.in_(_SUPERSEDED),
        )
        numbers = [
            row.id
            for row in connection.execute(query)
            if (ended_at := over.get((row.subject, row.receiver))) is not None
            and _is_superseded(row.event, row.number, row.planned_at, ended_at)
        ]
        withdraw(connection, numbers, _RESOLVED_FIRST)


def settle_overtaken(
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
