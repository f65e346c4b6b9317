"""Rows of the store summed into cells of ten minutes, from which the report is computed.

After two days the store keeps ten minutes as one row, so that is the finest grid of a whole week.
Counters are added, gauges averaged over time. The reason for a missing verdict is counted in
server-minutes; a row of ten minutes has the reason of its last one.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta

import polars as pl

from driftwatch.collect.schema import KEY_COLUMNS, TIME
from driftwatch.minutes.engine import STUCK_SECONDS
from driftwatch.model import Slo
from driftwatch.signals.histograms import share_within

CELL = timedelta(minutes=10)
HOUR_SECONDS, MINUTE_SECONDS = 3600.0, 60.0
# speed_unknown_code → why a minute has no verdict on the engine's speed, in the report's words;
# every other code is a missing input
_OF_CODES: Mapping[str, str] = {
    "idle": "idle",
    "out_of_range": (BEYOND := "load outside the baseline"),
    "learning": "no baseline yet",
    "no_baseline": "no baseline yet",
    "other_server": "no baseline yet",
    "too_few_minutes": "too few minutes",
    "warming_up": "just started",
    "gap": "too few minutes",
    "not_scraped": "no data",
}
REASONS = (*dict.fromkeys(_OF_CODES.values()), "inputs missing")
SUMMED = (
    "ttft_seconds_count", "prompt_tokens_sum",
    "prompt_tokens_count", "generation_tokens_sum", "generation_tokens_count",
    "generation_tokens_total", "duration_seconds", "given_up_requests",
)  # fmt: skip
# requests over each target, bounds by the buckets; and over any
_OVER = tuple(f"{name}_over_{bound}" for name in ("ttft", "tpot") for bound in ("low", "high"))
_MISSED = ("missed_low", "missed_high")
_GAUGES = ("running_requests", "waiting_requests")
_LAST = (
    "prompt_tokens_usual_ratio", "generation_tokens_usual_ratio",
    "running_requests_max_of_process",  # the most of any scrape since the engine started
    "inferred_max_num_seqs",  # the level that they held while others waited
    "step_tokens_max_of_process",
)  # fmt: skip
_FLAGS = ("restarted",)
# seconds in which the engine was slower at equal load or stuck, and Σ (1 - speed) · seconds of them
_LOST = ("slow_seconds", "lost_seconds", "stuck_seconds")

CELL_SCHEMA: dict[str, pl.DataType | type[pl.DataType]] = {
    "instance": pl.String,
    "engine": pl.String,
    "pool": pl.String,
    "end": TIME,
    "seconds": pl.Float64,  # that rows stand for, observed or not
    "row_seconds": pl.Float64,  # of its longest row
    "verdict_seconds": pl.Float64,
    **dict.fromkeys(REASONS, pl.Float64),  # seconds
    **dict.fromkeys((*SUMMED, *_MISSED, *_LOST, *_GAUGES, *_LAST), pl.Float64),
    "held_requests": pl.Float64,  # in an engine that was stuck
    "speed_at_equal_load_ratio": pl.Float64,
    "lost_gpu_seconds": pl.Float64,  # lost_seconds · GPUs; NULL where nobody counted the GPUs
    **dict.fromkeys(_FLAGS, pl.Boolean),
}


def no_cells() -> pl.DataFrame:
    """An empty frame of cells."""
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
        end=(pl.col("end") - pl.duration(microseconds=1)).dt.truncate(CELL) + CELL,
        reason=_reason(),
        **_losses(),
    )
    reason, lost = pl.col("reason"), pl.col("lost_gpu_seconds")
    return (
        judged.group_by(*KEY_COLUMNS, "end", maintain_order=True)
        .agg(
            pl.col("pool").last(),
            pl.col("seconds", *_LOST).sum(),
            pl.col("seconds").max().alias("row_seconds"),
            pl.col("held_requests").max(),
            pl.col("seconds").filter(reason.is_null()).sum().alias("verdict_seconds"),
            *[pl.col("seconds").filter(reason == name).sum().alias(name) for name in REASONS],
            *[
                pl.when(pl.col(name).is_not_null().any()).then(pl.col(name).sum()).alias(name)
                for name in (*SUMMED, *_OVER)
            ],
            # a loss on GPUs that nobody counted is no loss of 0
            pl.when(lost.is_not_null().all()).then(lost.sum()),
            *[_mean(name, pl.lit(value=True)) for name in _GAUGES],
            # beyond the loads of the baseline a speed is a guess
            _mean("speed_at_equal_load_ratio", reason.is_null()),
            *[pl.col(name).drop_nulls().last() for name in _LAST],
            *[pl.col(name).any(ignore_nulls=False) for name in _FLAGS],
        )
        .with_columns(_missed())
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


def _mean(name: str, counts: pl.Expr) -> pl.Expr:
    """Mean over time of the rows that know it, where ``counts`` holds."""
    known = pl.col(name).is_not_null() & counts
    weight = pl.col("duration_seconds").fill_null(0.0).filter(known)
    return (
        pl.when(weight.sum() > 0)
        .then((pl.col(name).filter(known) * weight).sum() / weight.sum())
        .otherwise(pl.col(name).filter(known).mean())
        .alias(name)
    )


def _losses() -> dict[str, pl.Expr]:
    """Seconds lost to an engine that is slower or stuck, row by row."""
    slower = (pl.col("slower_at_equal_load") | pl.col("slower_than_pool")).fill_null(False)
    own = pl.when("slower_at_equal_load").then("speed_at_equal_load_ratio")
    ratio = pl.coalesce(own, "speed_against_pool_ratio")
    held = pl.col("running_requests") + pl.col("waiting_requests").fill_null(0.0)
    stuck = (pl.col("seconds_since_last_token") >= STUCK_SECONDS) & (held > 0)
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
    return {
        "slow_seconds": pl.when(slower).then(seconds).otherwise(0.0),
        "stuck_seconds": pl.when(stuck).then(seconds).otherwise(0.0),
        "held_requests": pl.when(stuck).then(held),
        "lost_seconds": loss * seconds,
        "lost_gpu_seconds": pl.when(loss == 0.0)
        .then(0.0)
        .otherwise(loss * seconds * pl.col("gpu_count")),
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
        no_request = (count == 0) & target.is_not_null() & (rows["scrapes"] > 0)
        for bound, share in (("low", "upper"), ("high", "lower")):
            over = pl.DataFrame({"s": shares[share], "n": count, "no_request": no_request}).select(
                pl.when("no_request").then(0.0).otherwise((1.0 - pl.col("s")) * pl.col("n"))
            )
            columns.append(over.to_series().alias(f"{name}_over_{bound}"))
    return columns


def _missed() -> list[pl.Expr]:
    """Requests that were found to miss a target in a cell: bounds that add up over cells.

    A request misses TTFT with its first token and TPOT with its end, so as many as ran when the
    cell began may have missed both in two cells; the others that miss TPOT got their first token in
    it. What a server counted between its last scrape and a restart is lost: all may have missed.
    """
    first, last = pl.col("ttft_over_low"), pl.col("tpot_over_low")
    running, requests = pl.col("running_requests"), pl.col("ttft_seconds_count")
    low = pl.when(first.is_null()).then(last).otherwise(pl.max_horizontal(first, last - running))
    most = pl.sum_horizontal("ttft_over_high", "tpot_over_high")
    high = pl.max_horizontal(low, pl.min_horizontal(most, requests + running))
    lost = requests * (pl.col("seconds") / pl.col("duration_seconds") - 1).clip(0.0)
    unseen = pl.when(pl.col("duration_seconds") > 0).then(lost).fill_null(0.0)
    return [
        low.alias("missed_low"),
        pl.when(low.is_not_null()).then(high + unseen).alias("missed_high"),
    ]
