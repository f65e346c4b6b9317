"""What a message says beside the page that it is about. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from driftwatch.incidents.actions import Action
from driftwatch.model import Incident


@dataclass(frozen=True, slots=True)
class Acknowledgement:
    """Who took an incident, or gave it back."""

    by: str
    at: datetime
    comment: str  # empty = none
    via: str | None  # command line, a receiver's name; None = not kept

    @classmethod
    def of_action(cls, action: Action) -> Acknowledgement:
        """What a person did."""
        return cls(action.by, action.at, action.comment, action.via)

    @classmethod
    def of_incident(cls, incident: Incident) -> Acknowledgement | None:
        """The one in force; None where nobody has it."""
        if incident.acknowledged_at is None:
            return None
        return cls(
            incident.acknowledged_by or "",
            incident.acknowledged_at,
            incident.acknowledged_comment or "",
            None,
        )
