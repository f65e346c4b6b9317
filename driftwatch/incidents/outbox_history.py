"""What the outbox holds of incidents: the planner's memory. Pure.

Everything that the planner needs to know of the past it reads here, so a restart, a reload or an
upgrade between two plans changes none of them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True)
class OutboxRecord:
    """What the outbox holds of one event about one subject, for one receiver, with one reason."""

    kind: str
    subject: str  # incident id
    receiver: str
    event: str
    reason: str
    number: int  # largest number of them
    first_at: datetime  # when the first one was planned
    planned_at: datetime  # when the last one was planned
    last_at: datetime  # when the last one was sent, or planned where it is not sent yet
    is_pending: bool = False  # one of them is still to be sent
    is_dead: bool = False  # all of them were given up


class OutboxHistory:
    """Outbox records, found by what the planner asks; grows with what it plans."""

    def __init__(self, records: Iterable[OutboxRecord]) -> None:
        self._of: dict[str, list[OutboxRecord]] = {}
        for record in records:
            self.add(record)

    def add(self, record: OutboxRecord) -> None:
        """One more record; of the same event and reason the later one counts beside the earlier."""
        self._of.setdefault(record.subject, []).append(record)

    def receivers_of(self, incident_id: str) -> list[str]:
        """Who got the firing page, or will: it is not given up. By name."""
        return sorted({one.receiver for one in self._pages(incident_id) if not one.is_dead})

    def is_planned_for(self, incident_id: str, receiver: str) -> bool:
        """Whether a firing page was ever planned for this receiver, given up or not."""
        return any(one.receiver == receiver for one in self._pages(incident_id))

    def next_number(self, subject: str, receiver: str, event: str) -> int:
        """The number of the next message of this event: 0 for the first."""
        numbers = [
            one.number
            for one in self._of.get(subject, ())
            if (one.receiver, one.event) == (receiver, event)
        ]
        return max(numbers, default=-1) + 1

    def first_page_at(self, incident_id: str) -> datetime | None:
        """When the first firing page was planned, for anybody; None = none was."""
        return min((one.first_at for one in self._pages(incident_id)), default=None)

    def last_page_at(self, incident_id: str, receiver: str) -> datetime | None:
        """When this receiver's last firing page was sent, or planned."""
        pages = [one.last_at for one in self._pages(incident_id) if one.receiver == receiver]
        return max(pages, default=None)

    def is_pending(self, incident_id: str, receiver: str) -> bool:
        """Whether a firing page still waits for this receiver to take it."""
        return any(one.is_pending for one in self._pages(incident_id) if one.receiver == receiver)

    def given_back_at(self, incident_id: str) -> datetime | None:
        """When it was last planned to tell receivers that nobody has it any more."""
        records = self._of.get(incident_id, ())
        times = [one.planned_at for one in records if one.event == "unacknowledged"]
        return max(times, default=None)

    def _pages(self, incident_id: str) -> list[OutboxRecord]:
        return [one for one in self._of.get(incident_id, ()) if one.event == "firing"]
