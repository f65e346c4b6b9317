"""That driftwatch watches: which batches are ticked, and who outside heard of it."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge


class WatchMetrics:
    """Gauges and counters in a registry."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.batches = Gauge(
            "driftwatch_batches", "Batches that this process ticked last.", registry=registry
        )
        self.unwatched = Gauge(
            "driftwatch_batches_unwatched",
            "Batches without a tick for 150 s, whoever was to do it.",
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
