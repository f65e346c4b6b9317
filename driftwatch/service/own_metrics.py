"""driftwatch's own metrics: what tells that the watcher watches."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Info

from driftwatch import __version__
from driftwatch.clock import SystemClock
from driftwatch.service.incident_metrics import IncidentMetrics
from driftwatch.service.target_metrics import TargetMetrics


class OwnMetrics:
    """The metrics of one process, in a registry of their own.

    Args:
        now: what time it is, aware, UTC; by default the machine's clock.

    Attributes:
        registry: what ``/metrics`` serves.
    """

    def __init__(self, now: Callable[[], datetime] | None = None) -> None:
        self.registry = CollectorRegistry()
        registry = self.registry
        Info("driftwatch_build", "Version of this driftwatch.", registry=registry).info(
            {"version": __version__}
        )
        self.ticks = Counter(
            "driftwatch_ticks",
            "Ticks by result: complete, failed, skipped.",
            ["result"],
            registry=registry,
        )
        self.tick_seconds = Histogram(
            "driftwatch_tick_duration_seconds",
            "How long a tick took, delivery not included.",
            buckets=(0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60),
            registry=registry,
        )
        self.last_tick = Gauge(
            "driftwatch_last_complete_tick_timestamp_seconds",
            "End of the last complete tick.",
            registry=registry,
        )
        self.evaluated_until = Gauge(
            "driftwatch_evaluated_until_timestamp_seconds",
            "End of the last evaluated minute.",
            registry=registry,
        )
        self.targets = Gauge("driftwatch_targets", "Targets known now.", registry=registry)
        self.scrapes = Counter(
            "driftwatch_scrapes", "Scrapes by result: ok, failed.", ["result"], registry=registry
        )
        self.source_seconds = Gauge(
            "driftwatch_source_answer_seconds",
            "How long a source's last answer took.",
            ["source"],
            registry=registry,
        )
        self.source_until = Gauge(
            "driftwatch_source_collected_until_timestamp_seconds",
            "Up to where a source has answered.",
            ["source"],
            registry=registry,
        )
        self.source_failures = Counter(
            "driftwatch_source_failures",
            "Questions to a source that it could not answer.",
            ["source"],
            registry=registry,
        )
        self.retired = Counter(
            "driftwatch_targets_retired",
            "Targets that were let go: scaled down, renamed, taken out, not seen for a day.",
            registry=registry,
        )
        self.problems = Counter(
            "driftwatch_source_problems", "What sources could not read.", registry=registry
        )
        self.unknown = Gauge(
            "driftwatch_rule_unknown_targets",
            "Targets for which a rule has no verdict in the last minute.",
            ["rule"],
            registry=registry,
        )
        self.deliveries = Counter(
            "driftwatch_deliveries",
            "Delivery attempts by receiver and result: sent, retried, dead.",
            ["receiver", "result"],
            registry=registry,
        )
        self.undelivered = Gauge(
            "driftwatch_undelivered_pages",
            "Pages that no receiver has taken yet.",
            registry=registry,
        )
        self.per_target = TargetMetrics(now or SystemClock().now)
        registry.register(self.per_target)
        self.incidents = IncidentMetrics()
        registry.register(self.incidents)
