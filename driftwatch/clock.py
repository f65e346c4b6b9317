"""Time is an argument: everything that needs "now" takes a Clock."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Protocol


class Clock(Protocol):
    """What the edges ask for the time; pure code receives plain datetimes."""

    def now(self) -> datetime:
        """The current time, aware, UTC."""


class SystemClock:
    """The machine's clock."""

    def now(self) -> datetime:
        """The current time, aware, UTC."""
        return datetime.now(UTC)


class ManualClock:
    """A clock that stands still until it is told to move; for tests and replays."""

    def __init__(self, start: datetime) -> None:
        self._now = start

    def now(self) -> datetime:
        """The time it was last set to."""
        return self._now

    def advance(self, by: timedelta) -> None:
        """Move forward by ``by``."""
        self._now += by

    def set(self, to: datetime) -> None:
        """Jump to ``to``."""
        self._now = to
