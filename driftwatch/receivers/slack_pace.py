"""One message a second and channel, as Slack allows; bursts of a few. The bucket itself is pure.

docs.slack.dev/apis/web-api/rate-limits: one message a second and channel, short bursts allowed; a
429 names the seconds for which one method is closed.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import NamedTuple

BURST = 3.0
PER_SECOND = 1.0
# a wait that is longer is the outbox's: its queue goes on with what can be sent
LONGEST_WAIT_SECONDS = 5.0


class Bucket(NamedTuple):
    """How many messages a channel takes at once; ``at`` in seconds of any clock."""

    tokens: float
    at: float


def after_one(bucket: Bucket | None, now: float) -> tuple[Bucket, float]:
    """The bucket after one message, and the seconds to wait before that is sent.

    >>> after_one(None, 10.0)
    (Bucket(tokens=2.0, at=10.0), 0.0)
    >>> after_one(Bucket(0.0, 10.0), 10.5)[1]
    0.5
    """
    before = bucket or Bucket(BURST, now)
    grown = before.tokens + max(0.0, now - before.at) * PER_SECOND
    tokens = min(BURST, grown) - 1.0
    return Bucket(tokens, max(now, before.at)), max(0.0, -tokens / PER_SECOND)


class Pace:
    """The buckets of one process: receivers of the same app and channel share one.

    ``now``: seconds of a clock that never goes back; ``sleep``: waits for seconds.
    """

    def __init__(
        self,
        now: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        self._now, self._sleep = now, sleep
        self._lock = threading.Lock()
        self._buckets: dict[tuple[str, str], Bucket] = {}
        self._closed_until: dict[tuple[str, str, str], float] = {}

    def wait(self, app: str, method: str, channel: str, *, posts: bool) -> float:
        """Wait for the turn of a call; ``posts``: it counts against the channel's second.

        Returns 0 when it has come, else the seconds after which to ask again: too long to wait.
        """
        with self._lock:
            now, key = self._now(), (app, channel)
            self._forget(now)
            closed = self._closed_until.get((app, method, channel), now) - now
            after, full = after_one(self._buckets.get(key), now) if posts else (None, 0.0)
            seconds = max(closed, full)
            if seconds > LONGEST_WAIT_SECONDS:
                return seconds
            if after is not None:
                self._buckets[key] = after
        if seconds:
            self._sleep(seconds)
        return 0.0

    def close(self, app: str, method: str, channel: str, seconds: float) -> None:
        """Slack takes nothing of it for so long."""
        with self._lock:
            key, until = (app, method, channel), self._now() + seconds
            self._closed_until[key] = max(self._closed_until.get(key, until), until)

    def is_closed(self, app: str, method: str, channel: str) -> bool:
        """Whether Slack would take nothing of it now."""
        with self._lock:
            return self._closed_until.get((app, method, channel), 0.0) > self._now()

    def _forget(self, now: float) -> None:
        """A full bucket is as none, and so is a time that is over."""
        self._buckets = {
            key: one
            for key, one in self._buckets.items()
            if one.tokens + (now - one.at) * PER_SECOND < BURST
        }
        self._closed_until = {k: until for k, until in self._closed_until.items() if until > now}


# of this process; a sender is made anew for each page
PACE = Pace()
