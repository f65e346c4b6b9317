"""What the outbox holds of what is open, for the planner: a few rows a receiver, no payload."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from sqlalchemy import Select, case, func, select

from driftwatch.incidents.outbox_history import OutboxRecord
from driftwatch.store.database import Database, chunks
from driftwatch.store.tables import deliveries, incidents


class OutboxRecords(Database):
    """Part of the store: what was sent so far."""

    def outbox_records(self, also: Iterable[str] = ()) -> list[OutboxRecord]:
        """Records of open incidents, and of the incidents in ``also``."""
        resolved = _OF_INCIDENTS.where(incidents.c.state == "resolved")
        queries = [
            _OF_INCIDENTS.where(incidents.c.state != "resolved"),
            *(resolved.where(incidents.c.id.in_(ids)) for ids in chunks(sorted(also))),
        ]
        flags = ("is_pending", "is_dead")
        return [
            OutboxRecord(**{**row, **{name: bool(row[name]) for name in flags}})
            for query in queries
            for row in self._all(query)
        ]


def _query() -> Select[Any]:
    table = deliveries.c
    # max() of a coalesce loses the column's type, which gives SQLite's text its zone back
    sent_at, planned_at = func.max(table.sent_at), func.max(table.planned_at)
    last_at = case((sent_at > planned_at, sent_at), else_=planned_at)
    return select(
        table.kind,
        table.subject,
        table.receiver,
        table.event,
        table.reason,
        func.max(table.number).label("number"),
        func.min(table.planned_at).label("first_at"),
        planned_at.label("planned_at"),
        last_at.label("last_at"),
        func.max(case((table.status == "pending", 1), else_=0)).label("is_pending"),
        func.min(case((table.status == "dead", 1), else_=0)).label("is_dead"),
    ).group_by(table.kind, table.subject, table.receiver, table.event, table.reason)


_OF_INCIDENTS = _query().join(incidents, incidents.c.id == deliveries.c.incident_id)
