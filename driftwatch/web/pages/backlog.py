"""What no receiver took: waiting, given up, and what went to the fallback receiver."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Annotated, Literal

import orjson
from pydantic import Field

from driftwatch.model import TargetKey
from driftwatch.notify.numbers import clean, cut
from driftwatch.web.outbox_backlog import Undelivered
from driftwatch.web.page import Link, Page, Part, View, Visit
from driftwatch.web.pages.incident import incident_path
from driftwatch.web.paging import Paged, Slice, address, sliced

PATH = "/undelivered"
_LOOKED_BACK = timedelta(days=7)
_LONGEST, _LONGEST_ERROR = 120, 300
# a delivery that was not tried waits its turn for so long before anybody has to care
_NEW_SECONDS = 60.0


class UndeliveredQuery(Paged):
    """Which deliveries are listed."""

    status: Literal["pending", "dead", "fallback", ""] = ""
    receiver: Annotated[str, Field(max_length=300)] = ""


class ReceiverRow(Part):
    """What one receiver has not taken."""

    receiver: str
    path: str = Field(description="of its deliveries")
    pending: int
    failing: int = Field(description="pending ones that failed at least once")
    oldest_at: datetime | None = Field(description="when the oldest pending one was planned")
    next_attempt_at: datetime | None = Field(description="of those that failed")
    given_up: int = Field(description="in the last 7 days")


class DeliveryRow(Part):
    """One delivery."""

    number: int
    about: Link | None = Field(description="its incident; null: it is about none")
    what: str
    receiver: str
    status: str = Field(description="waits, is retried, given up, sent")
    planned_at: datetime
    attempts: int
    last_attempt_at: datetime | None
    next_attempt_at: datetime | None
    error: str | None


class UndeliveredView(View):
    """Deliveries that were not taken."""

    receivers: tuple[ReceiverRow, ...]
    unheard: int = Field(description="incidents that fire and that no receiver took for a minute")
    fallback_receiver: str | None
    rows: tuple[DeliveryRow, ...]
    part: Slice
    query: UndeliveredQuery
    paths: dict[str, str] = Field(description="address of the list with another status")


def load(visit: Visit) -> UndeliveredView:
    """The deliveries of the query, those given up first, and a summary by receiver."""
    query: UndeliveredQuery = visit.query
    since = visit.now - _LOOKED_BACK
    wanted = (query.status, query.receiver, since, query.size)
    rows, count = visit.store.undelivered(*wanted, (query.page - 1) * query.size)
    part = sliced(count, query, PATH)
    if part.page != query.page:
        rows, _ = visit.store.undelivered(*wanted, (part.page - 1) * query.size)
    return UndeliveredView(
        title="Undelivered",
        receivers=_receivers(visit, since),
        unheard=visit.store.unheard_count(visit.now - timedelta(seconds=_NEW_SECONDS)),
        fallback_receiver=visit.web.plan.fallback_receiver,
        rows=tuple(_row(one, visit.now) for one in rows),
        part=part,
        query=query,
        paths={
            name: address(PATH, UndeliveredQuery(), status=status)
            for name, status in (
                *(("not taken", ""), ("waiting", "pending"), ("given up", "dead")),
                ("sent to the fallback", "fallback"),
            )
        },
    )


def _receivers(visit: Visit, since: datetime) -> tuple[ReceiverRow, ...]:
    retried = visit.store.retried_receivers()
    rows = []
    for name, backlog in visit.store.backlog(since).items():
        failing, next_at = retried.get(name, (0, None))
        rows.append(
            ReceiverRow(
                receiver=clean(name),
                path=address(PATH, UndeliveredQuery(), receiver=name),
                pending=backlog.pending,
                failing=failing,
                oldest_at=backlog.oldest_at,
                next_attempt_at=next_at,
                given_up=backlog.dead,
            )
        )
    return tuple(rows)


def _row(one: Undelivered, now: datetime) -> DeliveryRow:
    return DeliveryRow(
        number=one.id,
        about=_about(one),
        what=cut(clean(_what(one)), _LONGEST),
        receiver=clean(one.receiver),
        status=_status(one),
        planned_at=one.planned_at,
        attempts=one.attempts,
        last_attempt_at=one.last_attempt_at,
        next_attempt_at=one.next_attempt_at,
        error=None if one.last_error is None else cut(clean(one.last_error), _LONGEST_ERROR),
    )


def _status(one: Undelivered) -> str:
    if one.status == "pending":
        return "is retried" if one.attempts else "waits"
    return {"dead": "given up"}.get(one.status, one.status)


def _what(one: Undelivered) -> str:
    """The message, less the incident that it is about."""
    if one.alert is not None:
        return one.event
    kind = {"report": "report of week", "digest": "digest of day"}.get(one.kind, one.kind)
    return f"{kind} {one.subject}"


def _about(one: Undelivered) -> Link | None:
    if one.alert is None:
        return None
    labels = orjson.loads(one.target or "{}")
    name = labels.get("pool", "")
    if "instance" in labels:
        name = TargetKey(labels["instance"], labels.get("engine", "0")).text
    return Link(
        text=cut(clean(f"{one.alert} {name}".strip()), _LONGEST), path=incident_path(one.subject)
    )


PAGE = Page(
    PATH, "Undelivered", "undelivered.html", UndeliveredView, load, UndeliveredQuery, place=7
)
