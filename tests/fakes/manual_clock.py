"""A clock that stands still until it is moved."""

from __future__ import annotations

from datetime import datetime, timedelta


class ManualClock:
    """What the code under test takes for the time."""

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
