"""Rows of the store folded into cells of ten minutes, of which the whole report is made.

Minutes are rolled up into ten of them after two days, so a cell is the finest that every day of a
week has. What adds up is added, gauges are averaged over time, and why a minute had no verdict is
counted in server-minutes (of a roll-up it is its last minute's reason for all ten).
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta

import polars as pl

from driftwatch.collect.schema import KEY_COLUMNS, TIME
from driftwatch.knobs import COLUMN_KNOBS
from driftwatch.model import Slo
from driftwatch.signals.histograms import share_within

CELL, CELL_LENGTH = "10m", timedelta(minutes=10)
HOUR_SECONDS, MINUTE_SECONDS = 3600.0, 60.0
# why a minute has no verdict on the engine's speed, in the order in which they are printed
REASONS = (
    "idle", "out of tuned range", "arming", "too few minutes", "warming up",
    "inputs missing", "no data",
)  # fmt: skip
# speed_unknown_code → which of the above; every other one is a missing input
_OF_CODES: Mapping[str, str] = {
    "idle": "idle",
    "out_of_range": "out of tuned range",
    "learning": "arming",
    "no_baseline": "arming",
    "other_server": "arming",
    "too_few_minutes": "too few minutes",
    "warming_up": "warming up",
    "gap": "too few minutes",
    "not_scraped": "no data",
}
SUMMED = (
    "ttft_seconds_count", "itl_seconds_count", "queue_seconds_sum", "prompt_tokens_sum",
    "prompt_tokens_count", "generation_tokens_sum", "generation_tokens_count",
    "generation_tokens_total",
    "finished_requests_total", "preemptions_total", "forward_passes", "duration_seconds",
)  # fmt: skip
_OVER = tuple(f"{name}_over_{bound}" for name in ("ttft", "tpot") for bound in ("low", "high"))
_LAST = (
    *COLUMN_KNOBS, "gpu_count", "prompt_tokens_usual_ratio", "generation_tokens_usual_ratio",
    "speed_at_equal_load_ratio",
)  # fmt: skip
_FLAGS = ("max_num_seqs_inferred", "slower_at_equal_load", "restarted")
_LOST = ("slow_seconds", "lost_seconds", "stuck_seconds", "queued_seconds", "cap_seconds")

CELL_SCHEMA: dict[str, pl.DataType | type[pl.DataType]] = {
    "instance": pl.String,
    "engine": pl.String,
    "pool": pl.String,
    "end": TIME,
    "seconds": pl.Float64,  # that rows stand for, observed or not
    "verdict_seconds": pl.Float64,
    **{f"{reason.replace(' ', '_')}_seconds": pl.Float64 for reason in REASONS},
    **dict.fromkeys(SUMMED, pl.Float64),
    **dict.fromkeys(_OVER, pl.Float64),  # requests over target, bounds by the buckets
    "slow_seconds": pl.Float64,  # slower at equal load
    "lost_seconds": pl.Float64,  # Σ (1 - r) · seconds of them
    "lost_gpu_seconds": pl.Float64,  # Σ (1 - r) · GPUs · seconds of those with a known GPU count
    "stuck_seconds": pl.Float64,  # requests present, no token for two minutes
    "running_requests": pl.Float64,
    "kv_cache_usage_ratio": pl.Float64,
    "queued_seconds": pl.Float64,  # in rows in which somebody waited for capacity
    "cap_seconds": pl.Float64,  # in rows in which max_num_seqs was what they waited for
    **dict.fromkeys(_LAST, pl.Float64),
    **dict.fromkeys(_FLAGS, pl.Boolean),
    "baseline_possible": pl.Boolean,
}
# EngineStuck: requests present, no token for two minutes
_STUCK_SECONDS = 120.0


def no_cells() -> pl.DataFrame:
    """Cells, none."""
    return pl.DataFrame(schema=CELL_SCHEMA)


def cells_of(rows: pl.DataFrame, slos: Mapping[str, Slo]) -> pl.DataFrame:
    """Rows of the store → cells.

    ``rows``: :data:`driftwatch.store.minute_columns.STORED_SCHEMA` and ``seconds``, by instance,
    engine and end; a cell's rows must come together; ``slos``: pool → its latency targets; what is
    over a target is unknown elsewhere. Returns :data:`CELL_SCHEMA`, by instance, engine and end.
    """
    if rows.is_empty():
        return no_cells()
    judged = rows.with_columns(_over_target(rows, slos)).with_columns(
        end=(pl.col("end") - pl.duration(microseconds=1)).dt.truncate(CELL)
        + pl.duration(minutes=10),
        reason=_reason(),
        **_losses(),
    )
    weight = pl.col("duration_seconds").fill_null(0.0)
    return (
        judged.group_by(*KEY_COLUMNS, "end", maintain_order=True)
        .agg(
            pl.col("pool").last(),
            pl.col("seconds").sum(),
            _seconds_of(None).alias("verdict_seconds"),
            *[_seconds_of(r).alias(f"{r.replace(' ', '_')}_seconds") for r in REASONS],
            *[_known_sum(name) for name in (*SUMMED, *_OVER)],
            *[pl.col(name).sum() for name in _LOST],
            # a loss on GPUs that nobody counted is no loss of 0
            pl.when(pl.col("lost_gpu_seconds").is_not_null().all()).then(
                pl.col("lost_gpu_seconds").sum()
            ),
            *[_mean(name, weight) for name in ("running_requests", "kv_cache_usage_ratio")],
            *[pl.col(name).drop_nulls().last() for name in _LAST],
            *[pl.col(name).any(ignore_nulls=False) for name in _FLAGS],
            # without a baseline, and the detector could learn one
            (pl.col("speed_unknown_code") == "no_baseline")
            .fill_null(False)
            .last()
            .alias("baseline_possible"),
        )
        .select(pl.col(name).cast(dtype) for name, dtype in CELL_SCHEMA.items())
        .sort(*KEY_COLUMNS, "end")
    )


def _reason() -> pl.Expr:
    """Why a row has no verdict; NULL where it has one."""
    reason = pl.col("speed_unknown_reason")
    kinds = pl.col("speed_unknown_code").replace_strict(_OF_CODES, default="inputs missing")
    return (
        pl.when(~(pl.col("scrapes") > 0).fill_null(False))
        .then(pl.lit("no data"))
        .when(pl.col("slower_at_equal_load").is_not_null() & reason.is_null())
        .then(None)
        .when(reason.is_null())
        .then(pl.lit("too few minutes"))
        .otherwise(kinds)
    )


def _seconds_of(reason: str | None) -> pl.Expr:
    same = pl.col("reason").is_null() if reason is None else pl.col("reason") == reason
    return pl.col("seconds").filter(same).sum()


def _known_sum(name: str) -> pl.Expr:
    """The sum of what is known; NULL where nothing is."""
    return pl.when(pl.col(name).is_not_null().any()).then(pl.col(name).sum()).alias(name)


def _mean(name: str, weight: pl.Expr) -> pl.Expr:
    has_value = pl.col(name).is_not_null()
    total = weight.filter(has_value).sum()
    return (
        pl.when(total > 0)
        .then((pl.col(name) * weight).filter(has_value).sum() / total)
        .otherwise(pl.col(name).mean())
        .alias(name)
    )


def _losses() -> dict[str, pl.Expr]:
    """Seconds lost to an engine that is slower or stuck, row by row."""
    slower = (pl.col("slower_at_equal_load") | pl.col("slower_than_pool")).fill_null(False)
    own = pl.when("slower_at_equal_load").then("speed_at_equal_load_ratio")
    ratio = pl.coalesce(own, "speed_against_pool_ratio")
    stuck = (pl.col("seconds_since_last_token") >= _STUCK_SECONDS) & (
        pl.col("running_requests") + pl.col("waiting_requests").fill_null(0.0) > 0
    )
    stuck = (stuck & pl.col("gauges_live")).fill_null(False)
    loss = (
        pl.when(stuck)
        .then(1.0)
        .when(slower)
        .then((1.0 - ratio).clip(0.0, 1.0))
        .otherwise(0.0)
        .fill_null(0.0)
    )
    seconds = pl.col("seconds")
    waits = (pl.col("waiting_capacity_requests") > 0).fill_null(False)
    capped = (pl.col("binding_limit") == "max_num_seqs").fill_null(False)
    return {
        "slow_seconds": pl.when(slower).then(seconds).otherwise(0.0),
        "lost_seconds": loss * seconds,
        "lost_gpu_seconds": pl.when(loss == 0.0)
        .then(0.0)
        .otherwise(loss * seconds * pl.col("gpu_count")),
        "stuck_seconds": pl.when(stuck).then(seconds).otherwise(0.0),
        "queued_seconds": pl.when(waits).then(seconds).otherwise(0.0),
        "cap_seconds": pl.when(capped).then(seconds).otherwise(0.0),
    }


def _over_target(rows: pl.DataFrame, slos: Mapping[str, Slo]) -> list[pl.Series]:
    """How many requests of each row were over each target, as the bounds that buckets allow."""
    columns = []
    for name in ("ttft", "tpot"):
        targets = {pool: getattr(slo, f"{name}_seconds") for pool, slo in slos.items()}
        target = rows.select(
            pl.col("pool").replace_strict(targets, default=None, return_dtype=pl.Float64)
        ).to_series()
        buckets = rows[f"{name}_seconds_buckets"]
        shares = share_within(buckets, rows[f"{name}_seconds_edges"], target)
        count = buckets.list.last().fill_null(0.0)
        nobody = (count == 0) & target.is_not_null() & (rows["scrapes"] > 0)
        for bound, share in (("low", "upper"), ("high", "lower")):
            over = pl.DataFrame({"s": shares[share], "n": count, "nobody": nobody}).select(
                pl.when("nobody").then(0.0).otherwise((1.0 - pl.col("s")) * pl.col("n"))
            )
            columns.append(over.to_series().alias(f"{name}_over_{bound}"))
    return columns
