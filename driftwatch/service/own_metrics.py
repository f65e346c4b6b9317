"""driftwatch's own metrics: what ``/metrics`` serves of the process itself."""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import datetime, timedelta
from typing import Generic, TypeVar, get_args

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Info, Metric
from prometheus_client.registry import Collector

from driftwatch import __version__
from driftwatch.clock import SystemClock
from driftwatch.incidents.delivery import Backlog
from driftwatch.incidents.incident import Incident, IncidentState
from driftwatch.model import Severity
from driftwatch.pipeline.state import Outcome, State
from driftwatch.rulebook.rules import Rule
from driftwatch.service.target_metrics import TargetMetrics

OPEN = "driftwatch_incidents_open"
ONE = "driftwatch_incident"
# In a storm the page must stay small: the others are counted in OPEN and stand in the database.
MOST_INCIDENTS = 1_000
UNDELIVERED = "driftwatch_undelivered_pages"
BY_RECEIVER = "driftwatch_receiver_undelivered"
OLDEST = "driftwatch_receiver_oldest_pending_seconds"
# an alert on what was given up ends a day after the last such delivery
DEAD_COUNTS_FOR = timedelta(hours=24)

_SEVERITIES: tuple[str, ...] = get_args(Severity)
_STATES = tuple(state for state in get_args(IncidentState) if state != "resolved")
_LABELS = ("rule", "pool", "severity", "state")

T = TypeVar("T")


class Noted(Collector, Generic[T]):
    """Exports what was noted last as metric families; ``families`` of None: before the first."""

    def __init__(self, families: Callable[[T | None], Iterable[Metric]]) -> None:
        self._families = families
        self._noted: T | None = None

    def note(self, value: T) -> None:
        """Serve this from now on: a scrape sees the one before or this one, whole."""
        self._noted = value

    def describe(self) -> Iterable[Metric]:
        """Every family, empty."""
        return self._families(None)

    def collect(self) -> Iterable[Metric]:
        """Every family; empty while nothing was noted."""
        return self._families(self._noted)


class OwnMetrics:
    """The metrics of one process, in a registry of their own, which ``/metrics`` serves.

    ``now``: what time it is, aware, UTC; by default the machine's clock.
    """

    def __init__(self, now: Callable[[], datetime] | None = None) -> None:
        self._now = now or SystemClock().now
        registry = self.registry = CollectorRegistry()

        def gauge(name: str, text: str, *labels: str) -> Gauge:
            return Gauge(f"driftwatch_{name}", text, labels, registry=registry)

        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(f"driftwatch_{name}", text, labels, registry=registry)

        build = Info("driftwatch_build", "Version of this driftwatch.", registry=registry)
        build.info({"version": __version__})
        self.tick_seconds = Histogram(
            "driftwatch_tick_duration_seconds",
            "How long a tick took, delivery not included.",
            buckets=(0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60),
            registry=registry,
        )
        # fmt: off
        self.ticks = counter("ticks", "Ticks by result: complete, failed, skipped.", "result")
        self.last_tick = gauge("last_complete_tick_timestamp_seconds",
            "End of the last complete tick.")
        self.evaluated_until = gauge("evaluated_until_timestamp_seconds",
            "End of the last evaluated minute.")
        self.targets = gauge("targets", "Targets known now.")
        self.unknown = gauge("rule_unknown_targets",
            "Targets for which a rule has no verdict in the last minute.", "rule")
        self._reload_good = gauge("config_last_reload_successful",
            "1 if the last reading of configuration and rules was taken, 0 if it was refused.")
        self._reload_at = gauge("config_last_reload_success_timestamp_seconds",
            "When configuration and rules were last taken.")
        self.scrapes = counter("scrapes", "Scrapes by result: ok, failed.", "result")
        self.source_seconds = gauge("source_answer_seconds",
            "How long a source's last answer took.", "source")
        self.source_until = gauge("source_collected_until_timestamp_seconds",
            "Up to where a source has answered.", "source")
        self.source_failures = counter("source_failures",
            "Questions to a source that it could not answer.", "source")
        self.problems = counter("source_problems", "What sources could not read.")
        self.attempts = counter("deliveries",
            "Delivery attempts by receiver and result: sent, retried, dead.", "receiver", "result")
        self.batches = gauge("batches", "Batches that this process ticked last.")
        self.unwatched = gauge("batches_unwatched",
            "Batches without a tick for 150 s, whoever was to do it.")
        self.heartbeats = counter("heartbeats",
            "Heartbeats by result: sent, failed, withheld (a tick that was not complete).",
            "result")
        self.heartbeat_at = gauge("heartbeat_last_success_timestamp_seconds",
            "When a heartbeat was last taken.")
        self.unrouted = gauge("unrouted_incidents", "Open pages and tickets that nobody gets.")
        self.slack_connected = gauge("slack_connected",
            "1 while Slack's buttons can be used, by receiver.", "receiver")
        self.alertmanager_up = gauge("alertmanager_up",
            "1 if an Alertmanager took the last alerts that were posted to it, else 0.",
            "receiver", "alertmanager")
        self.slack_clicks = counter("slack_clicks",
            "Clicks on Slack's buttons by result: done, again, refused, failed.",
            "receiver", "result")
        # fmt: on
        self.per_target = TargetMetrics(self._now)
        self.incidents: Noted[list[Incident]] = Noted(_of_incidents)
        self._backlog: Noted[Mapping[str, Backlog]] = Noted(self._of_backlog)
        for collector in (self.per_target, self.incidents, self._backlog):
            registry.register(collector)

    def note_minute(self, outcome: Outcome, state: State, rules: Collection[Rule]) -> None:
        """A tick's evidence rows: the gauges per target, and the states of rules."""
        if len(outcome.rows):
            rows = outcome.rows.hstack(outcome.minutes.select("ever_seen"))
            self.per_target.note(rows, state.targets, rules=rules)

    def note_incidents(self, incidents: Iterable[Incident]) -> None:
        """The incidents after a complete tick; resolved ones are left out."""
        self.incidents.note(sorted((i for i in incidents if i.state != "resolved"), key=_urgency))

    def note_backlog(self, backlog: Mapping[str, Backlog], receivers: Iterable[str]) -> None:
        """What waits; ``receivers``: the configured ones, which have a series also at 0."""
        self._backlog.note({**dict.fromkeys(receivers, Backlog(0, None, 0)), **backlog})

    def reloaded(self, *, good: bool, at: datetime) -> None:
        """Configuration and rules were read: taken if ``good``, else refused."""
        self._reload_good.set(good)
        if good:
            self._reload_at.set(at.timestamp())

    def _of_backlog(self, backlog: Mapping[str, Backlog] | None) -> Iterable[Metric]:
        every = Metric(
            UNDELIVERED, "Deliveries that wait, or were given up in the last 24 hours.", "gauge"
        )
        each = Metric(
            BY_RECEIVER,
            "Deliveries of a receiver by status: pending, dead (given up in the last 24 hours).",
            "gauge",
        )
        oldest = Metric(OLDEST, "Age of the oldest delivery that waits; 0 without one.", "gauge")
        if backlog is not None:
            count = sum(one.pending + one.dead for one in backlog.values())
            every.add_sample(UNDELIVERED, {}, float(count))
        for name, one in (backlog or {}).items():
            each.add_sample(BY_RECEIVER, {"receiver": name, "status": "pending"}, one.pending)
            each.add_sample(BY_RECEIVER, {"receiver": name, "status": "dead"}, one.dead)
            now = self._now()
            age = max(0.0, (now - (one.oldest_at or now)).total_seconds())
            oldest.add_sample(OLDEST, {"receiver": name}, age)
        return every, each, oldest


def _of_incidents(incidents: list[Incident] | None) -> Iterable[Metric]:
    number = Metric(OPEN, "Open incidents.", "gauge")
    each = Metric(ONE, "1 for each open incident.", "gauge")
    if incidents is not None:
        count: Tally[tuple[str, str]] = Tally((one.severity, one.state) for one in incidents)
        for severity in _SEVERITIES:
            for state in _STATES:
                labels = {"severity": severity, "state": state}
                number.add_sample(OPEN, labels, float(count[severity, state]))
        # a rule's own labels may make two alike; a page with a series twice is refused as a whole
        for values in dict.fromkeys(map(_values, incidents[:MOST_INCIDENTS])):
            each.add_sample(ONE, dict(zip(_LABELS, values, strict=True)), 1.0)
    return number, each


def _urgency(incident: Incident) -> tuple[int, bool, str]:
    """Pages first, what fires before what is pending; the rest in an order that stays."""
    return _SEVERITIES.index(incident.severity), not incident.is_firing, incident.key


def _values(incident: Incident) -> tuple[str, ...]:
    """Of :data:`_LABELS`; none but the state changes while it is open."""
    return (incident.rule, incident.pool, incident.severity, incident.state)
