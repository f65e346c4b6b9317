"""A message to one receiver, planned and in the outbox."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, NamedTuple

from driftwatch.incidents.occasion import Acknowledgement

Reason = Literal[
    "first",
    "route changed",
    "silence ended",
    "repeat",
    "advised",
    "verified",
    "resolved",
    "acknowledged",
    "unacknowledged",
    "scheduled",
]
# what a message is about: an incident, a week's report
Kind = Literal["incident", "report"]
MessageEvent = Literal[
    "firing",
    "advised",
    "verified",
    "resolved",
    "acknowledged",
    "unacknowledged",
    "report",
]
# dead: given up, and counted as undelivered; withdrawn: a later message says what this one would
DeliveryStatus = Literal["pending", "sent", "dead", "withdrawn"]


@dataclass(frozen=True, slots=True)
class PlannedDelivery:
    """One message to one receiver; (kind, subject, event, number, receiver) is planned once."""

    subject: str  # incident id or week
    event: MessageEvent
    receiver: str  # the receiver's name, never its URL
    reason: Reason  # why it is sent
    payload: Mapping[str, Any]  # the page or report as JSON
    planned_at: datetime  # from when it may be sent
    kind: Kind = "incident"
    number: int = 0  # 0 the first of this event, 1 its first repeat
    # who took it or gave it back; its text is made of it before it is stored
    occasion: Acknowledgement | None = None


@dataclass(frozen=True, slots=True)
class Delivery:
    """A planned delivery in the outbox, and how far it got."""

    id: int  # number in the outbox
    kind: Kind
    subject: str  # incident id or week
    incident_id: str | None  # of an incident: the same as subject
    event: MessageEvent
    number: int  # 0 the first of this event, 1 its first repeat
    receiver: str
    reason: Reason
    payload: Mapping[str, Any] | None  # None: forgotten, some days after it was sent
    planned_at: datetime
    status: DeliveryStatus
    attempts: int  # attempts made
    next_attempt_at: datetime | None  # when to try next, None unless pending
    last_attempt_at: datetime | None  # when it was tried last, None before
    last_error: str | None  # why the last attempt failed
    sent_at: datetime | None  # when a receiver took it


class AttemptResult(NamedTuple):
    """What became of one attempt at a delivery."""

    delivery: Delivery
    at: datetime  # when it ended
    error: str | None = None  # why it was not taken; None = it was
    next_attempt_at: datetime | None = None  # after an error; None = it is given up
    # what the receiver calls its message, for the next about the same incident; None: as before
    conversation: Mapping[str, str] | None = None


class Backlog(NamedTuple):
    """What one receiver has not taken."""

    pending: int
    oldest_at: datetime | None  # when the oldest pending one was planned, None without one
    dead: int  # given up
