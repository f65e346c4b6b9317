"""From "this rule fires for the pool" to a finding: the worst target speaks for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

import polars as pl

from driftwatch.collect.schema import KEY_COLUMNS
from driftwatch.model import Finding, Target, TargetKey, Transition
from driftwatch.pipeline.findings import reasons, reference_of
from driftwatch.rulebook.rules import Rule

_KEY = list(KEY_COLUMNS)


# column of a rule → what is highest of its worst target
_WORST: Mapping[str, pl.Expr] = {
    "slower_at_equal_load": -pl.col("speed_at_equal_load_ratio"),
    "slower_than_pool": -pl.col("speed_against_pool_ratio"),
    "seconds_since_last_token": pl.col("seconds_since_last_token"),
    "limit_binding_share_10m_ratio": pl.col("batch_assembly_wait_10m_seconds"),
    **{
        # longer and shorter are as far
        f"{stem}_mean_{span}_ratio": pl.col(f"{stem}_mean_{span}_ratio").log().abs()
        for span in ("2m", "10m")
        for stem in ("prompt_tokens", "generation_tokens")
    },
    "latency_creeps": -pl.col("speed_slope_14d_ratio"),
}


def worst_of(transition: Transition, rows: pl.DataFrame, rules: Sequence[Rule]) -> TargetKey:
    """Of the targets that one incident speaks for, the one whose numbers its page shows.

    Args:
        transition: of an incident of several targets, some of which are in the minute's rows.
        rows: evidence rows of the minutes of this tick.
        rules: every rule.
    """
    rule = next(rule for rule in rules if rule.id == transition.incident.rule)
    height = next((by for name, by in _WORST.items() if name in rule.columns), pl.lit(0.0))
    keys = pl.DataFrame(transition.concerned, schema=_KEY, orient="row")
    here = rows.filter(pl.col("end") == transition.at).join(keys, on=_KEY, how="semi")
    ordered = here.sort(height, *_KEY, descending=[True, False, False], nulls_last=True)
    return TargetKey(*ordered.select(_KEY).row(0))


def pool_findings(
    firing: Sequence[Transition],
    targets: Mapping[TargetKey, Target],
    rows: pl.DataFrame,
    verdicts: pl.DataFrame,
    scrapes: pl.DataFrame,
) -> dict[str, tuple[Finding, Mapping[str, Any]]]:
    """Incident id → finding and its evidence row, for every incident of a pool that fires.

    Args:
        firing: transitions of rules that are per pool.
        targets: every target of the rows.
        rows: evidence rows of the minutes of this tick.
        verdicts: one Boolean column per rule id, beside ``rows``.
        scrapes: those of the last minutes, failed ones with their reason.
    """
    found: dict[str, tuple[Finding, Mapping[str, Any]]] = {}
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
        finding = Finding(
            rule=incident.rule,
            target=targets[keys[0]],
            minute=transition.at - timedelta(minutes=1),
            evidence={name: value for name, value in row.items() if not isinstance(value, list)},
            reasons=reasons(row) | _all_gone(concerned, scrapes),
            reference=reference_of(row),
            concerned=keys,
            of_targets=of_pool.height,
        )
        found[incident.id] = finding, row
    return found


def _all_gone(concerned: pl.DataFrame, scrapes: pl.DataFrame) -> dict[str, str]:
    """Why nothing is seen of the targets; empty where a part of some is, or the reason is unknown.

    Nothing is seen of a target where no scrape was ok for as long as its first input is gone.
    """
    gone = pl.duration(microseconds=pl.col("coverage_missing_seconds") * 1e6)
    asked = concerned.select(*_KEY, "end", since=pl.col("end") - gone)
    told = (
        scrapes.select(*_KEY, "time", "ok", "reason")
        .join(asked, on=_KEY)
        .filter(pl.col("time").is_between("since", "end", closed="left"))
        .sort(*_KEY, "time")
        .group_by(_KEY, maintain_order=True)
        .agg(pl.col("ok").any(), pl.col("reason").last())
    )
    if len(told) < len(concerned) or told["ok"].any() or told["reason"].null_count():
        return {}
    counts = (
        told.group_by("reason").len("targets").sort("targets", "reason", descending=[True, False])
    )
    if len(counts) == 1:
        return {"coverage_missing_inputs": counts["reason"][0]}
    each = [f"{number} {reason}" for reason, number in counts.iter_rows()]
    return {"coverage_missing_inputs": ", ".join(each)}
