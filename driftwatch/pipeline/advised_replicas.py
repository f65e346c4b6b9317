"""How many replicas a pool needs for its demand at today's mix, for autoscalers. Pure.

The pool's demand of the last ten minutes over the capacity of its weakest replica by the slowest
step-time model, so that the load stays at or below a share of the capacity. Where any input is
unknown there is no number, and a reason.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

import polars as pl

from driftwatch.collect.schema import KEY_COLUMNS, TIME
from driftwatch.model import Reason, TargetKey
from driftwatch.recommend.replicas import replicas_for

DEMAND_WINDOW = timedelta(minutes=10)
# A minute or two may be missing: as rules take ten minutes for observed from 480 s on.
LEAST_MINUTES = 8
# An answer of a fleet with many pools may be so old: the hour of traffic that it is computed of.
STANDS = timedelta(hours=1)

ARRIVALS_SCHEMA: dict[str, pl.DataType | type[pl.DataType]] = {
    "pool": pl.String,
    "end": TIME,
    # first tokens and rejected requests of all its targets; NULL = unknown of one of them
    "served_per_second": pl.Float64,
    "waiting_requests": pl.Float64,
}
NO_MINUTES = Reason("minutes", "fewer than 8 of the last 10 minutes are known of every server")
NOT_SIMULATED = Reason("not_simulated", "not simulated yet")


@dataclass(frozen=True, slots=True)
class Capacity:
    """What one engine serves with the required share in target, as simulated."""

    at: datetime  # end of the traffic that it is of
    requests_per_second: float | None = None
    low_requests_per_second: float | None = None  # by the slowest step-time model
    reason: Reason = NOT_SIMULATED  # why it is unknown

    def stands(self, now: datetime) -> bool:
        """Whether it may still be used."""
        return now - self.at <= STANDS


@dataclass(frozen=True, slots=True)
class Advised:
    """Replicas of one pool; None = unknown, for the reason."""

    replicas: int | None
    reason: Reason | None = None


def arrivals_of(rows: pl.DataFrame) -> pl.DataFrame:
    """:data:`ARRIVALS_SCHEMA` of minutes: evidence rows, or stored ones.

    A target that never answered (``ever_seen``, where the rows have it) has no requests.
    """
    loading = ~pl.col("ever_seen") if "ever_seen" in rows.columns else pl.lit(value=False)
    counted = pl.col("ttft_seconds_count") + pl.col("rejected_requests_total").fill_null(0.0)
    served = pl.when(loading).then(0.0).otherwise(counted / pl.col("duration_seconds"))
    waiting = pl.when(loading).then(0.0).otherwise(pl.col("waiting_requests"))

    def whole(values: pl.Expr, name: str) -> pl.Expr:
        complete = values.is_not_null().all() & values.is_finite().all()
        return pl.when(complete).then(values.sum()).alias(name)

    columns = [whole(served, "served_per_second"), whole(waiting, "waiting_requests")]
    sums = rows.group_by("pool", "end").agg(*columns).sort("pool", "end")
    return sums.select(pl.col(name).cast(dtype) for name, dtype in ARRIVALS_SCHEMA.items())


def demand_of(arrivals: pl.DataFrame, now: datetime) -> float | None:
    """Requests a second that came to one pool in the last ten minutes: served, and by how much the
    queue grew; None = unknown.
    """
    recent = arrivals.filter(pl.col("end") > now - DEMAND_WINDOW, pl.col("end") <= now)
    minutes = recent.drop_nulls().sort("end").to_dicts()
    if len(minutes) < LEAST_MINUTES or minutes[-1]["end"] != now:
        return None
    seconds = (now - minutes[0]["end"]).total_seconds()
    growth = max(0.0, minutes[-1]["waiting_requests"] - minutes[0]["waiting_requests"])
    served = sum(float(one["served_per_second"]) for one in minutes)
    return float(served / len(minutes) + growth / seconds)


def advised_replicas(
    keys: Iterable[TargetKey],
    demand: float | None,
    capacities: Mapping[TargetKey, Capacity],
    now: datetime,
    load_ratio: float,
) -> Advised:
    """Of the targets of one pool; a replica is an instance with all its engines."""
    by_instance: dict[str, float] = {}
    for key in sorted(keys):
        one = capacities.get(key)
        low = None if one is None or not one.stands(now) else one.low_requests_per_second
        if not low:
            why = NOT_SIMULATED if one is None or not one.stands(now) else one.reason
            return Advised(None, Reason(why.code, f"capacity of {key.text} unknown: {why.text}"))
        by_instance[key.instance] = by_instance.get(key.instance, 0.0) + low
    if demand is None:
        return Advised(None, NO_MINUTES)
    return Advised(replicas_for(demand, min(by_instance.values()), load_ratio))


def keys_of(rows: pl.DataFrame) -> list[TargetKey]:
    """The targets of rows, in their order."""
    return [TargetKey(*one) for one in rows.select(KEY_COLUMNS).iter_rows()]
