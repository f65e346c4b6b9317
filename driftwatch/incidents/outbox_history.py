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
    """What the outbox holds of one event about one incident, for one receiver."""

    subject: str  # incident id
    receiver: str
    event: str
    number: int  # largest number of them
    first_at: datetime  # when the first one was planned
    planned_at: datetime  # when the last one was planned
    last_at: datetime  # when the last one was sent, or planned where it is not sent yet
    is_pending: bool = False  # one of them is still to be sent
    is_dead: bool = False  # all of them were given up


class OutboxHistory:
    """Outbox records, found by what the planner asks; grows with what it plans."""

    def __init__(self, records: Iterable[OutboxRecord]) -> None:
        self._of: dict[tuple[str, str], list[OutboxRecord]] = {}
        for record in records:
            self.add(record)

    def add(self, record: OutboxRecord) -> None:
        """One more record; of the same event the later one counts beside the earlier."""
        self._of.setdefault((record.subject, record.event), []).append(record)

    def pages(self, incident_id: str, receiver: str | None = None) -> list[OutboxRecord]:
        """Records of the firing page, to one receiver or to all."""
        every = self._of.get((incident_id, "firing"), [])
        return [one for one in every if receiver in (None, one.receiver)]

    def receivers_of(self, incident_id: str) -> list[str]:
        """Who got the firing page, or will: it is not given up. By name."""
        return sorted({one.receiver for one in self.pages(incident_id) if not one.is_dead})

    def next_number(self, subject: str, receiver: str, event: str) -> int:
        """The number of the next message of this event: 0 for the first."""
        every = self._of.get((subject, event), ())
        return max((one.number for one in every if one.receiver == receiver), default=-1) + 1

    def given_back_at(self, incident_id: str) -> datetime | None:
        """When it was last planned to tell receivers that nobody has it any more."""
        every = self._of.get((incident_id, "unacknowledged"), ())
        return max((one.planned_at for one in every), default=None)
