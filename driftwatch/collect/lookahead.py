"""The next stretch of a history is fetched while the one before it is evaluated."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import datetime

from driftwatch.collect.schema import Collected, Source

Interval = tuple[datetime, datetime]


class LookAhead:
    """A source that is asked in another thread, one question at a time.

    ``following``: up to where it will be asked next; None = nothing is fetched ahead.
    """

    def __init__(self, source: Source) -> None:
        self.name, self.settle_seconds = source.name, source.settle_seconds
        self.following: datetime | None = None
        self._source = source
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="look-ahead")
        self._pending: tuple[Interval, Future[Collected]] | None = None

    def collect(self, since: datetime, until: datetime) -> Collected:
        """As the source; what is fetched ahead and not asked for is let go."""
        pending, self._pending = self._pending, None
        if pending is None or pending[0] != (since, until):
            pending = (since, until), self._thread.submit(self._source.collect, since, until)
        collected = pending[1].result()
        if self.following is not None and self.following > until:
            ahead = until, self.following
            self._pending = ahead, self._thread.submit(self._source.collect, *ahead)
        return collected

    def identity(self) -> Mapping[str, object]:
        """That of the source; empty where it has none."""
        describe = getattr(self._source, "identity", dict)
        answer: Mapping[str, object] = describe()
        return answer

    def close(self) -> None:
        """Wait for what is under way; the source stays open."""
        self._pending = None
        self._thread.shutdown(cancel_futures=True)
