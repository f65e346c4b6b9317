"""A trouble that lasts: the log has it when it begins, when its reason changes, and its end."""

from __future__ import annotations

from typing import Any

import structlog


class Trouble:
    """``begins``, ``over``: what the log says; ``about``: fields of its lines."""

    def __init__(self, begins: str, over: str, **about: Any) -> None:
        self._begins, self._over, self._about = begins, over, about
        self._why: str | None = None

    def note(self, why: str | None) -> None:
        """What is wrong now; None = nothing."""
        before, self._why = self._why, why
        log = structlog.get_logger()
        if why is not None and why != before:
            log.warning(self._begins, **self._about, reason=why)
        elif why is None and before is not None:
            log.info(self._over, **self._about)
