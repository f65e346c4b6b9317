"""The outbox: pages and weekly reports to be sent, written with the state that they are about."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, delete, func, insert, select, update

from driftwatch.documents import to_json
from driftwatch.notify.plan import Delivery, PlannedDelivery
from driftwatch.store.database import Database, chunks
from driftwatch.store.tables import deliveries, incidents, report_deliveries, reports


class Deliveries(Database):
    """Part of the store: deliveries of pages, reports and their deliveries."""

    def due_deliveries(self, now: datetime) -> list[Delivery]:
        """Pending deliveries whose time has come, in the order in which they were planned; pages,
        then reports.

        What comes after the firing page of an incident waits until that has reached the same
        receiver.
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
        with self._reading() as connection:
            pages = [_delivery(row) for row in connection.execute(query).mappings()]
            return pages + _due_reports(connection, now)

    def deliveries(self, incident_id: str) -> list[Delivery]:
        """Every delivery of one incident."""
        query = select(deliveries).where(deliveries.c.incident_id == incident_id)
        with self._reading() as connection:
            rows = connection.execute(query.order_by(deliveries.c.id)).mappings()
            return [_delivery(row) for row in rows]

    def notified(self, also: Iterable[str] = ()) -> frozenset[tuple[str, str]]:
        """(incident id, receiver) of open incidents whose firing page is sent or still to be sent.

        ``also``: ids of incidents that are over, of which the same is asked.
        """
        query = (
            select(deliveries.c.incident_id, deliveries.c.receiver)
            .join(incidents, incidents.c.id == deliveries.c.incident_id)
            .where((incidents.c.state != "resolved") | incidents.c.id.in_(sorted(also)))
            .where(deliveries.c.event == "firing", deliveries.c.status != "dead")
        )
        with self._reading() as connection:
            return frozenset((row.incident_id, row.receiver) for row in connection.execute(query))

    def mark_sent(self, delivery: Delivery, at: datetime) -> bool:
        """Note that a receiver took it; False where it was not pending any more."""
        values = {"status": "sent", "next_attempt_at": None, "last_error": None, "sent_at": at}
        with self._writing() as connection:
            return _attempted(connection, delivery, at, values)

    def mark_failed(
        self, delivery: Delivery, at: datetime, error: str, next_attempt_at: datetime | None
    ) -> bool:
        """Note a failed attempt; without a next one the delivery is dead. False as above.

        When a firing page is given up, what waited for it is taken back: the receiver never heard
        of that incident.
        """
        status = "dead" if next_attempt_at is None else "pending"
        values = {"status": status, "next_attempt_at": next_attempt_at, "last_error": error}
        with self._writing() as connection:
            done = _attempted(connection, delivery, at, values)
            if done and status == "dead" and delivery.event == "firing":
                connection.execute(
                    delete(deliveries).where(
                        deliveries.c.incident_id == delivery.incident_id,
                        deliveries.c.receiver == delivery.receiver,
                        deliveries.c.event != "firing",
                        deliveries.c.status == "pending",
                    )
                )
            return done

    def undelivered_count(self) -> int:
        """How many deliveries of pages and reports no receiver has taken: pending and dead."""
        tables = (deliveries, report_deliveries)
        counts = [
            select(func.count()).select_from(t).where(t.c.status != "sent").scalar_subquery()
            for t in tables
        ]
        with self._reading() as connection:
            return int(connection.execute(select(counts[0] + counts[1])).scalar_one())

    def write_report(
        self, week: str, document: Mapping[str, Any], receivers: Iterable[str], at: datetime
    ) -> bool:
        """Keep a week's report and plan who is sent it; the first one of a week stays.

        ``week``: as ISO 8601 names it: ``2026-W47``; ``document``: the report as JSON;
        ``receivers``: names of those who are to be sent it, now; ``at``: when it was made.

        Returns False where the week has its report: nothing is written and nothing is sent again.
        """
        with self._writing() as connection:
            same = select(reports.c.week).where(reports.c.week == week)
            if connection.execute(same).first() is not None:
                return False
            row = {"week": week, "made_at": at, "document": to_json(dict(document))}
            connection.execute(insert(reports), [row])
            rows = [
                {"week": week, "receiver": name, **_pending(at)} for name in sorted(set(receivers))
            ]
            if rows:
                connection.execute(insert(report_deliveries), rows)
            return True

    def report_weeks(self) -> list[str]:
        """The weeks that have a report, in order."""
        with self._reading() as connection:
            return list(
                connection.execute(select(reports.c.week).order_by(reports.c.week)).scalars()
            )

    def report(self, week: str) -> dict[str, Any] | None:
        """The document of a week as it was made; None without one."""
        with self._reading() as connection:
            query = select(reports.c.document).where(reports.c.week == week)
            document = connection.execute(query).scalar()
            return None if document is None else dict(json.loads(document))


def write_deliveries(connection: Connection, planned: Iterable[PlannedDelivery]) -> None:
    """Add planned deliveries; one that is there already stays as it is.

    A resolve takes back advice of the incident that no receiver has yet: it says what to do about
    something that is over.
    """
    new: dict[tuple[str, str, str], PlannedDelivery] = {}
    for delivery in planned:
        new.setdefault((delivery.incident_id, delivery.event, delivery.receiver), delivery)
    for ids in chunks(sorted({incident_id for incident_id, _, _ in new})):
        query = select(deliveries.c.incident_id, deliveries.c.event, deliveries.c.receiver)
        for there in connection.execute(query.where(deliveries.c.incident_id.in_(ids))):
            new.pop((there.incident_id, there.event, there.receiver), None)
    over = {incident_id for incident_id, event, _ in new if event == "resolved"}
    rows = [
        {
            "incident_id": one.incident_id,
            "event": one.event,
            "receiver": one.receiver,
            "reason": one.reason,
            "payload": to_json(one.payload),
            "planned_at": one.planned_at,
            **_pending(one.planned_at),
        }
        for one in new.values()
        if one.event != "advised" or one.incident_id not in over
    ]
    for ids in chunks(sorted(over)):
        connection.execute(
            delete(deliveries).where(
                deliveries.c.incident_id.in_(ids),
                deliveries.c.event == "advised",
                deliveries.c.status == "pending",
            )
        )
    if rows:
        connection.execute(insert(deliveries), rows)


def prune_reports(connection: Connection, before: datetime) -> None:
    """Delete reports that were made before a time, with their deliveries."""
    connection.execute(delete(reports).where(reports.c.made_at < before))


def _pending(at: datetime) -> dict[str, object]:
    return {"status": "pending", "attempts": 0, "next_attempt_at": at}


def _delivery(row: Mapping[Any, Any]) -> Delivery:
    return Delivery(**{**row, "payload": json.loads(row["payload"])})


def _due_reports(connection: Connection, now: datetime) -> list[Delivery]:
    """Reports to be sent whose time has come, as the outbox has pages."""
    table = report_deliveries
    query = (
        select(
            *(column for column in table.c if column.name != "week"),
            table.c.week.label("incident_id"),
            reports.c.document.label("payload"),
            reports.c.made_at.label("planned_at"),
        )
        .join(reports, reports.c.week == table.c.week)
        .where(table.c.status == "pending", table.c.next_attempt_at <= now)
        .order_by(table.c.id)
    )
    rows = connection.execute(query).mappings()
    return [_delivery({**row, "event": "report", "reason": "first"}) for row in rows]


def _attempted(
    connection: Connection, delivery: Delivery, at: datetime, values: Mapping[str, object]
) -> bool:
    table = report_deliveries if delivery.event == "report" else deliveries
    done = connection.execute(
        update(table)
        .where(table.c.id == delivery.id, table.c.status == "pending")
        .values(attempts=table.c.attempts + 1, last_attempt_at=at, **values)
    )
    return done.rowcount == 1
