"""What people did, and messages to receivers: planned, and in the outbox. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any, Literal, NamedTuple

from driftwatch.documents import Document
from driftwatch.incidents.incident import Event, Incident
from driftwatch.notify.page import Page
from driftwatch.numbers import moment, plural

# what a message is about: an incident, a week's report
Kind = Literal["incident", "report"]
MessageEvent = Event | Literal["report"]
# dead: given up, and counted as undelivered; withdrawn: a later message says what this one would
DeliveryStatus = Literal["pending", "sent", "dead", "withdrawn"]


class PlannedDelivery(Document):
    """One message to one receiver; (kind, subject, event, number, receiver) is planned once."""

    subject: str  # incident id or week
    event: MessageEvent
    receiver: str  # the receiver's name, never its URL
    # the page, or the report as JSON; None: forgotten, some days after it was sent
    payload: Page | dict[str, Any] | None
    planned_at: datetime  # from when it may be sent
    kind: Kind = "incident"
    number: int = 0  # 0 the first of this event; 1 its first repeat, or the second update

    @property
    def incident_id(self) -> str | None:
        """Of an incident: the subject."""
        return self.subject if self.kind == "incident" else None


class Delivery(PlannedDelivery):
    """A planned delivery in the outbox, and how far it got."""

    id: int  # number in the outbox
    status: DeliveryStatus
    attempts: int  # attempts made
    next_attempt_at: datetime | None = None  # when to try next, None unless pending
    last_attempt_at: datetime | None = None  # when it was tried last, None before
    last_error: str | None = None  # why the last attempt failed
    sent_at: datetime | None = None  # when a receiver took it


class AttemptResult(NamedTuple):
    """What became of one attempt at a delivery."""

    delivery: Delivery
    at: datetime  # when it ended
    error: str | None = None  # why the receiver did not accept it; None = it did
    next_attempt_at: datetime | None = None  # after an error; None = it is given up
    # what the receiver calls its message, for the next about the same incident; None: as before
    conversation: Mapping[str, str] | None = None


class Backlog(NamedTuple):
    """What one receiver has not accepted."""

    pending: int
    oldest_at: datetime | None  # when the oldest pending one was planned, None without one
    dead: int  # given up


# which are messages to the receivers of the incident
Acknowledging = Literal["acknowledge", "unacknowledge"]
# which are kept; no receiver gets a message
KeptAction = Literal[
    "note",
    "mark",
    "silence",
    "end silence",
    "accept baseline",
    "refuse baseline",
]
ActionName = Acknowledging | KeptAction
COMMAND_LINE, WEB = "command line", "web"


@dataclass(frozen=True, slots=True)
class Action:
    """One thing that one person did."""

    id: int  # number in the store; later ones are larger
    incident_id: str | None  # None = it is about no incident
    action: ActionName
    at: datetime
    by: str  # who
    comment: str  # why; empty = not given
    via: str  # where it was done: command line, a receiver's name
    request_id: str | None = None  # what a receiver calls the click, None = nothing
    # when its messages were planned, or that it has none was clear; None = not yet
    planned_at: datetime | None = None
    subject: str | None = None  # silence or baseline that it is about, or the mark; None = nothing


class ActionResult(NamedTuple):
    """What came of an action."""

    incident: Incident  # as it is now
    is_new: bool  # whether this call did it
    # this one, or what the same request did before; None where another acknowledgement stays
    action: Action | None


_LATE_SECONDS = 60.0


def status_text(one: Delivery, today: date | None) -> str:
    """``sent``, ``waits after 2 attempts: no answer``, ``given up after 18 attempts: ...``."""
    if one.status == "sent" and one.sent_at is not None:
        late = (one.sent_at - one.planned_at).total_seconds()
        return "sent" if late < _LATE_SECONDS else f"sent {moment(one.sent_at, today)}"
    tries = f" after {plural(one.attempts, 'attempt')}" if one.attempts else ""
    word = {"pending": "waits", "dead": "given up"}.get(one.status, one.status)
    why = f": {one.last_error}" if one.last_error else ""
    return f"{word}{tries}{why}"
