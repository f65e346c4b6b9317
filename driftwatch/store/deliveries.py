"""The outbox: pages and weekly reports to be sent, written with the state that they are about."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any

import orjson
from sqlalchemy import (
    ColumnElement,
    Connection,
    Select,
    bindparam,
    case,
    delete,
    func,
    insert,
    select,
    update,
)

from driftwatch.documents import to_json
from driftwatch.incidents.delivery import AttemptResult, Backlog, Delivery
from driftwatch.incidents.planner import OutboxRecord
from driftwatch.store.database import Database, chunks, repeated_after_conflict
from driftwatch.store.incidents import stored_page
from driftwatch.store.tables import conversations, deliveries, incidents, payloads

_NEVER_TAKEN = "withdrawn: the receiver never took the page that this follows"
# A claim lasts longer than any exchange with a receiver. After a crash in the middle of one,
# another process tries again when the claim is over.
CLAIM = timedelta(seconds=60)

# Statements are built once: to build one costs more than to run it.
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
    *(c for c in _table if c not in (_table.payload_id, _table.incident_id)),
    payloads.c.document.label("payload"),
).outerjoin_from(deliveries, payloads)
_DUE = DELIVERIES.where(
    _table.receiver == bindparam("receiver"),
    _table.status == "pending",
    _table.next_attempt_at <= bindparam("now"),
    ~_waits(),
).limit(1)
# The next one, from the first of these that has one: what failed before delays nothing new.
_NEXT: tuple[Select[Any], ...] = (
    _DUE.where(_table.attempts == 0).order_by(_table.id),
    _DUE.order_by(_table.next_attempt_at, _table.id),
)
# One of two that read the same delivery gets it: the other finds another number of attempts.
_CLAIM = (
    update(deliveries)
    .where(
        _table.id == bindparam("b_id"),
        _table.status == "pending",
        _table.attempts == bindparam("b_attempts"),
    )
    .values(
        attempts=_table.attempts + 1,
        last_attempt_at=bindparam("b_at"),
        next_attempt_at=bindparam("b_until"),
        last_error=None,
    )
)
_NEXT_ATTEMPT_AT = select(func.min(_table.next_attempt_at)).where(
    _table.receiver == bindparam("receiver"), _table.status == "pending", ~_waits()
)
_CONVERSATION = select(conversations.c.document).where(
    conversations.c.incident_id == bindparam("incident_id"),
    conversations.c.receiver == bindparam("receiver"),
)
# one that was withdrawn or given up while it was on its way was sent all the same
_SENT = (
    update(deliveries)
    .where(_table.id == bindparam("b_id"), _table.status.in_(("pending", "withdrawn", "dead")))
    .values(status="sent", next_attempt_at=None, last_error=None, sent_at=bindparam("b_at"))
)
# whose claim is over has no word: another process tries already
_FAILED = (
    update(deliveries)
    .where(
        _table.id == bindparam("b_id"),
        _table.status == "pending",
        _table.attempts == bindparam("b_attempts"),
    )
    .values(
        status=bindparam("b_status"),
        next_attempt_at=bindparam("b_next"),
        last_error=bindparam("b_error"),
        last_attempt_at=bindparam("b_at"),
    )
)


def _records() -> Select[Any]:
    """What the planner needs to know of what was sent: no payload."""
    # max() of a coalesce loses the column's type, which gives SQLite's text its zone back
    sent_at, planned_at = func.max(_table.sent_at), func.max(_table.planned_at)
    group = (_table.subject, _table.receiver, _table.event)
    return (
        select(
            *group,
            func.max(_table.number).label("number"),
            case((sent_at > planned_at, sent_at), else_=planned_at).label("last_at"),
            func.max(case((_table.status == "pending", 1), else_=0)).label("is_pending"),
            func.min(case((_table.status == "dead", 1), else_=0)).label("is_dead"),
        )
        .join(incidents, incidents.c.id == _table.incident_id)
        .group_by(*group)
    )


_RECORDS = _records()


class Deliveries(Database):
    """Part of the store: deliveries of pages, reports and their deliveries."""

    @repeated_after_conflict
    def claim(self, receiver: str, now: datetime) -> Delivery | None:
        """Claim the next delivery that is due to a receiver, for :data:`CLAIM`; None: none is due.

        What was not tried yet comes first. About one incident everything goes in order.
        """
        with self._reading() as connection:  # who waits for something to do locks nobody out
            if _next(connection, receiver, now) is None:
                return None
        with self._writing() as connection:
            return _claim(connection, receiver, now)

    def next_attempt_at(self, receiver: str) -> datetime | None:
        """When the next delivery to a receiver is due; None: none is pending."""
        at: datetime | None = self._scalar(_NEXT_ATTEMPT_AT, receiver=receiver)
        return at

    @repeated_after_conflict
    def make_deliveries_due(self, now: datetime) -> None:
        """Make deliveries due that were planned or tried after ``now``: the clock went back."""
        since = func.coalesce(_table.last_attempt_at, _table.planned_at)
        late = (_table.status == "pending", _table.next_attempt_at > now, since > now)
        with self._writing() as connection:
            connection.execute(update(deliveries).where(*late).values(next_attempt_at=now))

    @repeated_after_conflict
    def give_up_unknown_receivers(self, receivers: Collection[str], at: datetime) -> dict[str, int]:
        """Give up what waits for others than these; receiver → how many deliveries."""
        strange = (_table.status == "pending", _table.receiver.not_in(receivers))
        if not self._scalar(select(select(_table.id).where(*strange).exists())):
            return {}
        error = "the configuration has no such receiver any more"
        query = update(deliveries).where(*strange).returning(_table.receiver)
        values = {"status": "dead", "next_attempt_at": None, "last_attempt_at": at}
        with self._writing() as connection:
            gone = connection.execute(query.values(**values, last_error=error)).scalars()
            return dict(Counter(gone))

    def outbox_records(self, also: Iterable[str] = ()) -> list[OutboxRecord]:
        """What the outbox holds of open incidents, and of the incidents in ``also``."""
        is_over = incidents.c.state == "resolved"
        others = (_RECORDS.where(is_over, incidents.c.id.in_(ids)) for ids in chunks(sorted(also)))
        flags = ("is_pending", "is_dead")
        return [
            OutboxRecord(**{**row, **{name: bool(row[name]) for name in flags}})
            for query in (_RECORDS.where(~is_over), *others)
            for row in self._all(query)
        ]

    def backlog(self, dead_since: datetime) -> dict[str, Backlog]:
        """Per receiver, what waits and what was given up since ``dead_since``."""
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

    def notified(self, *, or_given_up: bool = False) -> frozenset[tuple[str, str]]:
        """(incident id, receiver) of open incidents whose firing page was sent or is pending.

        ``or_given_up``: one that was given up counts too.
        """
        query = (
            select(deliveries.c.incident_id, deliveries.c.receiver)
            .join(incidents, incidents.c.id == deliveries.c.incident_id)
            .where(incidents.c.state != "resolved")
            .where(deliveries.c.event == "firing")
        )
        if not or_given_up:
            query = query.where(deliveries.c.status != "dead")
        return frozenset((row["incident_id"], row["receiver"]) for row in self._all(query))

    def conversation(self, delivery: Delivery) -> dict[str, str] | None:
        """What the receiver calls its message about the delivery's incident; None before one."""
        bound = {"incident_id": delivery.incident_id, "receiver": delivery.receiver}
        document = self._scalar(_CONVERSATION, **bound)
        return None if document is None else dict(json.loads(document))

    @repeated_after_conflict
    def write_result(self, result: AttemptResult) -> bool:
        """Note the result of an attempt; False where it was noted before.

        With a firing page that is given up, what waited for it is withdrawn: its receiver never
        heard of that incident.
        """
        with self._writing() as connection:
            return _write_result(connection, result)

    @repeated_after_conflict
    def write_result_and_claim(self, result: AttemptResult) -> Delivery | None:
        """Note the result of an attempt and claim the receiver's next delivery, in one
        transaction: a storm takes half the time then.
        """
        with self._writing() as connection:
            _write_result(connection, result)
            return _claim(connection, result.delivery.receiver, result.at)

    def undelivered_incidents(self, before: datetime) -> int:
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


def _next(connection: Connection, receiver: str, now: datetime) -> Delivery | None:
    for query in _NEXT:
        found = connection.execute(query, {"receiver": receiver, "now": now}).mappings().first()
        if found is not None:
            return _delivery(found)
    return None


def _claim(connection: Connection, receiver: str, now: datetime) -> Delivery | None:
    if (found := _next(connection, receiver, now)) is None:
        return None
    values = {"b_id": found.id, "b_attempts": found.attempts, "b_at": now}
    done = connection.execute(_CLAIM, {**values, "b_until": now + CLAIM})
    claimed = {"attempts": found.attempts + 1, "last_attempt_at": now, "last_error": None}
    claimed |= {"next_attempt_at": now + CLAIM}
    return found.model_copy(update=claimed) if done.rowcount == 1 else None


def _write_result(connection: Connection, result: AttemptResult) -> bool:
    delivery = result.delivery
    attempt: dict[str, object] = {"b_id": delivery.id, "b_at": result.at}
    if result.error is None:
        if result.conversation is not None and delivery.incident_id is not None:
            _write_conversation(connection, delivery, result.conversation)
        return connection.execute(_SENT, attempt).rowcount == 1
    is_dead = result.next_attempt_at is None
    attempt |= {"b_attempts": delivery.attempts, "b_status": "dead" if is_dead else "pending"}
    attempt |= {"b_next": result.next_attempt_at, "b_error": result.error}
    done = connection.execute(_FAILED, attempt).rowcount == 1
    if done and is_dead and delivery.event == "firing" and delivery.number == 0:
        _withdraw_waiting(connection, delivery)
    return done


def _withdraw_waiting(connection: Connection, firing: Delivery) -> None:
    """Withdraw what waits for a firing page that was given up."""
    waits = (
        _table.incident_id == firing.incident_id,
        _table.receiver == firing.receiver,
        _table.status == "pending",
    )
    values = {"status": "withdrawn", "next_attempt_at": None, "last_error": _NEVER_TAKEN}
    connection.execute(update(deliveries).where(*waits).values(**values))


def _write_conversation(
    connection: Connection, delivery: Delivery, conversation: Mapping[str, str]
) -> None:
    key = {"incident_id": delivery.incident_id, "receiver": delivery.receiver}
    connection.execute(delete(conversations).filter_by(**key))
    connection.execute(insert(conversations), [{**key, "document": to_json(dict(conversation))}])


def _delivery(row: Mapping[Any, Any]) -> Delivery:
    text, payload = row["payload"], None
    if text is not None:
        payload = stored_page(text) if row["kind"] == "incident" else orjson.loads(text)
    return Delivery(**{**row, "payload": payload})
