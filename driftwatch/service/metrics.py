"""driftwatch's own metrics, which ``/metrics`` serves: of the process, of each target's newest
minute, of the states of rules, of open incidents, of deliveries that wait.

What is unknown is an absent series, never 0.
"""

from __future__ import annotations

import math
from collections import Counter as Tally
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Generic, TypeVar, get_args

import polars as pl
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Info, Metric
from prometheus_client.registry import Collector

from driftwatch import __version__
from driftwatch.clock import SystemClock
from driftwatch.collect.schema import KEY_COLUMNS
from driftwatch.diagnose.limits import BUDGET, DEFERRED, KV, SEQS
from driftwatch.evidence import BY_NAME
from driftwatch.incidents.delivery import Backlog
from driftwatch.incidents.incident import Incident, IncidentState
from driftwatch.model import Severity, Target, TargetKey
from driftwatch.rulebook.rules import Rule

# One series per column and target: what the dashboard draws, no more.
# fmt: off
TARGET_COLUMNS: tuple[str, ...] = (
    "requests_per_forward_pass", "tokens_per_forward_pass", "tokens_per_second_per_gpu",
    "generation_tokens_per_second", "requests_per_second", "prompt_tokens_mean",
    "prompt_tokens_mean_ratio", "generation_tokens_mean", "generation_tokens_mean_ratio",
    "batch_assembly_wait_10m_seconds", "running_requests", "kv_cache_usage_ratio", "max_num_seqs",
    "max_num_batched_tokens", "binding_margin_ratio", "limit_binding_share_10m_ratio", "gpu_count",
    "gpu_utilization_ratio", "gpu_power_watts", "gpu_sm_clock_hertz", "gpus_lost",
)
# fmt: on
PREFIX = "driftwatch_target_"
LIMIT_BINDS = f"{PREFIX}limit_binds"
EVERY_TARGET = f"{PREFIX}answered"  # of every target: what "no value" is true of
RULE = "driftwatch_rule"
LEFT_OUT = "driftwatch_targets_without_metrics"
RULES_LEFT_OUT = "driftwatch_targets_without_rule_metrics"
LIMITS = (SEQS, BUDGET, KV, DEFERRED)

# Above it the page would cost seconds and tens of megabytes at every scrape: none is served then.
MOST_TARGETS = 2_000
# The same for the states of rules: 1,000 targets with the shipped rules.
MOST_VALUES = 54_000
# As long as Prometheus itself looks back for a sample: an older minute is no "now".
STALE_SECONDS = 300.0

MEANINGS = {
    LIMIT_BINDS: "1 for the limit that is full in most of the scrapes of the last 10 min in which "
    "requests queued, 0 for the others; no series where it is not known.",
    EVERY_TARGET: "Newest minute: 1 for each target that has answered at least once, 0 for the "
    "others.",
    RULE: "Newest minute, label `rule`: 1 where the rule is true, 0 where its incident ends, 0.5 "
    "where neither holds; no series where it is unknown.",
    LEFT_OUT: f"Targets whose numbers are not served here because there are more than "
    f"{MOST_TARGETS:,}.",
    RULES_LEFT_OUT: "Targets for which the states of rules are not served here, because that would "
    f"be more than {MOST_VALUES:,} numbers.",
}

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
_OF_TARGET = ("instance", "engine", "pool")
_OF_INCIDENT = ("rule", "pool", "severity", "state")

T = TypeVar("T")


class Noted(Collector, Generic[T]):
    """Exports the newest value as metric families; ``families(None)``: there is none yet."""

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
        # fmt: off
        self.tick_seconds = Histogram("driftwatch_tick_duration_seconds",
            "How long a tick took, delivery not included.",
            buckets=(0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60), registry=registry)
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
        self.problems = counter("source_problems", "What sources could not read.")
        self.attempts = counter("deliveries",
            "Delivery attempts by receiver and result: sent, retried, dead.", "receiver", "result")
        self.batches = gauge("batches", "Batches that this process ticked last.")
        self.unwatched = gauge("batches_unwatched",
            "Batches without a tick for 150 s, whoever was to do it.")
        self.heartbeats = counter("heartbeats",
            "Heartbeats by result: sent, failed, withheld (a tick that was not complete).",
            "result")
        self.unrouted = gauge("unrouted_incidents", "Open pages and tickets that nobody gets.")
        self.slack_connected = gauge("slack_connected",
            "1 while Slack's buttons can be used, by receiver.", "receiver")
        self.alertmanager_up = gauge("alertmanager_up",
            "1 if an Alertmanager took the last alerts that were posted to it, else 0.",
            "receiver", "alertmanager")
        # fmt: on
        self._minute: Noted[_Minute] = Noted(self._of_minute)
        self._incidents: Noted[list[Incident]] = Noted(_of_incidents)
        self._backlog: Noted[Mapping[str, Backlog]] = Noted(self._of_backlog)
        for collector in (self._minute, self._incidents, self._backlog):
            registry.register(collector)

    def note_minutes(
        self,
        rows: pl.DataFrame,
        targets: Mapping[TargetKey, Target],
        rules: Collection[Rule] = (),
    ) -> None:
        """Serve each target's newest minute; a target that is not in ``targets`` is retired.

        Args:
            rows: at least one, with ``ever_seen`` and every column that a rule reads.
            rules: those whose states are served.
        """
        self._minute.note(_minute_of(rows, targets, rules))

    def note_incidents(self, incidents: Iterable[Incident]) -> None:
        """The incidents after a complete tick; resolved ones are left out."""
        self._incidents.note(sorted((i for i in incidents if i.state != "resolved"), key=_urgency))

    def note_backlog(self, backlog: Mapping[str, Backlog], receivers: Iterable[str]) -> None:
        """What waits; ``receivers``: the configured ones, which have a series also at 0."""
        self._backlog.note({**dict.fromkeys(receivers, Backlog(0, None, 0)), **backlog})

    def note_reload(self, *, good: bool, at: datetime) -> None:
        """Configuration and rules were read: taken if ``good``, else refused."""
        self._reload_good.set(good)
        if good:
            self._reload_at.set(at.timestamp())

    def _of_minute(self, minute: _Minute | None) -> Iterable[Metric]:
        is_now = minute and (self._now() - minute.end).total_seconds() <= STALE_SECONDS
        return _of_targets(minute if is_now else None)

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


@dataclass(frozen=True, slots=True)
class _Minute:
    """Rows of one minute with a ``pool`` column, and when it ended."""

    rows: pl.DataFrame
    end: datetime
    rules: tuple[str, ...]  # ids, columns of rows; none where there are too many targets for them
    left_out: int
    rules_left_out: int


def _minute_of(
    rows: pl.DataFrame, targets: Mapping[TargetKey, Target], rules: Collection[Rule]
) -> _Minute:
    pools = pl.DataFrame(
        [(*key, target.pool or "default") for key, target in targets.items()],
        schema=dict.fromkeys(_OF_TARGET, pl.String),
        orient="row",
    )
    # a target that was retired in its last minute is none any more
    newest = rows.filter(pl.col("end") == pl.col("end").max().over(KEY_COLUMNS))
    newest = newest.drop("pool", strict=False)
    newest = newest.join(pools, on=list(KEY_COLUMNS), maintain_order="left").select(
        *(*_OF_TARGET, *TARGET_COLUMNS, "binding_limit"),
        pl.col("ever_seen").fill_null(False).alias(EVERY_TARGET),
        *(_state(rule).alias(rule.id) for rule in rules),
    )
    count, ids = len(newest), tuple(rule.id for rule in rules)
    left_out = count if count > MOST_TARGETS else 0
    fits = count * (len(TARGET_COLUMNS) + len(ids)) <= MOST_VALUES
    end: Any = rows["end"].max()
    kept = newest.clear() if left_out else newest
    return _Minute(kept, end, ids if fits else (), left_out, 0 if fits or left_out else count)


def _state(rule: Rule) -> pl.Expr:
    """The value of :data:`RULE` (see :data:`MEANINGS`); each row by its ``pool``."""
    plain = rule.model_copy(update={"overrides": ()})
    true = pl.when(plain.verdict).then(1.0)
    state: pl.Expr = true.when(~plain.held).then(0.0).when(~plain.verdict | plain.held).then(0.5)
    for one in reversed(rule.overrides):
        state = pl.when(one.fits).then(_state(one.rule)).otherwise(state)
    return state


def _of_targets(minute: _Minute | None) -> Iterator[Metric]:
    """Every family; empty without a minute."""
    rows = pl.DataFrame() if minute is None else minute.rows
    labels = rows.select(_OF_TARGET).to_dicts() if len(rows) else []

    def values(column: str) -> Iterator[tuple[dict[str, str], Any]]:
        for label, value in zip(labels, rows[column] if labels else (), strict=True):
            if value is not None:
                yield label, value

    families = {name: Metric(name, text, "gauge") for name, text in MEANINGS.items()}
    if minute is not None:
        families[LEFT_OUT].add_sample(LEFT_OUT, {}, float(minute.left_out))
        families[RULES_LEFT_OUT].add_sample(RULES_LEFT_OUT, {}, float(minute.rules_left_out))
    for label, answered in values(EVERY_TARGET):
        families[EVERY_TARGET].add_sample(EVERY_TARGET, label, float(answered))
    for rule in () if minute is None else minute.rules:
        for label, value in values(rule):
            families[RULE].add_sample(RULE, {**label, "rule": rule}, value)
    for label, limit in values("binding_limit"):
        for each in LIMITS:
            binds = float(each == limit)
            families[LIMIT_BINDS].add_sample(LIMIT_BINDS, {**label, "limit": each}, binds)
    yield from families.values()
    for column in TARGET_COLUMNS:
        name, definition = PREFIX + column, BY_NAME[column]
        unit = "" if definition.unit == "1" else f" ({definition.unit})"
        family = Metric(name, f"Newest minute: {definition.meaning}{unit}.", "gauge")
        for label, value in values(column):
            if math.isfinite(value):
                family.add_sample(name, label, float(value))
        yield family


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
        named = [tuple(getattr(i, n) for n in _OF_INCIDENT) for i in incidents[:MOST_INCIDENTS]]
        for values in dict.fromkeys(named):
            each.add_sample(ONE, dict(zip(_OF_INCIDENT, values, strict=True)), 1.0)
    return number, each


def _urgency(incident: Incident) -> tuple[int, bool, str]:
    """Pages first, what fires before what is pending; the rest in an order that stays."""
    return _SEVERITIES.index(incident.severity), not incident.is_firing, incident.key
