"""driftwatch's own metrics, and what a complete tick leaves in them and in the log."""

from __future__ import annotations

import re
from collections import Counter as Tally
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Generic, TypeVar, get_args

import polars as pl
import structlog
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Info, Metric
from prometheus_client.registry import Collector

from driftwatch import __version__
from driftwatch.clock import SystemClock
from driftwatch.collect.schema import Source
from driftwatch.incidents.delivery import Backlog
from driftwatch.incidents.incident import Incident, IncidentState, Transition
from driftwatch.incidents.planner import Routes
from driftwatch.model import Severity
from driftwatch.pipeline.state import Outcome, State
from driftwatch.rulebook.rules import Rule
from driftwatch.service.source_threads import Gathered
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
# what of an incident's target is a label of its own; a pool's incident has no instance
_OF_TARGET = ("pool", "instance", "engine")
_LABELS = ("rule", *_OF_TARGET, "severity", "state")

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
    """The metrics of one process, in a registry of their own.

    Args:
        now: what time it is, aware, UTC; by default the machine's clock.

    Attributes:
        registry: what ``/metrics`` serves.
    """

    def __init__(self, now: Callable[[], datetime] | None = None) -> None:
        self._now = now or SystemClock().now
        registry = self.registry = CollectorRegistry()

        def gauge(name: str, text: str, *labels: str) -> Gauge:
            return Gauge(f"driftwatch_{name}", text, labels, registry=registry)

        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(f"driftwatch_{name}", text, labels, registry=registry)

        Info("driftwatch_build", "Version of this driftwatch.", registry=registry).info(
            {"version": __version__}
        )
        self._of_ticks(gauge, counter)
        self._of_sources(gauge, counter)
        self._of_delivery(gauge, counter)
        self.per_target = TargetMetrics(self._now)
        registry.register(self.per_target)
        self.incidents: Noted[list[Incident]] = Noted(_of_incidents)
        registry.register(self.incidents)

    def _of_ticks(self, gauge: Callable[..., Gauge], counter: Callable[..., Counter]) -> None:
        self.ticks = counter("ticks", "Ticks by result: complete, failed, skipped.", "result")
        self.tick_seconds = Histogram(
            "driftwatch_tick_duration_seconds",
            "How long a tick took, delivery not included.",
            buckets=(0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60),
            registry=self.registry,
        )
        self.last_tick = gauge(
            "last_complete_tick_timestamp_seconds", "End of the last complete tick."
        )
        self.evaluated_until = gauge(
            "evaluated_until_timestamp_seconds", "End of the last evaluated minute."
        )
        self.targets = gauge("targets", "Targets known now.")
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

    def _of_sources(self, gauge: Callable[..., Gauge], counter: Callable[..., Counter]) -> None:
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

    def _of_delivery(self, gauge: Callable[..., Gauge], counter: Callable[..., Counter]) -> None:
        self.attempts = counter(
            "deliveries",
            "Delivery attempts by receiver and result: sent, retried, dead.",
            *("receiver", "result"),
        )
        self._backlog: Noted[Mapping[str, Backlog]] = Noted(self._of_backlog)
        self.registry.register(self._backlog)
        self.batches = gauge("batches", "Batches that this process ticked last.")
        self.unwatched = gauge(
            "batches_unwatched", "Batches without a tick for 150 s, whoever was to do it."
        )
        self.heartbeats = counter(
            "heartbeats",
            "Heartbeats by result: sent, failed, withheld (a tick that was not complete).",
            "result",
        )
        self.heartbeat_at = gauge(
            "heartbeat_last_success_timestamp_seconds", "When a heartbeat was last taken."
        )
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
            for status, number in (("pending", one.pending), ("dead", one.dead)):
                each.add_sample(BY_RECEIVER, {"receiver": name, "status": status}, float(number))
            age = 0.0
            if one.oldest_at is not None:
                age = max(0.0, (self._now() - one.oldest_at).total_seconds())
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
    return _SEVERITIES.index(incident.severity), incident.state != "firing", incident.key


def _values(incident: Incident) -> tuple[str, ...]:
    """Of :data:`_LABELS`; none but the state changes while it is open."""
    of_target = (incident.target.get(name, "") for name in _OF_TARGET)
    return (incident.rule, *of_target, incident.severity, incident.state)


@dataclass(frozen=True, slots=True)
class Change:
    """A server fails since ``time``, or for another reason; without a reason it answers again."""

    instance: str
    time: datetime
    reason: str | None


@dataclass(slots=True)
class ScrapeFailures:
    """The servers that fail, so that each change is reported once."""

    # server that fails → its reason, numbers left out: a count of bytes that changes with every
    # scrape is no news
    reasons: dict[str, str] = field(default_factory=dict)

    def changes(self, scrapes: pl.DataFrame) -> Iterator[Change]:
        """What these scrapes change, in the order of their times."""
        failing = pl.col("instance").is_in(list(self.reasons))
        failed_now = scrapes.filter(~pl.col("ok"))["instance"].unique().to_list()
        rows = (
            scrapes.select("instance", "time", "ok", "reason")
            .filter(failing | pl.col("instance").is_in(failed_now))
            .sort("time", "instance", "ok", maintain_order=True)
            .unique(["instance", "time"], keep="first", maintain_order=True)
        )
        for instance, time, ok, why in rows.iter_rows():
            before = self.reasons.get(instance)
            if ok and before is not None:
                del self.reasons[instance]
                yield Change(instance, time, None)
            elif not ok:
                reason = str(why)
                kind = re.sub(r"\d+", "N", reason)
                if kind != before:
                    self.reasons[instance] = kind
                    yield Change(instance, time, reason)


class TickNotes:
    """Notes ticks; remembers which servers fail, so that each is named once."""

    def __init__(self, metrics: OwnMetrics) -> None:
        self._metrics = metrics
        self._failures = ScrapeFailures()
        self._log: Any = structlog.get_logger()

    def sources(self, sources: Iterable[Source], gathered: Gathered) -> None:
        """Set the metrics of sources: how long each took to answer, and how far it was read."""
        metrics = self._metrics
        for name, seconds in gathered.seconds.items():
            metrics.source_seconds.labels(name).set(seconds)
        for source in sources:
            metrics.source_failures.labels(source.name).inc(source.name in gathered.failed)
            until = gathered.collected_until.get(source.name)
            if until is not None:
                metrics.source_until.labels(source.name).set(until.timestamp())

    def tick(
        self,
        outcome: Outcome,
        shown: Outcome,
        state: State,
        rules: Sequence[Rule],
        seconds: float,
        now: datetime,
    ) -> None:
        """Metrics and log lines of one complete tick.

        ``shown``, ``state``: of every batch that this process ticks; ``seconds``: how long it took.
        """
        metrics = self._metrics
        metrics.ticks.labels("complete").inc()
        metrics.tick_seconds.observe(seconds)
        metrics.last_tick.set(now.timestamp())
        if state.evaluated_until is not None:
            metrics.evaluated_until.set(state.evaluated_until.timestamp())
        metrics.targets.set(len(state.targets))
        metrics.note_minute(shown, state, rules)
        good = int(outcome.scrapes["ok"].sum()) if len(outcome.scrapes) else 0
        metrics.scrapes.labels("ok").inc(good)
        metrics.scrapes.labels("failed").inc(len(outcome.scrapes) - good)
        metrics.problems.inc(len(outcome.problems))
        metrics.note_incidents(state.incidents.values())
        if len(shown.rows):
            latest = shown.rows["end"] == shown.rows["end"].max()
            for rule in shown.verdicts.columns:
                unknown = shown.verdicts[rule].filter(latest).null_count()
                metrics.unknown.labels(rule).set(unknown)
        metrics.retired.inc(len(outcome.retired))
        for key, why in sorted(outcome.retired.items()):
            self._log.info("target retired", target=key.text, reason=why)
        for change in self._failures.changes(outcome.scrapes):
            if change.reason is None:
                self._log.info("answers again", target=change.instance)
            else:
                self._log.warning("no data", target=change.instance, reason=change.reason)
        for instance, why in outcome.not_evaluated.items():
            self._log.error("not evaluated", target=instance, why=why)
        for problem in outcome.problems:
            self._log.warning("source", where=problem.where, reason=problem.reason)

    def events(
        self, happened: Sequence[Transition], outcome: Outcome, verifications_failed: Sequence[str]
    ) -> None:
        """What people are told, and the tracebacks of what must not happen."""
        for answer in outcome.advices:
            if answer.failed is not None:
                self._log.error(
                    "simulation failed", target=answer.target.key.text, why=answer.failed
                )
        for traceback in verifications_failed:
            self._log.error("verification failed", why=traceback)
        for transition in happened:
            incident = transition.incident
            summary = (incident.page or {}).get("summary")
            self._log.info(transition.event, id=incident.id, rule=incident.rule, summary=summary)

    def unrouted(
        self, routes: Routes, happened: Iterable[Transition], incidents: Mapping[str, Incident]
    ) -> None:
        """Open pages and tickets that no receiver gets; in the log those that fired just now."""
        for transition in happened:
            incident = transition.incident
            if transition.event == "firing" and (routed := routes.of(incident)).reaches_nobody:
                why = routed.why
                self._log.error("reaches nobody", id=incident.id, rule=incident.rule, why=why)
        firing = [one for one in incidents.values() if one.state == "firing"]
        self._metrics.unrouted.set(sum(routes.of(one).reaches_nobody for one in firing))
