"""Capacity as evidence: simulated every ten minutes, only where it can decide a rule.

A question costs a second. So it is asked only where a rule would be true by the capacity columns,
about the worst target of each pool and configuration, :data:`MOST_SIMULATED` times at most; who was
left out comes first the next time. Minutes of the grid (:data:`EVERY`, on the clock) are asked
about, and the answer holds until the next one, so that the columns do not depend on how minutes are
split over ticks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import product
from typing import Any

import polars as pl

from driftwatch.collect.schema import KEY_COLUMNS
from driftwatch.diagnose.states import with_states
from driftwatch.model import TargetKey
from driftwatch.pipeline.minutes import WINDOW, PastMinutes, with_last_speed
from driftwatch.pipeline.plan import Plan
from driftwatch.pipeline.question import (
    CAPACITY,
    Moment,
    TargetAdvice,
    capacity_of,
    peer_minutes,
    target_advice,
    why_no_capacity,
)
from driftwatch.pipeline.state import CAPACITY_REASON, CAPACITY_SCHEMA, State
from driftwatch.rulebook.rules import Rule

_KEY = list(KEY_COLUMNS)
EVERY = timedelta(minutes=10)
MOST_SIMULATED = 4  # of a minute of the grid: a tick stays within a quarter of a minute
LEFT_OUT = (
    f"left out: {MOST_SIMULATED} targets are simulated every 10 min, this one first next time"
)
CAUGHT_UP = "not simulated: a minute that driftwatch caught up with after a stop"
_OWN_RATE = timedelta(minutes=10)

_ALIKE = ("pool", "model_name", "max_num_seqs", "max_num_batched_tokens", "kv_cache_tokens")
# An answer is used for ten minutes, and these columns flap meanwhile: test the steadier column.
_STEADIER = {"limit_binding_share_10m_low_ratio": pl.col("limit_binding_share_10m_ratio")}
_LENGTHS = {f"{s}_mean_2m_ratio": f"{s}_mean_ratio" for s in ("prompt_tokens", "generation_tokens")}
_EXTREMES = (0.0, 1e9)
_BY_CAPACITY = (*CAPACITY, "target_in_danger")
Ask = Callable[..., TargetAdvice]


def decided_by_capacity(rows: pl.DataFrame, rules: Sequence[Rule]) -> pl.Series:
    """Whether some capacity would make one of the rules true, row for row of the evidence.

    A queue that is empty in this minute does not rule that out. Where a target is missed already,
    capacity decides nothing.
    """
    drained = dict.fromkeys(("binding_waiting_requests", "waiting_capacity_requests"), pl.lit(0.0))
    views = [
        rows.with_columns(**_STEADIER, **drained),
        rows.with_columns(
            **_STEADIER, **drained, **{to: pl.col(by) for to, by in _LENGTHS.items()}
        ),
    ]
    true = pl.repeat(False, len(rows), eager=True)
    for rule, view in product(rules, views):
        for values in product(_EXTREMES, repeat=len(CAPACITY)):
            tried = with_states(
                view.with_columns(
                    pl.lit(value).alias(name) for name, value in zip(CAPACITY, values, strict=True)
                )
            )
            for one in rule.variants:
                true |= tried.select(one.when.expression.alias("true"))["true"].fill_null(False)
    return true & ~rows["slo_missed"].fill_null(False)


def with_capacity(
    rows: pl.DataFrame, state: State, past: PastMinutes, plan: Plan, *, ask: Ask = target_advice
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Evidence rows of the minute grid with the capacity columns, and what the next tick must know
    of them: :data:`CAPACITY_SCHEMA`, as the state's ``capacity``.
    """
    before = state.capacity
    rules = [
        rule
        for rule in plan.enabled
        if any(not one.when.columns.isdisjoint(_BY_CAPACITY) for one in rule.variants)
    ]
    grid = pl.col("end").dt.truncate(EVERY).alias("at")
    due = rows.filter(pl.col("end") == grid)
    if len(due) and rules:
        due = due.filter(decided_by_capacity(due, rules))
    last = rows["end"].max()
    if not isinstance(last, datetime) or ((due.is_empty() or not rules) and before.is_empty()):
        return rows, before
    answers = before
    if plan.simulations and rules:
        for minute in due["end"].unique().sort():
            asks = state.simulates_after is None or minute > state.simulates_after
            groups = _by_turn(due.filter(pl.col("end") == minute), minute, answers)
            new: list[dict[str, Any]] = []
            for number, (group, waited) in enumerate(groups):
                worst = group.row(0, named=True)
                answer = None
                if asks and number < MOST_SIMULATED:
                    answer = ask(moment_of(worst, past, plan, state), plan, ask="assess")
                nothing = LEFT_OUT if asks else CAUGHT_UP
                new += _of_group(group, answer, minute, past, waited, nothing)
            answers = pl.concat([answers, pl.DataFrame(new, schema=CAPACITY_SCHEMA, orient="row")])
    beside = answers.drop("asked_at").unique([*_KEY, "at"], keep="last", maintain_order=True)
    filled = (
        rows.drop(*CAPACITY, CAPACITY_REASON)
        .with_columns(grid)
        .join(beside, on=[*_KEY, "at"], how="left", maintain_order="left")
        .drop("at")
        .select(rows.columns)
    )
    return filled, answers.filter(pl.col("at") > last - EVERY)


_Waited = Mapping[TargetKey, datetime]


def _by_turn(
    due: pl.DataFrame, minute: datetime, answers: pl.DataFrame
) -> list[tuple[pl.DataFrame, _Waited]]:
    """Targets of one pool and configuration together, the worst of them first; who waited longest
    for an answer before the others, then who makes requests wait longest.
    """
    # of the minute of the grid before this one alone, or the turns would depend on the ticks
    earlier = answers.filter(pl.col("at") == minute - EVERY, pl.col("asked_at").is_not_null())
    waited = {TargetKey(i, e): at for i, e, at in earlier.select(*_KEY, "asked_at").iter_rows()}
    ordered = worst_first(due)

    def turn(group: pl.DataFrame) -> tuple[bool, float]:
        keys = (TargetKey(*one) for one in group.select(_KEY).iter_rows())
        waits = [waited[key] for key in keys if key in waited]
        return bool(waits), max(waits).timestamp() if waits else 0.0

    groups = sorted(ordered.partition_by(_ALIKE, maintain_order=True), key=turn)
    return [(group, waited) for group in groups]


def worst_first(rows: pl.DataFrame) -> pl.DataFrame:
    """Evidence rows by how full their limits are, then by how long requests wait."""
    return rows.sort(
        "limit_binding_share_10m_ratio",
        "queue_wait_estimate_10m_seconds",
        *_KEY,
        descending=[True, True, False, False],
        nulls_last=True,
    )


def moment_of(worst: Mapping[str, Any], past: PastMinutes, plan: Plan, state: State) -> Moment:
    """What is asked about the target of an evidence row."""
    key, minute = TargetKey(worst["instance"], worst["engine"]), worst["end"]
    target, minutes = state.targets[key], past.judged(key, minute - WINDOW, minute)
    return Moment(
        target,
        minute,
        minutes,
        with_last_speed(worst, minutes),
        beside=peer_minutes(target, state.targets, plan, past, minute),
        replicas=sum(1 for other in state.targets.values() if other.pool == target.pool),
        gpus=state.gpus,
    )


def _of_group(
    group: pl.DataFrame,
    answer: TargetAdvice | None,
    minute: datetime,
    past: PastMinutes,
    waited: _Waited,
    nothing: str,
) -> list[dict[str, Any]]:
    """Rows of :data:`CAPACITY_SCHEMA`: the answer about the first one for each of the group."""
    values: dict[str, float | None] = dict.fromkeys(CAPACITY)
    reason: str | None = nothing
    if answer is not None:
        values = capacity_of(answer.advice)
        reason = why_no_capacity(answer.advice) if None in values.values() else None
    used, rows = values["utilization_ratio"], []
    keys = [TargetKey(*one) for one in group.select(_KEY).iter_rows()]
    for key in keys:
        share = used
        if key != keys[0] and used is not None:  # the same capacity, its own demand
            own, other = (_first_tokens(one, minute, past) for one in (key, keys[0]))
            share = used * own / other if own is not None and other else None
        rows.append(
            {
                "instance": key.instance,
                "engine": key.engine,
                "at": minute,
                **values,
                "utilization_ratio": share,
                CAPACITY_REASON: reason,
                "asked_at": waited.get(key) if answer is None else minute,
            }
        )
    return rows


def _first_tokens(key: TargetKey, minute: datetime, past: PastMinutes) -> float | None:
    """Requests that got their first token in the last ten minutes; None = unknown."""
    counts = past.minutes(key, minute - _OWN_RATE, minute)["ttft_seconds_count"].drop_nulls()
    return float(counts.sum()) if len(counts) else None
