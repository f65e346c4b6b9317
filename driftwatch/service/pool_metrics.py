"""How many replicas each pool needs, as gauges on driftwatch's own ``/metrics``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime

from prometheus_client import Metric
from prometheus_client.registry import Collector

from driftwatch.pipeline.advised_replicas import Advised
from driftwatch.service.target_metrics import STALE_SECONDS

ADVISED = "driftwatch_pool_replicas_advised"
UNKNOWN = "driftwatch_pool_replicas_unknown"


class PoolMetrics(Collector):
    """A collector of prometheus_client over what was advised for the newest minute.

    Args:
        now: aware, UTC; a minute older than ``STALE_SECONDS`` is not served.
    """

    def __init__(self, now: Callable[[], datetime]) -> None:
        self._now = now
        self._newest: tuple[Mapping[str, Advised], datetime | None] = {}, None

    def note(self, advised: Mapping[str, Advised], end: datetime | None) -> None:
        """Take what is advised for the pools in the minute that ended then; None = nothing is."""
        # one assignment: a scrape sees the minute before or this one
        self._newest = advised, end

    def describe(self) -> Iterable[Metric]:
        """Both families, empty."""
        return _families({})

    def collect(self) -> Iterable[Metric]:
        """Both families; empty while no fresh minute is known."""
        advised, end = self._newest
        fresh = end is not None and (self._now() - end).total_seconds() <= STALE_SECONDS
        return _families(advised if fresh else {})


def _families(advised: Mapping[str, Advised]) -> Iterator[Metric]:
    number = Metric(ADVISED, advised_meaning(), "gauge")
    unknown = Metric(UNKNOWN, unknown_meaning(), "gauge")
    for pool, one in advised.items():
        if one.replicas is not None:
            number.add_sample(ADVISED, {"pool": pool}, float(one.replicas))
        elif one.reason is not None:
            unknown.add_sample(UNKNOWN, {"pool": pool, "reason": one.reason.code}, 1.0)
    yield number
    yield unknown


def advised_meaning() -> str:
    """Help text of :data:`ADVISED`."""
    return (
        "Replicas that the pool's demand of the last 10 min needs at today's mix, with a load at "
        "or below autoscaling.target_load_ratio; no series where it is not known."
    )


def unknown_meaning() -> str:
    """Help text of :data:`UNKNOWN`."""
    return "1 for a pool of which no replicas can be advised, with the kind of the reason."
