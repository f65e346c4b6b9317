"""Capacity as evidence: asked of the replay every ten minutes, only where it can decide.

A replay costs a second, so it is asked only while lengths moved and a limit binds and nothing else
has decided already (a missed target), for the worst target of each pool and configuration, and
:data:`REPLAYS` times at most; who was left out comes first the next time. Minutes of the grid
(:data:`EVERY`, on the clock) are asked, and their answer holds until the next one, so that the
columns do not depend on how minutes are split over ticks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any

import polars as pl

from driftwatch.collect.schema import KEY_COLUMNS, TIME
from driftwatch.model import Target, TargetKey
from driftwatch.pipeline.last_speed import with_last_speed
from driftwatch.pipeline.past_minutes import WINDOW, PastMinutes
from driftwatch.pipeline.plan import Plan
from driftwatch.pipeline.pool_traffic import minutes_beside
from driftwatch.pipeline.replaying import CAPACITY, Replayed, capacity_of, replayed, why_no_capacity

_KEY = list(KEY_COLUMNS)
EVERY = timedelta(minutes=10)
REPLAYS = 4  # of a minute of the grid: a tick stays within a quarter of a minute
LEFT_OUT = f"left out: {REPLAYS} replays every 10 min; it is asked first the next time"
CAUGHT_UP = "a minute that was caught up after a stop: not replayed"
_REASON = "capacity_unknown_reason"
_OWN_RATE = timedelta(minutes=10)

CAPACITY_SCHEMA: dict[str, pl.DataType | type[pl.DataType]] = {
    "instance": pl.String,
    "engine": pl.String,
    "at": TIME,  # the minute of the grid that asked
    **dict.fromkeys(CAPACITY, pl.Float64),
    _REASON: pl.String,
    "asked_at": TIME,  # when its own pool was replayed last; NULL = never
}

# As BatchDrift asks (rules/batch-limits.yaml); lengths of the minute itself count too, as those of
# two minutes flap. Where a target is missed nothing is left to be decided by capacity.
_MOVED = tuple(
    f"{stem}_tokens_mean{span}_ratio" for stem in ("prompt", "generation") for span in ("", "_2m")
)
_ASKED = (
    pl.any_horizontal([(pl.col(c) >= 1.5) | (pl.col(c) <= 0.67) for c in _MOVED]).fill_null(False)
    & (pl.col("limit_binding_share_10m_ratio") >= 0.5).fill_null(False)
    & ~pl.col("slo_missed").fill_null(False)
)
_ALIKE = ("pool", "model_name", "max_num_seqs", "max_num_batched_tokens", "kv_cache_tokens")

Ask = Callable[..., Replayed]


def nothing_told() -> pl.DataFrame:
    """No target's capacity is known."""
    return pl.DataFrame(schema=CAPACITY_SCHEMA)


def with_capacity(
    rows: pl.DataFrame,
    before: pl.DataFrame,
    past: PastMinutes,
    plan: Plan,
    targets: Mapping[TargetKey, Target],
    gpus: pl.DataFrame | None = None,
    *,
    after: datetime | None = None,
    ask: Ask = replayed,
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Evidence rows with the capacity columns, and what the next tick must know of them.

    Args:
        rows: evidence rows of the minute grid, with what detectors said of them.
        before: :data:`CAPACITY_SCHEMA`, of the ticks before.
        past: minutes up to those of the rows.
        plan: pools, settings, and whether anything is to be replayed.
        targets: those of the rows.
        gpus: GPU readings, for the names of their models.
        after: nothing is replayed for minutes that end then or before; None = for all.
        ask: the replay.
    """
    grid = pl.col("end").dt.truncate(EVERY).alias("at")
    asked = rows.filter((pl.col("end") == grid) & _ASKED)
    if asked.is_empty() and before.is_empty():
        return rows, before
    told = before
    if plan.replays:
        for minute in asked["end"].unique().sort():
            here = asked.filter(pl.col("end") == minute)
            asking = ask if after is None or minute > after else None
            new = _of_minute(here, minute, told, past, plan, targets, gpus, asking)
            told = pl.concat([told, new])
    last = rows["end"].max()
    if not isinstance(last, datetime):
        return rows, before
    beside = told.drop("asked_at").unique([*_KEY, "at"], keep="last", maintain_order=True)
    filled = (
        rows.drop(*CAPACITY, _REASON)
        .with_columns(grid)
        .join(beside, on=[*_KEY, "at"], how="left", maintain_order="left")
        .drop("at")
        .select(rows.columns)
    )
    return filled, told.filter(pl.col("at") > last - EVERY)


def _of_minute(
    asked: pl.DataFrame,
    minute: datetime,
    told: pl.DataFrame,
    past: PastMinutes,
    plan: Plan,
    targets: Mapping[TargetKey, Target],
    gpus: pl.DataFrame | None,
    ask: Ask | None,
) -> pl.DataFrame:
    """What is known of every target that was asked about in one minute of the grid."""
    nothing = LEFT_OUT if ask is not None else CAUGHT_UP
    found: list[dict[str, Any]] = []
    # of the minute of the grid before this one alone, or the turns would depend on the ticks
    earlier = told.filter(pl.col("at") == minute - EVERY, pl.col("asked_at").is_not_null())
    waited = {TargetKey(i, e): at for i, e, at in earlier.select(*_KEY, "asked_at").iter_rows()}
    for number, group in enumerate(_by_turn(asked, waited)):
        worst = group.row(0, named=True)
        key = TargetKey(worst["instance"], worst["engine"])
        answer = None
        if ask is not None and number < REPLAYS:
            minutes = past.judged(key, minute - WINDOW, minute)
            answer = ask(
                targets[key],
                minute,
                minutes,
                with_last_speed(worst, minutes),
                plan,
                replicas=_replicas(targets, targets[key]),
                gpus=gpus,
                ask="assess",
                beside=minutes_beside(targets[key], targets, plan, past, minute),
            )
        for one in group.select(_KEY).iter_rows():
            mine = TargetKey(*one)
            found.append(
                {
                    "instance": mine.instance,
                    "engine": mine.engine,
                    "at": minute,
                    **(_columns(answer, mine, key, minute, past) if answer else _unknown(nothing)),
                    "asked_at": waited.get(mine) if answer is None else minute,
                }
            )
    return pl.DataFrame(found, schema=CAPACITY_SCHEMA, orient="row")


def _by_turn(asked: pl.DataFrame, waited: Mapping[TargetKey, datetime]) -> list[pl.DataFrame]:
    """Targets of one pool and configuration together, the worst of them first; who waited longest
    for an answer before the others, then who makes requests wait longest.
    """
    ordered = asked.sort(
        "limit_binding_share_10m_ratio",
        "queue_wait_estimate_10m_seconds",
        *_KEY,
        descending=[True, True, False, False],
        nulls_last=True,
    )
    groups = ordered.partition_by(_ALIKE, maintain_order=True)

    def turn(group: pl.DataFrame) -> tuple[bool, float]:
        known = [
            waited[k] for one in group.select(_KEY).iter_rows() if (k := TargetKey(*one)) in waited
        ]
        return bool(known), max(known).timestamp() if known else 0.0

    return sorted(groups, key=turn)


def _unknown(why: str) -> dict[str, float | str | None]:
    return {**dict.fromkeys(CAPACITY), _REASON: why}


def _columns(
    answer: Replayed,
    mine: TargetKey,
    replayed_key: TargetKey,
    minute: datetime,
    past: PastMinutes,
) -> dict[str, float | str | None]:
    """The columns of one target, from the answer about one that is configured alike."""
    values = capacity_of(answer.advice)
    known = None not in values.values()
    reason = None if known else why_no_capacity(answer.advice)
    used = values["utilization_ratio"]
    if mine != replayed_key and used is not None:
        # the same capacity, its own demand
        rates = [_first_tokens(key, minute, past) for key in (mine, replayed_key)]
        own, other = rates
        values["utilization_ratio"] = used * own / other if own is not None and other else None
    return {**values, _REASON: reason}


def _first_tokens(key: TargetKey, minute: datetime, past: PastMinutes) -> float | None:
    """Requests that got their first token in the last ten minutes; None = unknown."""
    found = past.minutes(key, minute - _OWN_RATE, minute)["ttft_seconds_count"].drop_nulls()
    return float(found.sum()) if len(found) else None


def _replicas(targets: Mapping[TargetKey, Target], target: Target) -> int:
    return sum(1 for other in targets.values() if other.pool == target.pool)
