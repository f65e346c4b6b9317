"""One rule over evidence: how often it held, how near it came, which inputs it lacks. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

import polars as pl

from driftwatch.model import TargetKey
from driftwatch.pipeline.unknown_reasons import reasons
from driftwatch.rulebook.comparisons import Comparison, comparisons, failing, parts_of
from driftwatch.rulebook.rules import Rule

_VERDICT, _MINUTES = "rule_verdict", "minutes"
# Columns that reasons need, beside those of the rule.
_OF_REASONS = (
    "gpu_reasons", "speed_unknown_reason",
    "speed_reference", "reference_kind", "gpu_count", "waiting_capacity_requests", "binding_limit",
    "max_num_seqs_inferred", "forward_passes_overcounted",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class PoolHistory:
    """A rule in one pool, over the sum of its targets' minutes."""

    pool: str
    targets: int
    minutes: float  # with a row
    true_minutes: float  # in which the rule was true
    unknown: float  # in which it had no verdict
    # column → its lowest and highest value over the targets' newest rows; None = unknown for all
    values: Mapping[str, tuple[Any, Any] | None]
    # column that is unknown in the newest row of a target → why
    lacks: Mapping[str, str]


@dataclass(frozen=True, slots=True, eq=False)
class NearestMiss:
    """The minutes in which the fewest comparisons failed, by the least."""

    target: TargetKey
    pool: str
    start: datetime
    end: datetime
    failing: Sequence[Comparison]
    comparisons: int  # of the condition
    values: Mapping[str, Any]  # of the columns in the comparisons


@dataclass(frozen=True, slots=True, eq=False)
class RuleHistory:
    """A rule over some evidence."""

    since: datetime  # of the first row
    until: datetime  # of the last one
    pools: Sequence[PoolHistory]
    nearest: NearestMiss | None  # None where no minute was false

    @property
    def judged(self) -> float:
        """Minutes of targets with a verdict."""
        return sum(pool.minutes - pool.unknown for pool in self.pools)

    @property
    def true_minutes(self) -> float:
        """Those in which it was true."""
        return sum(pool.true_minutes for pool in self.pools)

    @property
    def unknown(self) -> float:
        """Those without a verdict."""
        return sum(pool.unknown for pool in self.pools)


def slim(rule: Rule, evidence: pl.DataFrame) -> pl.DataFrame:
    """The columns that :func:`rule_history` needs; ``minutes`` is 1 where it is no column.

    A rule that is off is evaluated as if it were on.
    """
    rule = rule if rule.is_evaluated else replace(rule, enabled=True)
    names = ("instance", "engine", "pool", "start", "end", *sorted(rule.columns), *_OF_REASONS)
    length = pl.col(_MINUTES) if _MINUTES in evidence.columns else pl.lit(1.0)
    return evidence.select(
        *(pl.col(n) for n in dict.fromkeys(names) if n in evidence.columns),
        rule.verdict.alias(_VERDICT),
        length.fill_null(0.0).alias(_MINUTES),
    )


def rule_history(rule: Rule, rows: pl.DataFrame) -> RuleHistory:
    """The history of a rule over the rows.

    Args:
        rows: of :func:`slim`, at least one.
    """
    rows = rows.sort("pool", "instance", "engine", "end", nulls_last=True)
    since, until = rows["start"].min(), rows["end"].max()
    assert isinstance(since, datetime) and isinstance(until, datetime)  # noqa: S101
    return RuleHistory(
        since,
        until,
        [
            _pool(rule, str(name or "default"), of_pool)
            for (name,), of_pool in rows.group_by("pool", maintain_order=True)
        ],
        _nearest(rule, rows),
    )


def _pool(rule: Rule, name: str, rows: pl.DataFrame) -> PoolHistory:
    newest = rows.group_by("instance", "engine", maintain_order=True).tail(1)
    lacks: dict[str, str] = {}
    values: dict[str, tuple[Any, Any] | None] = {}
    for column in sorted(rule.columns):
        present = sorted(newest[column].drop_nulls().to_list())
        values[column] = (present[0], present[-1]) if present else None
    for row in newest.iter_rows(named=True):
        why = reasons(row)
        lacks |= {
            column: why.get(column, "it has no value")
            for column in sorted(rule.columns)
            if row[column] is None and column not in lacks
        }
    true_minutes = float(rows.filter(pl.col(_VERDICT))[_MINUTES].sum())
    unknown = float(rows.filter(pl.col(_VERDICT).is_null())[_MINUTES].sum())
    total = float(rows[_MINUTES].sum())
    return PoolHistory(name, len(newest), total, true_minutes, unknown, values, lacks)


def _nearest(rule: Rule, rows: pl.DataFrame) -> NearestMiss | None:
    missed = rows.filter(pl.col(_VERDICT) == False)  # noqa: E712 - NULL is no miss
    if missed.is_empty():
        return None
    costs = pl.lit(None, pl.Float64)
    for variant, fits in [(rule, pl.lit(True)), *((o.rule, o.fits) for o in rule.overrides[::-1])]:
        costs = pl.when(fits).then(parts_of(variant.when).cost).otherwise(costs)
    at = missed.select(costs.alias("cost").arg_min()).item()
    row = missed.slice(int(at), 1)
    values = row.row(0, named=True)
    part = parts_of(rule.in_pool(values["pool"]).when)
    return NearestMiss(
        TargetKey(values["instance"], values["engine"]),
        str(values["pool"] or "default"),
        values["start"],
        values["end"],
        failing(part, row),
        sum(1 for _ in comparisons(part)),
        {name: values[name] for name in sorted(rule.columns)},
    )
