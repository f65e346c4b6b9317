"""Days of targets, made of their rows."""

from __future__ import annotations

from datetime import timedelta

import polars as pl

from driftwatch.collect.schema import KEY_COLUMNS, TIME
from driftwatch.store.minute_columns import rolled_up

DAY_SECONDS = 86_400
LENGTHS = ("prompt_tokens", "generation_tokens")
DAY_SCHEMA: dict[str, pl.DataType | type[pl.DataType]] = {
    "instance": pl.String,
    "engine": pl.String,
    "pool": pl.String,
    "day": pl.Datetime("us", "UTC"),  # its start
    "minutes": pl.Float64,  # with a usable scrape
    "finished_requests": pl.Float64,
    "prompt_tokens_mean": pl.Float64,
    "generation_tokens_mean": pl.Float64,
    "tokens_per_second_per_gpu": pl.Float64,
    "requests_per_forward_pass_p50": pl.Float64,
    "speed_at_equal_load_ratio": pl.Float64,  # median of its minutes
    "slo_missed_ratio": pl.Float64,  # share of the minutes that could tell
    **{
        f"{name}_{part}": pl.List(pl.Float64)
        for name in ("prompt_tokens", "generation_tokens", "ttft_seconds")
        for part in ("buckets", "edges")
    },
}


def no_days() -> pl.DataFrame:
    """Days, none."""
    return pl.DataFrame(schema=DAY_SCHEMA)


def days_of(rows: pl.DataFrame) -> pl.DataFrame:
    """Days made of their rows.

    The median of requests per forward pass is then of the rows that there are (ten minutes each
    once they are rolled up), every row alike.

    ``rows``: :data:`driftwatch.store.minute_columns.STORED_SCHEMA` and ``seconds``, of whole days.
    """
    if rows.is_empty():
        return no_days()
    whole = rolled_up(rows.drop("seconds"), DAY_SECONDS)
    outputs = pl.col("itl_seconds_count") + pl.col("ttft_seconds_count")
    beside = rows.group_by(
        *KEY_COLUMNS,
        (pl.col("end") - pl.duration(microseconds=1)).dt.truncate("1d").alias("day"),
        maintain_order=True,
    ).agg(
        pl.col("seconds").filter(pl.col("scrapes") > 0).sum().truediv(60).alias("minutes"),
        (outputs / pl.col("forward_passes"))
        .filter((pl.col("forward_passes") > 0) & (outputs > 0))
        .median()
        .alias("requests_per_forward_pass_p50"),
        pl.col("speed_at_equal_load_ratio").median(),
        pl.col("slo_missed").cast(pl.Float64).mean().alias("slo_missed_ratio"),
    )
    named = whole.with_columns(
        day=(pl.col("end") - timedelta(days=1)).cast(TIME),
        finished_requests=pl.col("prompt_tokens_count"),
        **{
            f"{s}_mean": pl.when(pl.col(f"{s}_count") > 0).then(
                pl.col(f"{s}_sum") / pl.col(f"{s}_count")
            )
            for s in LENGTHS
        },
        tokens_per_second_per_gpu=pl.when(
            (pl.col("duration_seconds") > 0) & (pl.col("gpu_count") > 0)
        ).then(
            pl.col("generation_tokens_total") / pl.col("duration_seconds") / pl.col("gpu_count")
        ),
    ).drop("speed_at_equal_load_ratio")
    joined = named.join(
        beside.with_columns(pl.col("day").cast(TIME)), on=[*KEY_COLUMNS, "day"], how="left"
    )
    return (
        joined.filter(pl.col("minutes") > 0)
        .select(pl.col(name).cast(dtype) for name, dtype in DAY_SCHEMA.items())
        .sort("day", *KEY_COLUMNS)
    )
