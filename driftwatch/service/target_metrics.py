"""The newest minute of evidence per target, as gauges on driftwatch's own ``/metrics``.

What dashboards show beside vLLM's own series, and what exported alerts read. NULL is an absent
series, never 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

import polars as pl
from prometheus_client import Metric
from prometheus_client.registry import Collector

from driftwatch.collect.schema import KEY_COLUMNS
from driftwatch.diagnose.limits import BUDGET, DEFERRED, KV, SEQS
from driftwatch.evidence import BY_NAME
from driftwatch.model import Target, TargetKey
from driftwatch.rulebook.rules import Rule

# One series per column and target: what the dashboard draws, no more. 27 names,
# so that the page stays below 10 MB at the bound.
# fmt: off
TARGET_COLUMNS: tuple[str, ...] = (
    "requests_per_forward_pass", "effective_batch_size", "tokens_per_forward_pass",
    "tokens_per_second_per_gpu", "generation_tokens_per_second", "requests_per_second",
    "prompt_tokens_mean", "prompt_tokens_mean_ratio", "generation_tokens_mean",
    "generation_tokens_mean_ratio", "batch_assembly_wait_10m_seconds", "ttft_10m_seconds",
    "itl_seconds_mean", "running_requests", "waiting_requests", "waiting_capacity_requests",
    "waiting_deferred_requests", "kv_cache_usage_ratio", "max_num_seqs", "max_num_batched_tokens",
    "binding_margin_ratio", "limit_binding_share_10m_ratio", "gpu_count", "gpu_utilization_ratio",
    "gpu_power_watts", "gpu_sm_clock_hertz", "gpus_lost",
)
# fmt: on
PREFIX = "driftwatch_target_"
LIMIT_BINDS = f"{PREFIX}limit_binds"
# Every target of the minute: what a condition on a missing value is true for.
EVERY_TARGET = f"{PREFIX}answered"
# The state of each rule, by its id.
RULE = "driftwatch_rule"
LEFT_OUT = "driftwatch_targets_without_metrics"
RULES_LEFT_OUT = "driftwatch_targets_without_rule_metrics"
LIMITS = (SEQS, BUDGET, KV, DEFERRED)

# Above it the page would cost seconds and tens of megabytes at every scrape: none is served then.
MOST_TARGETS = 2_000
# The same for the states of rules: 1,000 targets with the shipped rules.
MOST_VALUES = MOST_TARGETS * len(TARGET_COLUMNS)
# As long as Prometheus itself looks back for a sample: an older minute is no "now".
STALE_SECONDS = 300.0

# Help texts.
BINDS_MEANING = (
    "1 for the limit that is full in most of the scrapes of the last 10 min in which requests "
    "queued, 0 for the others; no series where it is not known."
)
ANSWERED_MEANING = (
    "Newest minute: 1 for each target that has answered at least once, 0 for the others."
)
RULE_MEANING = (
    "Newest minute, label `rule`: 1 where the rule is true, 0 where its incident ends, 0.5 where "
    "neither holds; no series where it is unknown."
)
LEFT_OUT_MEANING = (
    f"Targets whose numbers are not served here because there are more than {MOST_TARGETS:,}."
)
RULES_LEFT_OUT_MEANING = (
    "Targets for which the states of rules are not served here, because that would be more than "
    f"{MOST_VALUES:,} numbers."
)

_LABELS = ("instance", "engine", "pool")


@dataclass(frozen=True, slots=True)
class _Minute:
    """Rows of one minute with a ``pool`` column, and when it ended."""

    rows: pl.DataFrame
    end: datetime
    rules: tuple[str, ...]  # ids, columns of rows; none where there are too many targets for them
    left_out: int
    rules_left_out: int


class TargetMetrics(Collector):
    """A collector of prometheus_client over the last evaluated minute.

    Args:
        now: aware, UTC; a minute older than :data:`STALE_SECONDS` is not served.
    """

    def __init__(self, now: Callable[[], datetime]) -> None:
        self._now = now
        self._minute: _Minute | None = None

    def note(
        self,
        rows: pl.DataFrame,
        targets: Mapping[TargetKey, Target],
        *,
        rules: Collection[Rule] = (),
    ) -> None:
        """Take each target's newest minute; evidence without a row changes nothing.

        A target that is not in ``targets`` is no longer served.

        Args:
            rows: with ``ever_seen``, and every column that a rule reads.
            rules: those whose states are served.
        """
        end = rows["end"].max() if len(rows) else None
        if not isinstance(end, datetime):
            return
        pools = pl.DataFrame(
            [(*key, target.pool or "default") for key, target in targets.items()],
            schema=dict.fromkeys(_LABELS, pl.String),
            orient="row",
        )
        # a target that was retired in its last minute is none any more
        newest = rows.filter(pl.col("end") == pl.col("end").max().over(KEY_COLUMNS))
        newest = newest.drop("pool", strict=False)
        newest = newest.join(pools, on=list(KEY_COLUMNS), maintain_order="left").select(
            *(*_LABELS, *TARGET_COLUMNS, "binding_limit"),
            pl.col("ever_seen").fill_null(False).alias(EVERY_TARGET),
            *(_state(rule).alias(rule.id) for rule in rules),
        )
        count, ids = len(newest), tuple(rule.id for rule in rules)
        left_out = count if count > MOST_TARGETS else 0
        if left_out:
            newest = newest.clear()
        fits = count * (len(TARGET_COLUMNS) + len(ids)) <= MOST_VALUES
        # one assignment: a scrape sees the minute before or this one
        self._minute = _Minute(
            newest, end, ids if fits else (), left_out, 0 if fits or left_out else count
        )

    def describe(self) -> Iterable[Metric]:
        """Every family, empty."""
        return _families(None)

    def collect(self) -> Iterable[Metric]:
        """Every family; empty while no fresh minute is known."""
        minute = self._minute
        if minute is not None:
            age = (self._now() - minute.end).total_seconds()
            minute = minute if age <= STALE_SECONDS else None
        return _families(minute)


def _state(rule: Rule) -> pl.Expr:
    """:data:`RULE_MEANING`; each row by its ``pool``."""
    plain = replace(rule, overrides=())
    true = pl.when(plain.verdict).then(1.0)
    state: pl.Expr = true.when(~plain.held).then(0.0).when(~plain.verdict | plain.held).then(0.5)
    for one in reversed(rule.overrides):
        state = pl.when(one.fits).then(_state(one.rule)).otherwise(state)
    return state


def _families(minute: _Minute | None) -> Iterator[Metric]:
    rows = pl.DataFrame() if minute is None else minute.rows
    labels = rows.select(_LABELS).to_dicts() if len(rows) else []
    for name, text, count in (
        (LEFT_OUT, LEFT_OUT_MEANING, 0 if minute is None else minute.left_out),
        (RULES_LEFT_OUT, RULES_LEFT_OUT_MEANING, 0 if minute is None else minute.rules_left_out),
    ):
        family = Metric(name, text, "gauge")
        if minute is not None:
            family.add_sample(name, {}, float(count))
        yield family

    def values(column: str) -> Iterator[tuple[dict[str, str], Any]]:
        for label, value in zip(labels, rows[column] if labels else (), strict=True):
            if value is not None:
                yield label, value

    known = {EVERY_TARGET: (EVERY_TARGET, ANSWERED_MEANING)}
    known |= {column: (PREFIX + column, meaning(column)) for column in TARGET_COLUMNS}
    for column, (name, text) in known.items():
        family = Metric(name, text, "gauge")
        for label, value in values(column):
            if math.isfinite(value):
                family.add_sample(name, label, float(value))
        yield family
    states = Metric(RULE, RULE_MEANING, "gauge")
    for rule in () if minute is None else minute.rules:
        for label, value in values(rule):
            states.add_sample(RULE, {**label, "rule": rule}, value)
    yield states
    binds = Metric(LIMIT_BINDS, BINDS_MEANING, "gauge")
    for label, limit in values("binding_limit"):
        for each in LIMITS:
            binds.add_sample(LIMIT_BINDS, {**label, "limit": each}, float(each == limit))
    yield binds


def meaning(column: str) -> str:
    """Help text of a column's gauge: its definition and unit."""
    definition = BY_NAME[column]
    unit = "" if definition.unit == "1" else f" ({definition.unit})"
    return f"Newest minute: {definition.meaning}{unit}."
