"""That driftwatch watches: which process does, and who outside heard of it."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge


class WatchMetrics:
    """Gauges and counters in a registry."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.leader = Gauge(
            "driftwatch_leader", "1 in the process that ticks, 0 in a standby.", registry=registry
        )
        self.fence = Gauge(
            "driftwatch_lease_fence",
            "Number of the lease of this process on PostgreSQL; 0 without one.",
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
