"""Tasks as metrics: what waits, what is being done, what is dead."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta

from prometheus_client import Metric
from prometheus_client.registry import Collector

from driftwatch.errors import StoreError
from driftwatch.store.store import Store
from driftwatch.tasks.task import QUEUES, Queue, QueueCounts

TASKS, OLDEST = "driftwatch_tasks", "driftwatch_task_oldest_waiting_seconds"
# as deliveries that were given up
_DEAD_SHOWN = timedelta(hours=24)
Counts = Callable[[], Mapping[Queue, QueueCounts]]


class TaskMetrics(Collector):
    """A collector of prometheus_client that asks at each scrape; empty without an answer."""

    def __init__(self) -> None:
        self._source: tuple[Counts, Store, Callable[[], datetime]] | None = None

    def read(self, counts: Counts, store: Store, now: Callable[[], datetime]) -> None:
        """Ask these from now on; ``store``: where dead tasks are noted."""
        self._source = (counts, store, now)

    def describe(self) -> Iterable[Metric]:
        """Both families, empty."""
        return _families({}, {})

    def collect(self) -> Iterable[Metric]:
        """Both families, of each queue."""
        if self._source is None:
            return _families({}, {})
        counts, store, now = self._source
        try:
            return _families(counts(), store.task_failure_counts(now() - _DEAD_SHOWN))
        except StoreError:
            return _families({}, {})


def _families(counts: Mapping[Queue, QueueCounts], dead: Mapping[str, int]) -> Iterable[Metric]:
    tasks = Metric(TASKS, "Tasks by queue and state: waiting, running, dead (of 24 h).", "gauge")
    oldest = Metric(OLDEST, "How long the oldest waiting task of a queue has waited.", "gauge")
    for queue in QUEUES if counts else ():
        one = counts[queue]
        states = {"waiting": one.waiting, "running": one.running, "dead": dead.get(queue, 0)}
        for state, number in states.items():
            tasks.add_sample(TASKS, {"queue": queue, "state": state}, float(number))
        oldest.add_sample(OLDEST, {"queue": queue}, one.oldest_waiting_seconds)
    return [tasks, oldest]
