"""Where a process kills itself: at the n-th passing of a named point."""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Callable
from typing import Any

import structlog
from sqlalchemy import Engine, event

from driftwatch.receivers.webhook import WebhookSender
from driftwatch.store.store import Store
from kill_rounds.world import KeptSource, Place, live

# in the order of a tick and its deliveries
POINTS = (
    "after fetch",
    "before commit",
    "at a statement",
    "at COMMIT",
    "after commit",
    "before POST",
    "after POST",
)


class Fuse:
    """Burns at the n-th passing of its point."""

    def __init__(self, point: str, passing: int) -> None:
        self._point, self._left = point, passing

    def passes(self, point: str) -> None:
        """The process is at this point."""
        if point == self._point:
            self._left -= 1
            if self._left == 0:
                os.kill(os.getpid(), signal.SIGKILL)


def _wrap(owner: Any, name: str, fuse: Fuse, before: str | None, after: str | None) -> None:
    inner: Callable[..., Any] = getattr(owner, name)

    def wrapped(*args: Any, **kwargs: Any) -> Any:
        if before is not None:
            fuse.passes(before)
        result = inner(*args, **kwargs)
        if after is not None:
            fuse.passes(after)
        return result

    setattr(owner, name, wrapped)


def live_until_killed(place: Place, ticks: tuple[int, int], point: str, passing: int) -> None:
    """:func:`live`, in a process of its own, killed at a point; alive to the end without one."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    fuse = Fuse(point, passing)
    _wrap(KeptSource, "collect", fuse, None, "after fetch")
    _wrap(Store, "commit_tick", fuse, "before commit", "after commit")
    _wrap(WebhookSender, "send", fuse, "before POST", "after POST")
    event.listen(Engine, "before_cursor_execute", lambda *_: fuse.passes("at a statement"))
    event.listen(Engine, "commit", lambda _: fuse.passes("at COMMIT"))
    live(place, *ticks)
