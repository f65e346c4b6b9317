"""driftwatch's own metrics: what tells that the watcher watches."""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import get_args

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Info, Metric
from prometheus_client.registry import Collector

from driftwatch import __version__
from driftwatch.clock import SystemClock
from driftwatch.model import Incident, IncidentState, Severity
from driftwatch.pipeline.state import Outcome, State
from driftwatch.rulebook.rules import Rule, columns_of
from driftwatch.service.delivery_metrics import DeliveryMetrics
from driftwatch.service.target_metrics import TargetMetrics
from driftwatch.service.watch_metrics import WatchMetrics

OPEN = "driftwatch_incidents_open"
ONE = "driftwatch_incident"
# In a storm the page must stay small: the others are counted in OPEN and stand in the database.
MOST_INCIDENTS = 1_000

_SEVERITIES: tuple[str, ...] = get_args(Severity)
_STATES = tuple(state for state in get_args(IncidentState) if state != "resolved")
# what of an incident's target is a label of its own; a pool's incident has no instance
_OF_TARGET = ("pool", "instance", "engine")
_LABELS = ("rule", *_OF_TARGET, "severity", "state")


class OwnMetrics:
    """The metrics of one process, in a registry of their own.

    Args:
        now: what time it is, aware, UTC; by default the machine's clock.

    Attributes:
        registry: what ``/metrics`` serves.
    """

    def __init__(self, now: Callable[[], datetime] | None = None) -> None:
        registry = self.registry = CollectorRegistry()

        def gauge(name: str, text: str, *labels: str) -> Gauge:
            return Gauge(f"driftwatch_{name}", text, labels, registry=registry)

        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(f"driftwatch_{name}", text, labels, registry=registry)

        Info("driftwatch_build", "Version of this driftwatch.", registry=registry).info(
            {"version": __version__}
        )
        self.ticks = counter("ticks", "Ticks by result: complete, failed, skipped.", "result")
        self.tick_seconds = Histogram(
            "driftwatch_tick_duration_seconds",
            "How long a tick took, delivery not included.",
            buckets=(0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60),
            registry=registry,
        )
        self.last_tick = gauge(
            "last_complete_tick_timestamp_seconds", "End of the last complete tick."
        )
        self.evaluated_until = gauge(
            "evaluated_until_timestamp_seconds", "End of the last evaluated minute."
        )
        self.targets = gauge("targets", "Targets known now.")
        self.scrapes = counter("scrapes", "Scrapes by result: ok, failed.", "result")
        self.source_seconds = gauge(
            "source_answer_seconds", "How long a source's last answer took.", "source"
        )
        self.source_until = gauge(
            "source_collected_until_timestamp_seconds",
            "Up to where a source has answered.",
            "source",
        )
        self.source_failures = counter(
            "source_failures", "Questions to a source that it could not answer.", "source"
        )
        self.retired = counter(
            "targets_retired",
            "Targets that were let go: scaled down, renamed, taken out, not listed for 15 min.",
        )
        self.problems = counter("source_problems", "What sources could not read.")
        self.unknown = gauge(
            "rule_unknown_targets",
            "Targets for which a rule has no verdict in the last minute.",
            "rule",
        )
        self._reload_good = gauge(
            "config_last_reload_successful",
            "1 if the last reading of configuration and rules was taken, 0 if it was refused.",
        )
        self._reload_at = gauge(
            "config_last_reload_success_timestamp_seconds",
            "When configuration and rules were last taken.",
        )
        self.deliveries = DeliveryMetrics(registry, now or SystemClock().now)
        self.watch = WatchMetrics(registry)
        self.unrouted = gauge("unrouted_incidents", "Open pages and tickets that nobody gets.")
        self.slack_connected = gauge(
            "slack_connected", "1 while Slack's buttons can be used, by receiver.", "receiver"
        )
        self.alertmanager_up = gauge(
            "alertmanager_up",
            "1 if an Alertmanager took the last alerts that were posted to it, else 0.",
            *("receiver", "alertmanager"),
        )
        self.slack_clicks = counter(
            "slack_clicks",
            "Clicks on Slack's buttons by result: done, again, refused, failed.",
            *("receiver", "result"),
        )
        self.per_target = TargetMetrics(now or SystemClock().now)
        registry.register(self.per_target)
        self.incidents = IncidentMetrics()
        registry.register(self.incidents)

    def note_minute(self, outcome: Outcome, state: State, rules: Collection[Rule]) -> None:
        """A tick's evidence rows: the gauges per target, and the columns that the rules read."""
        if len(outcome.rows):
            rows = outcome.rows.hstack(outcome.minutes.select("ever_seen", "unlisted_minutes"))
            self.per_target.note(rows, state.targets, of_rules=columns_of(rules))

    def reloaded(self, *, good: bool, at: datetime) -> None:
        """Configuration and rules were read: taken if ``good``, else refused."""
        self._reload_good.set(good)
        if good:
            self._reload_at.set(at.timestamp())


@dataclass(frozen=True, slots=True)
class _Open:
    """What one tick left open."""

    count: Tally[tuple[str, str]]
    values: tuple[tuple[str, ...], ...]


class IncidentMetrics(Collector):
    """A collector of prometheus_client over the incidents that the last tick left open."""

    def __init__(self) -> None:
        self._known: _Open | None = None

    def note(self, incidents: Iterable[Incident]) -> None:
        """Take the incidents of a complete tick; resolved ones are left out."""
        still = sorted((i for i in incidents if i.state != "resolved"), key=_urgency)
        count: Tally[tuple[str, str]] = Tally(
            (incident.severity, incident.state) for incident in still
        )
        # a rule's own labels may make two alike; a page with a series twice is refused as a whole
        values = dict.fromkeys(_values(incident) for incident in still[:MOST_INCIDENTS])
        # one assignment: a scrape sees the tick before or this one
        self._known = _Open(count, tuple(values))

    def describe(self) -> Iterable[Metric]:
        """Both families, empty."""
        return _families(None)

    def collect(self) -> Iterable[Metric]:
        """Both families; empty while no tick was completed."""
        return _families(self._known)


def _families(open_now: _Open | None) -> Iterable[Metric]:
    number = Metric(OPEN, "Open incidents.", "gauge")
    each = Metric(ONE, "1 for each open incident.", "gauge")
    if open_now is not None:
        for severity in _SEVERITIES:
            for state in _STATES:
                labels = {"severity": severity, "state": state}
                number.add_sample(OPEN, labels, float(open_now.count[severity, state]))
        for values in open_now.values:
            each.add_sample(ONE, dict(zip(_LABELS, values, strict=True)), 1.0)
    yield number
    yield each


def _urgency(incident: Incident) -> tuple[int, bool, str]:
    """Pages first, what fires before what is pending; the rest in an order that stays."""
    return _SEVERITIES.index(incident.severity), incident.state != "firing", incident.key


def _values(incident: Incident) -> tuple[str, ...]:
    """Of :data:`_LABELS`; none but the state changes while it is open."""
    of_target = (incident.target.get(name, "") for name in _OF_TARGET)
    return (incident.rule, *of_target, incident.severity, incident.state)
