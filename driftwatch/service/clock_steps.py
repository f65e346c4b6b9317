"""A wall clock that went back: what was evaluated stays evaluated, and the rest is waited for."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import structlog

from driftwatch.service.source_threads import LATE

# ticks are further apart than this; a shorter step back has no effect
_SHORTEST_SECONDS = 1.0


class ClockSteps:
    """Says when the clock is behind what was collected, and when it is there again."""

    def __init__(self) -> None:
        self._log: Any = structlog.get_logger()
        self._behind_seconds = 0.0

    def note(self, collected_until: Mapping[str, datetime], now: datetime) -> bool:
        """Whether the clock is behind; said in the log when it begins and when it ends."""
        reached = max(collected_until.values(), default=now)
        before, behind = self._behind_seconds, (reached - now).total_seconds()
        self._behind_seconds = behind = behind if behind >= _SHORTEST_SECONDS else 0.0
        if behind > before:
            self._log.error(
                "the clock went back",
                seconds=round(behind - before),
                collected_until=reached.isoformat(timespec="seconds"),
                effect="no minute is evaluated twice: driftwatch waits until then",
            )
        elif before and not behind:
            self._log.info("the clock has caught up")
        return behind > 0

    def why_blind(self) -> str | None:
        """Why nothing new is evaluated; None = the clock is at most :data:`LATE` behind."""
        if self._behind_seconds <= LATE.total_seconds():
            return None
        return f"the clock went back: the next minute is in {self._behind_seconds:.0f} s"
