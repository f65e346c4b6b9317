"""The statements of the outbox, built once: to build one costs more than to run it."""

from __future__ import annotations

from typing import Any

from sqlalchemy import ColumnElement, Select, Update, bindparam, func, select, update

from driftwatch.store.tables import conversations, deliveries, payloads

_table = deliveries.c


def _waits() -> ColumnElement[bool]:
    """Whether an earlier delivery about the same incident to the same receiver is pending."""
    earlier = deliveries.alias()
    return (
        select(earlier.c.id)
        .where(
            earlier.c.incident_id == _table.incident_id,
            earlier.c.receiver == _table.receiver,
            earlier.c.status == "pending",
            earlier.c.id < _table.id,
        )
        .exists()
    )


# deliveries as ``Delivery`` has them; what is pending has its payload
DELIVERIES = select(
    *(column for column in _table if column is not _table.payload_id),
    payloads.c.document.label("payload"),
).outerjoin_from(deliveries, payloads)
# of one receiver: pending, and its turn
_OWN = DELIVERIES.where(
    _table.status == "pending", ~_waits(), _table.receiver == bindparam("receiver")
)
_TIME_COME = _table.next_attempt_at <= bindparam("due_by")
_BY_TIME = (_table.next_attempt_at, _table.id)

# The next one, from the first of these that has one. Bound: receiver, due_by, later
NEXT: tuple[Select[Any], ...] = tuple(
    query.limit(1)
    for query in (
        _OWN.where(_table.attempts == 0).order_by(_table.id),
        _OWN.where(_TIME_COME).order_by(*_BY_TIME),
        _OWN.where(
            _table.next_attempt_at > bindparam("later"),
            _table.last_attempt_at > bindparam("later"),
        ).order_by(*_BY_TIME),
    )
)
# bound: receiver
NEXT_ATTEMPT_AT = select(func.min(_table.next_attempt_at)).where(
    _table.receiver == bindparam("receiver"), _table.status == "pending", ~_waits()
)
# bound: incident_id, receiver
CONVERSATION = select(conversations.c.document).where(
    conversations.c.incident_id == bindparam("incident_id"),
    conversations.c.receiver == bindparam("receiver"),
)


def _attempted(statuses: tuple[str, ...], **values: object) -> Update:
    return (
        update(deliveries)
        .where(_table.id == bindparam("b_id"), _table.status.in_(statuses))
        .values(attempts=_table.attempts + 1, last_attempt_at=bindparam("b_at"), **values)
    )


# bound: b_id, b_at; one that was withdrawn while it was on its way was sent all the same
SENT = _attempted(
    ("pending", "withdrawn"),
    status="sent",
    next_attempt_at=None,
    last_error=None,
    sent_at=bindparam("b_at"),
)
# bound: b_id, b_at, b_status, b_next, b_error
FAILED = _attempted(
    ("pending",),
    status=bindparam("b_status"),
    next_attempt_at=bindparam("b_next"),
    last_error=bindparam("b_error"),
)
