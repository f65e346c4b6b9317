"""Weekly reports in the database: a week's document, once, and who was sent it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, delete, func, insert, select, update

from driftwatch.documents import to_json
from driftwatch.notify.plan import Delivery
from driftwatch.store.tables import report_deliveries, reports
from driftwatch.store.transactions import Transactions


class KeptReports(Transactions):
    """Part of the store: weekly reports. Every method is one transaction."""

    def write_report(
        self, week: str, document: Mapping[str, Any], receivers: Iterable[str], at: datetime
    ) -> bool:
        """Keep a week's report and plan who is sent it; the first one of a week stays.

        Args:
            week: as ISO 8601 names it: ``2026-W47``.
            document: the report as JSON.
            receivers: names of those who are to be sent it, now.
            at: when it was made.

        Returns:
            False where the week has its report: nothing is written and nothing is sent again.
        """
        with self._writing() as connection:
            known = select(reports.c.week).where(reports.c.week == week)
            if connection.execute(known).first() is not None:
                return False
            row = {"week": week, "made_at": at, "document": to_json(dict(document))}
            connection.execute(insert(reports), [row])
            planned = [
                {
                    "week": week,
                    "receiver": name,
                    "status": "pending",
                    "attempts": 0,
                    "next_attempt_at": at,
                }
                for name in sorted(set(receivers))
            ]
            if planned:
                connection.execute(insert(report_deliveries), planned)
            return True

    def report_weeks(self) -> list[str]:
        """The weeks that have a report, in order."""
        with self._reading() as connection:
            query = select(reports.c.week).order_by(reports.c.week)
            return list(connection.execute(query).scalars())

    def report(self, week: str) -> dict[str, Any] | None:
        """The document of a week as it was made; None without one."""
        with self._reading() as connection:
            query = select(reports.c.document).where(reports.c.week == week)
            found = connection.execute(query).scalar()
            return None if found is None else dict(json.loads(found))

    def due_reports(self, now: datetime) -> list[Delivery]:
        """Reports to be sent whose time has come, as the outbox has pages."""
        table = report_deliveries
        query = (
            select(table, reports.c.document, reports.c.made_at)
            .join(reports, reports.c.week == table.c.week)
            .where(table.c.status == "pending", table.c.next_attempt_at <= now)
            .order_by(table.c.id)
        )
        with self._reading() as connection:
            return [_delivery(dict(row)) for row in connection.execute(query).mappings()]

    def mark_report_sent(self, delivery_id: int, at: datetime) -> bool:
        """Note that a receiver took it; False where it was not pending any more."""
        values = {
            "status": "sent",
            "next_attempt_at": None,
            "last_attempt_at": at,
            "last_error": None,
            "sent_at": at,
        }
        with self._writing() as connection:
            return _marked(connection, delivery_id, values)

    def mark_report_failed(
        self, delivery_id: int, at: datetime, error: str, next_attempt_at: datetime | None
    ) -> bool:
        """Note a failed attempt; without a next one it is given up. False as above."""
        values = {
            "status": "dead" if next_attempt_at is None else "pending",
            "next_attempt_at": next_attempt_at,
            "last_attempt_at": at,
            "last_error": error,
        }
        with self._writing() as connection:
            return _marked(connection, delivery_id, values)

    def undelivered_reports(self) -> int:
        """How many no receiver has taken: pending and given up."""
        table = report_deliveries
        query = select(func.count()).select_from(table).where(table.c.status != "sent")
        with self._reading() as connection:
            return int(connection.execute(query).scalar_one())


def prune(connection: Connection, before: datetime) -> None:
    """Delete reports that were made before a time, with their deliveries."""
    connection.execute(delete(reports).where(reports.c.made_at < before))


def _marked(connection: Connection, delivery_id: int, values: Mapping[str, Any]) -> bool:
    table = report_deliveries
    done = connection.execute(
        update(table)
        .where(table.c.id == delivery_id, table.c.status == "pending")
        .values(attempts=table.c.attempts + 1, **values)
    )
    return done.rowcount == 1


def _delivery(row: Mapping[str, Any]) -> Delivery:
    return Delivery(
        id=row["id"],
        incident_id=row["week"],
        event="firing",
        receiver=row["receiver"],
        reason="first",
        payload=json.loads(row["document"]),
        planned_at=row["made_at"],
        status=row["status"],
        attempts=row["attempts"],
        next_attempt_at=row["next_attempt_at"],
        last_attempt_at=row["last_attempt_at"],
        last_error=row["last_error"],
        sent_at=row["sent_at"],
    )
