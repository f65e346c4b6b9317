"""The outbox: pages and weekly reports to be sent, written with the state that they are about."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import orjson
from sqlalchemy import Connection, case, delete, func, insert, select, update

from driftwatch.documents import to_json
from driftwatch.incidents.delivery import AttemptResult, Backlog, Delivery, PlannedDelivery
from driftwatch.store.database import Database, chunks, repeated_after_conflict
from driftwatch.store.delivery_queries import (
    CONVERSATION,
    DELIVERIES,
    FAILED,
    NEXT,
    NEXT_ATTEMPT_AT,
    SENT,
)
from driftwatch.store.tables import conversations, deliveries, incidents, payloads, reports
from driftwatch.store.withdrawals import (
    NEVER_TAKEN,
    pending_or_withdrawn,
    settle_overtaken,
    withdraw,
    withdraw_superseded,
)

# a time that is so far ahead was written by another clock than this one
CLOCK_STEP = timedelta(minutes=1)


class Deliveries(Database):
    """Part of the store: deliveries of pages, reports and their deliveries."""

    def next_delivery(
        self, receiver: str, due_by: datetime, now: datetime | None = None
    ) -> Delivery | None:
        """The delivery to make next to a receiver; None: none is due.

        What was not tried yet comes first, so that one that fails again and again delays no other.
        That, and what was tried after ``now`` (None = ``due_by``), before a clock step, is due.
        """
        later = (due_by if now is None else now) + CLOCK_STEP
        bound = {"receiver": receiver, "due_by": due_by, "later": later}
        with self._reading() as connection:
            for query in NEXT:
                row = connection.execute(query, bound).mappings().first()
                if row is not None:
                    return _delivery(row)
        return None

    def next_attempt_at(self, receiver: str) -> datetime | None:
        """When the next delivery to a receiver is due; None: none is pending."""
        at: datetime | None = self._scalar(NEXT_ATTEMPT_AT, receiver=receiver)
        return at

    @repeated_after_conflict
    def hasten_deliveries(self, now: datetime) -> None:
        """Make due what waits since a later time than now: the clock went back meanwhile."""
        table = deliveries.c
        with self._writing() as connection:
            connection.execute(
                update(deliveries)
                .where(table.status == "pending", table.next_attempt_at > now)
                .where(func.coalesce(table.last_attempt_at, table.planned_at) > now)
                .values(next_attempt_at=now)
            )

    def waiting_receivers(self) -> frozenset[str]:
        """The receivers, configured or not, that a delivery waits for."""
        query = select(deliveries.c.receiver).where(deliveries.c.status == "pending").distinct()
        return frozenset(row["receiver"] for row in self._all(query))

    def backlog(self, dead_since: datetime) -> dict[str, Backlog]:
        """What each receiver has not taken; ``dead_since``: from when given-up ones count."""
        table = deliveries.c
        query = select(
            table.receiver, table.status, func.count(), func.min(table.planned_at)
        ).group_by(table.receiver, table.status)
        pending = query.where(table.status == "pending")
        dead = query.where(table.status == "dead", table.last_attempt_at >= dead_since)
        with self._reading() as connection:
            waits = {row[0]: (row[2], row[3]) for row in connection.execute(pending)}
            given_up = {row[0]: row[2] for row in connection.execute(dead)}
        return {
            name: Backlog(*waits.get(name, (0, None)), given_up.get(name, 0))
            for name in sorted(waits.keys() | given_up.keys())
        }

    def deliveries(self, incident_id: str) -> list[Delivery]:
        """Every delivery of one incident."""
        query = DELIVERIES.where(deliveries.c.incident_id == incident_id)
        return [_delivery(row) for row in self._all(query.order_by(deliveries.c.id))]

    def notified(
        self, also: Iterable[str] = (), *, or_given_up: bool = False
    ) -> frozenset[tuple[str, str]]:
        """(incident id, receiver) of open incidents whose firing page is sent or still to be sent.

        ``also``: ids of incidents that are over, of which the same is asked; ``or_given_up``: one
        that was given up counts too.
        """
        query = (
            select(deliveries.c.incident_id, deliveries.c.receiver)
            .join(incidents, incidents.c.id == deliveries.c.incident_id)
            .where((incidents.c.state != "resolved") | incidents.c.id.in_(sorted(also)))
            .where(deliveries.c.event == "firing")
        )
        if not or_given_up:
            query = query.where(deliveries.c.status != "dead")
        return frozenset((row["incident_id"], row["receiver"]) for row in self._all(query))

    def conversation(self, delivery: Delivery) -> dict[str, str] | None:
        """What the receiver calls its message about the delivery's incident; None before one."""
        bound = {"incident_id": delivery.incident_id, "receiver": delivery.receiver}
        document = self._scalar(CONVERSATION, **bound)
        return None if document is None else dict(json.loads(document))

    @repeated_after_conflict
    def write_result(self, result: AttemptResult) -> bool:
        """Note what became of an attempt; False where that was known before.

        With a firing page that is given up goes what waited for it: its receiver never heard of
        that incident.
        """
        with self._writing() as connection:
            return _write_result(connection, result)

    def unheard_count(self, before: datetime) -> int:
        """How many incidents fire that no receiver has taken, of pages planned before a time."""
        sent = func.max(case((deliveries.c.status == "sent", 1), else_=0))
        query = (
            select(deliveries.c.incident_id)
            .join(incidents, incidents.c.id == deliveries.c.incident_id)
            .where(incidents.c.state == "firing", deliveries.c.event == "firing")
            .group_by(deliveries.c.incident_id)
            .having(sent == 0, func.min(deliveries.c.planned_at) < before)
        )
        return int(self._scalar(select(func.count()).select_from(query.subquery())))

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
            planned = [
                PlannedDelivery(week, "report", name, "scheduled", document, at, kind="report")
                for name in sorted(set(receivers))
            ]
            write_deliveries(connection, planned)
            return True

    def report_weeks(self) -> list[str]:
        """The weeks that have a report, in order."""
        return [row["week"] for row in self._all(select(reports.c.week).order_by(reports.c.week))]

    def report(self, week: str) -> dict[str, Any] | None:
        """The document of a week as it was made; None without one."""
        document = self._scalar(select(reports.c.document).where(reports.c.week == week))
        return None if document is None else dict(json.loads(document))


def write_deliveries(
    connection: Connection, planned: Iterable[PlannedDelivery], by_labels: Collection[str] = ()
) -> None:
    """Add planned deliveries; one that is there already stays as it is.

    ``by_labels``: receivers that know alerts by their labels alone.

    A resolve withdraws the follow-ups that its receiver has not been sent of the incident, and a
    page of it that is :data:`STALE` by then: one message says then that it was, and that it is
    over. A verdict stays, and advice is not begun any more.
    """
    new: dict[tuple[object, ...], PlannedDelivery] = {}
    for one in planned:
        new.setdefault((one.kind, one.subject, one.event, one.number, one.receiver), one)
    table = deliveries.c
    unique = (table.kind, table.subject, table.event, table.number, table.receiver)
    for ids in chunks(sorted({one.subject for one in new.values()})):
        for there in connection.execute(select(*unique).where(table.subject.in_(ids))):
            new.pop(tuple(there), None)
    over = {
        (one.subject, one.receiver): one.planned_at
        for one in new.values()
        if one.event == "resolved"
    }
    ended = {subject for subject, _ in over}
    written = [one for one in new.values() if one.event != "advised" or one.subject not in ended]
    payload_ids = _write_payloads(connection, written)
    rows = [
        {
            "kind": one.kind,
            "subject": one.subject,
            "incident_id": one.subject if one.kind == "incident" else None,
            "event": one.event,
            "number": one.number,
            "receiver": one.receiver,
            "reason": one.reason,
            "payload_id": payload_id,
            "planned_at": one.planned_at,
            "attempts": 0,
            **pending_or_withdrawn(one, over),
        }
        for one, payload_id in zip(written, payload_ids, strict=True)
    ]
    withdraw_superseded(connection, over)
    settle_overtaken(connection, written, by_labels)
    if rows:
        connection.execute(insert(deliveries), rows)


def _write_payloads(connection: Connection, planned: Sequence[PlannedDelivery]) -> list[int]:
    """The id of each one's payload: the same for the receivers of the same."""
    documents = {id(one.payload): one.payload for one in planned}
    texts = {number: to_json(dict(document)) for number, document in documents.items()}
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


def _write_result(connection: Connection, result: AttemptResult) -> bool:
    delivery, at = result.delivery, result.at
    attempt = {"b_id": delivery.id, "b_at": at}
    if result.error is None:
        if result.conversation is not None and delivery.incident_id is not None:
            _write_conversation(connection, delivery, result.conversation)
        return connection.execute(SENT, attempt).rowcount == 1
    is_dead = result.next_attempt_at is None
    status = "dead" if is_dead else "pending"
    attempt |= {"b_status": status, "b_next": result.next_attempt_at, "b_error": result.error}
    done = connection.execute(FAILED, attempt).rowcount == 1
    if not (done and is_dead):
        return done
    if delivery.event == "firing" and delivery.number == 0:
        _withdraw_waiting(connection, delivery)
    return True


def _withdraw_waiting(connection: Connection, firing: Delivery) -> None:
    """Withdraw what waits for a firing page that was given up."""
    query = DELIVERIES.where(
        deliveries.c.incident_id == firing.incident_id,
        deliveries.c.receiver == firing.receiver,
        deliveries.c.status == "pending",
    )
    rows = connection.execute(query.order_by(deliveries.c.id)).mappings()
    waiting = [_delivery(row) for row in rows]
    withdraw(connection, [one.id for one in waiting], NEVER_TAKEN)


def _write_conversation(
    connection: Connection, delivery: Delivery, conversation: Mapping[str, str]
) -> None:
    key = {"incident_id": delivery.incident_id, "receiver": delivery.receiver}
    table = conversations.c
    connection.execute(
        delete(conversations).where(
            table.incident_id == delivery.incident_id, table.receiver == delivery.receiver
        )
    )
    connection.execute(insert(conversations), [{**key, "document": to_json(dict(conversation))}])


def prune_reports(connection: Connection, before: datetime) -> None:
    """Delete reports that were made before a time, with their deliveries."""
    weeks = select(reports.c.week).where(reports.c.made_at < before)
    connection.execute(
        delete(deliveries).where(deliveries.c.kind == "report", deliveries.c.subject.in_(weeks))
    )
    connection.execute(delete(reports).where(reports.c.made_at < before))


def _delivery(row: Mapping[Any, Any]) -> Delivery:
    payload = row["payload"]
    return Delivery(**{**row, "payload": None if payload is None else orjson.loads(payload)})
