"""Tasks as metrics: what waits, and what is being done."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from prometheus_client import Metric
from prometheus_client.registry import Collector

from driftwatch.errors import StoreError
from driftwatch.tasks.task import QUEUES, Queue, QueueCounts

TASKS, OLDEST = "driftwatch_tasks", "driftwatch_task_oldest_waiting_seconds"
Counts = Callable[[], Mapping[Queue, QueueCounts]]


class TaskMetrics(Collector):
    """A collector of prometheus_client that asks at each scrape; empty without an answer."""

    def __init__(self) -> None:
        self._counts: Counts | None = None

    def read(self, counts: Counts) -> None:
        """Ask this from now on."""
        self._counts = counts

    def describe(self) -> Iterable[Metric]:
        """Both families, empty."""
        return _families({})

    def collect(self) -> Iterable[Metric]:
        """Both families, of each queue."""
        try:
            return _families(self._counts() if self._counts is not None else {})
        except StoreError:
            return _families({})


def _families(counts: Mapping[Queue, QueueCounts]) -> Iterable[Metric]:
    tasks = Metric(TASKS, "Tasks by queue and state: waiting, running.", "gauge")
    oldest = Metric(OLDEST, "How long the oldest waiting task of a queue has waited.", "gauge")
    for queue in QUEUES if counts else ():
        one = counts[queue]
        for state, number in {"waiting": one.waiting, "running": one.running}.items():
            tasks.add_sample(TASKS, {"queue": queue, "state": state}, float(number))
        oldest.add_sample(OLDEST, {"queue": queue}, one.oldest_waiting_seconds)
    return [tasks, oldest]
