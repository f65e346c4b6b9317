"""That driftwatch watches: which process does, and who outside heard of it."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge


class WatchMetrics:
    """Gauges and counters in a registry."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.leader = Gauge(
            "driftwatch_leader", "1 in the process that leads, 0 in others.", registry=registry
        )
        self.fence = Gauge(
            "driftwatch_lease_fence",
            "Number of the lease of this process on PostgreSQL; 0 without one.",
            registry=registry,
        )
        self.shards = Gauge(
            "driftwatch_shards", "Shards that this process watches.", registry=registry
        )
        self.unwatched = Gauge(
            "driftwatch_shards_unwatched",
            "Shards without a tick for 90 s, as the process that leads sees it; 0 in others.",
            registry=registry,
        )
        self.heartbeats = Counter(
            "driftwatch_heartbeats",
            "Heartbeats by result: sent, failed, withheld (a tick that was not complete).",
            ("to", "result"),
            registry=registry,
        )
        self.heartbeat_at = Gauge(
            "driftwatch_heartbeat_last_success_timestamp_seconds",
            "When a heartbeat was last taken.",
            ("to",),
            registry=registry,
        )
