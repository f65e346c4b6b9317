"""What people do: acknowledge an incident, give it back, note, silence, accept. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal, NamedTuple

from driftwatch.model import Incident

# of which the receivers of the incident hear
Acknowledging = Literal["acknowledge", "unacknowledge"]
# which are kept, and nobody is told of
KeptAction = Literal[
    "note",
    "mark",
    "unmark",
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
