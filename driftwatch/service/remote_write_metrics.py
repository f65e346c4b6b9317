"""What senders of remote write wrote."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from prometheus_client import Metric
from prometheus_client.registry import Collector

from driftwatch.collect.schema import Source

if TYPE_CHECKING:  # what they import takes a second, and few need it
    from driftwatch.collect.remote_write.inbox import Inbox
    from driftwatch.collect.remote_write.receiver import Receiver

_PREFIX = "driftwatch_remote_write_"


@runtime_checkable
class Written(Protocol):
    """A source that senders write to."""

    name: str
    receiver: Receiver
    inbox: Inbox


class RemoteWriteMetrics(Collector):
    """A collector of prometheus_client over the receivers of one process."""

    def __init__(self, now: Callable[[], datetime]) -> None:
        self._now = now
        self._sources: tuple[Written, ...] = ()

    def adopt(self, sources: Iterable[Source]) -> None:
        """Serve what these receive."""
        self._sources = tuple(source for source in sources if isinstance(source, Written))

    def describe(self) -> Iterable[Metric]:
        """Every family, empty."""
        return self._families(())

    def collect(self) -> Iterable[Metric]:
        """Every family."""
        return self._families(self._sources)

    def _families(self, sources: Sequence[Written]) -> Iterable[Metric]:
        requests = Metric(f"{_PREFIX}requests", "Requests by status.", "counter")
        size = Metric(f"{_PREFIX}bytes", "Bytes of bodies, compressed.", "counter")
        samples = Metric(f"{_PREFIX}samples", "Samples that were kept.", "counter")
        rejected = Metric(f"{_PREFIX}samples_rejected", "Samples refused, by reason.", "counter")
        waiting = Metric(f"{_PREFIX}samples_waiting", "Samples that wait for a tick.", "gauge")
        series = Metric(f"{_PREFIX}series", "Series that are known.", "gauge")
        behind = Metric(f"{_PREFIX}behind_seconds", "Age of the newest sample.", "gauge")
        for source in sources:
            receiver, inbox = source.receiver, source.inbox
            labels = {"source": source.name}

            def add(family: Metric, value: float, total: str = "", **more: str) -> None:
                family.add_sample(family.name + total, labels | more, value)  # noqa: B023

            for status, count in sorted(receiver.requests.items()):
                add(requests, count, "_total", code=str(int(status)))
            add(size, receiver.received_bytes, "_total")
            add(samples, inbox.samples, "_total")
            for reason, count in sorted(inbox.rejected.items()):
                add(rejected, count, "_total", reason=reason)
            add(waiting, inbox.waiting)
            add(series, inbox.table.count)
            if inbox.newest_ms:
                add(behind, self._now().timestamp() - inbox.newest_ms / 1000)
        return (requests, size, samples, rejected, waiting, series, behind)
