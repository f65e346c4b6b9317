"""From "this rule fires for the pool" to a finding: the worst target speaks for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta

import polars as pl

from driftwatch.collect.schema import KEY_COLUMNS
from driftwatch.model import Finding, Target, TargetKey, Transition
from driftwatch.service.findings import reasons

_KEY = list(KEY_COLUMNS)


def pool_findings(
    firing: Sequence[Transition],
    targets: Mapping[TargetKey, Target],
    rows: pl.DataFrame,
    verdicts: pl.DataFrame,
) -> dict[str, Finding]:
    """Incident id → finding, for every incident of a pool that fires.

    Args:
        firing: transitions of rules that are per pool.
        targets: every target of the rows.
        rows: evidence rows of the minutes of this tick.
        verdicts: one Boolean column per rule id, beside ``rows``.
    """
    found: dict[str, Finding] = {}
    for transition in firing:
        incident = transition.incident
        of_pool = rows.with_columns(verdict=verdicts[incident.rule]).filter(
            (pl.col("pool") == incident.target["pool"]) & (pl.col("end") == transition.at)
        )
        # gone for longest first
        concerned = of_pool.filter("verdict").sort(
            "coverage_missing_seconds", *_KEY, descending=[True, False, False], nulls_last=True
        )
        row = concerned.drop("verdict").row(0, named=True)
        keys = tuple(TargetKey(*key) for key in concerned.select(_KEY).iter_rows())
        found[incident.id] = Finding(
            rule=incident.rule,
            target=targets[keys[0]],
            minute=transition.at - timedelta(minutes=1),
            evidence={name: value for name, value in row.items() if not isinstance(value, list)},
            reasons=reasons(row),
            concerned=keys,
            of_targets=of_pool.height,
        )
    return found
