"""Deliveries that their receivers did not take, and what a fallback receiver was sent instead."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

from sqlalchemy import ColumnElement, and_, func, or_, select

from driftwatch.store.database import Database
from driftwatch.store.tables import deliveries, incidents

_COLUMN = deliveries.c


class Undelivered(NamedTuple):
    """One delivery that was not taken; or one to a fallback receiver, whatever became of it."""

    id: int
    kind: str
    subject: str  # incident id, week, day, silence id or change id
    event: str
    receiver: str
    reason: str
    status: str
    planned_at: datetime
    attempts: int
    next_attempt_at: datetime | None
    last_attempt_at: datetime | None
    last_error: str | None
    alert: str | None  # of the incident, None = it is about none
    target: str | None  # its labels as JSON


class UndeliveredList(Database):
    """Part of the web's store: the outbox, where it is stuck."""

    def undelivered(
        self, which: str, receiver: str, since: datetime, limit: int, offset: int
    ) -> tuple[list[Undelivered], int]:
        """One part of them, and how many there are: given up first, then the oldest.

        ``which``: pending, dead, fallback, or empty for the first two; ``receiver``: empty = any;
        ``since``: when given-up ones were tried last, and fallback ones planned.
        """
        where = and_(_wanted(which, since), *([_COLUMN.receiver == receiver] if receiver else []))
        order = (_COLUMN.status, _COLUMN.planned_at, _COLUMN.id)
        own = [_COLUMN[name] for name in Undelivered._fields[:-2]]
        query = (
            select(*own, incidents.c.alert, incidents.c.target)
            .outerjoin(incidents, incidents.c.id == _COLUMN.incident_id)
            .where(where)
            .order_by(*order)
            .limit(limit)
            .offset(offset)
        )
        with self._reading() as connection:
            number = connection.execute(select(func.count(_COLUMN.id)).where(where)).scalar_one()
            return [Undelivered._make(row) for row in connection.execute(query)], number

    def retried_receivers(self) -> dict[str, tuple[int, datetime | None]]:
        """Receiver → how many of its pending deliveries failed already, and the next attempt."""
        query = (
            select(_COLUMN.receiver, func.count(), func.min(_COLUMN.next_attempt_at))
            .where(_COLUMN.status == "pending", _COLUMN.attempts > 0)
            .group_by(_COLUMN.receiver)
            .order_by(_COLUMN.receiver)
        )
        with self._reading() as connection:
            return {row[0]: (row[1], row[2]) for row in connection.execute(query)}


def _wanted(which: str, since: datetime) -> ColumnElement[bool]:
    pending = _COLUMN.status == "pending"
    dead = and_(_COLUMN.status == "dead", _COLUMN.last_attempt_at >= since)
    fallback = and_(_COLUMN.reason == "fallback", _COLUMN.planned_at >= since)
    return {"pending": pending, "dead": dead, "fallback": fallback}.get(which, or_(pending, dead))
