"""Messages to receivers, planned or in the outbox; and people's actions. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any, Literal, NamedTuple

from driftwatch.documents import Document
from driftwatch.incidents.incident import Event, Incident
from driftwatch.notify.page import Page
from driftwatch.numbers import moment, plural

# a message is about an incident or a week's report
Kind = Literal["incident", "report"]
MessageEvent = Event | Literal["report"]
# dead: driftwatch gave up, and counts it as undelivered; withdrawn: a later message replaces it
DeliveryStatus = Literal["pending", "sent", "dead", "withdrawn"]


class PlannedDelivery(Document):
    """One message to one receiver; (kind, subject, event, number, receiver) is planned once."""

    subject: str  # incident id or week
    event: MessageEvent
    receiver: str  # the receiver's name, never its URL
    # the page, or the report as JSON; None: deleted some days after it was sent
    payload: Page | dict[str, Any] | None
    planned_at: datetime  # earliest time to send it
    kind: Kind = "incident"
    number: int = 0  # 0 = the first of this event; 1 = its first repeat, or the second update

    @property
    def incident_id(self) -> str | None:
        """The incident's id; None for a report."""
        return self.subject if self.kind == "incident" else None


class Delivery(PlannedDelivery):
    """A planned delivery in the outbox, with its progress."""

    id: int  # number in the outbox
    status: DeliveryStatus
    attempts: int  # so far
    next_attempt_at: datetime | None = None  # None unless pending
    last_attempt_at: datetime | None = None  # None before the first attempt
    last_error: str | None = None  # why the last attempt failed
    sent_at: datetime | None = None  # when the receiver accepted it


class AttemptResult(NamedTuple):
    """The result of one attempt at a delivery."""

    delivery: Delivery
    at: datetime  # end of the attempt
    error: str | None = None  # why the receiver refused it; None = it accepted
    next_attempt_at: datetime | None = None  # after an error; None = no further attempt
    # the receiver's ids of its message, for the incident's next message; None = keep the old ones
    conversation: Mapping[str, str] | None = None


class Backlog(NamedTuple):
    """One receiver's undelivered messages."""

    pending: int
    oldest_at: datetime | None  # planned time of the oldest pending one; None without one
    dead: int  # messages that driftwatch gave up


# actions that send an update to the incident's receivers
Acknowledging = Literal["acknowledge", "unacknowledge"]
# actions that send nothing
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
    """One action of one person."""

    id: int  # number in the store; later ones are larger
    incident_id: str | None  # None = about no incident
    action: ActionName
    at: datetime
    by: str  # the person
    comment: str  # the reason; empty = none
    via: str  # the command line, the web, or a receiver's name
    request_id: str | None = None  # a receiver's id of the click; None without one
    # when the planner handled it, with or without messages; None = not yet
    planned_at: datetime | None = None
    subject: str | None = None  # id of its silence or baseline, or the mark; None without one


class ActionResult(NamedTuple):
    """The result of an action."""

    incident: Incident  # after the action
    is_new: bool  # whether this call changed something
    # this action, or the earlier one of the same request; None where another acknowledgement stays
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
