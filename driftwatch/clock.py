"""Time is an argument: everything that needs "now" takes a Clock."""

from __future__ import annotations

from datetime import UTC, datetime
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
