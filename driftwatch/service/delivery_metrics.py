"""Metrics of deliveries: what was attempted, and what waits, receiver by receiver."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta

from prometheus_client import CollectorRegistry, Counter, Metric
from prometheus_client.registry import Collector

from driftwatch.incidents.delivery import Backlog

UNDELIVERED = "driftwatch_undelivered_pages"
BY_RECEIVER = "driftwatch_receiver_undelivered"
OLDEST = "driftwatch_receiver_oldest_pending_seconds"
# an alert on what was given up ends a day after the last such delivery
DEAD_COUNTS_FOR = timedelta(hours=24)


class DeliveryMetrics(Collector):
    """Counts attempts, and serves the backlog as it was noted last.

    ``now``: what time it is, aware, UTC.
    """

    def __init__(self, registry: CollectorRegistry, now: Callable[[], datetime]) -> None:
        self.attempts = Counter(
            "driftwatch_deliveries",
            "Delivery attempts by receiver and result: sent, retried, dead.",
            ("receiver", "result"),
            registry=registry,
        )
        self._now = now
        self._backlog: Mapping[str, Backlog] | None = None
        self._receivers: tuple[str, ...] = ()
        registry.register(self)

    def note(self, backlog: Mapping[str, Backlog], receivers: Iterable[str]) -> None:
        """Take what waits; ``receivers``: the configured ones, which have a series also at 0."""
        self._receivers = tuple(receivers)
        self._backlog = backlog

    def describe(self) -> Iterable[Metric]:
        """The families, empty."""
        return self._families({})

    def collect(self) -> Iterable[Metric]:
        """The families; empty while nothing was noted."""
        backlog = self._backlog
        if backlog is None:
            return self._families({})
        none = dict.fromkeys(self._receivers, Backlog(0, None, 0))
        return self._families({**none, **backlog}, total=True)

    def _families(self, backlog: Mapping[str, Backlog], *, total: bool = False) -> Iterable[Metric]:
        every = Metric(
            UNDELIVERED,
            "Deliveries that wait, or were given up in the last 24 hours.",
            "gauge",
        )
        each = Metric(
            BY_RECEIVER,
            "Deliveries of a receiver by status: pending, dead (given up in the last 24 hours).",
            "gauge",
        )
        oldest = Metric(OLDEST, "Age of the oldest delivery that waits; 0 without one.", "gauge")
        if total:
            count = sum(one.pending + one.dead for one in backlog.values())
            every.add_sample(UNDELIVERED, {}, float(count))
        for name, one in backlog.items():
            for status, number in (("pending", one.pending), ("dead", one.dead)):
                each.add_sample(BY_RECEIVER, {"receiver": name, "status": status}, float(number))
            age = 0.0
            if one.oldest_at is not None:
                age = max(0.0, (self._now() - one.oldest_at).total_seconds())
            oldest.add_sample(OLDEST, {"receiver": name}, age)
        yield from (every, each, oldest)
