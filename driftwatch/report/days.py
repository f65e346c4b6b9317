"""Days of targets, made of their rows."""

from __future__ import annotations

from datetime import timedelta

import polars as pl

from driftwatch.collect.schema import KEY_COLUMNS
from driftwatch.store.minute_columns import rolled_up

DAY_SECONDS = 86_400
LENGTHS = ("prompt_tokens", "generation_tokens")
DAY_SCHEMA: dict[str, pl.DataType | type[pl.DataType]] = {
    "instance": pl.String,
    "engine": pl.String,
    "pool": pl.String,
    "day": pl.Datetime("us", "UTC"),  # its start
    **{f"{name}_{part}": pl.Float64 for name in LENGTHS for part in ("sum", "count")},
    **{f"{name}_{part}": pl.List(pl.Float64) for name in LENGTHS for part in ("buckets", "edges")},
}


def no_days() -> pl.DataFrame:
    """Days, none."""
    return pl.DataFrame(schema=DAY_SCHEMA)


def days_of(rows: pl.DataFrame) -> pl.DataFrame:
    """Days with a usable scrape, made of their rows.

    ``rows``: :data:`driftwatch.store.minute_columns.STORED_SCHEMA` and ``seconds``, of whole days.
    """
    used = rows.filter(pl.col("scrapes") > 0)
    if used.is_empty():
        return no_days()
    return (
        rolled_up(used.drop("seconds"), DAY_SECONDS)
        .with_columns(day=pl.col("end") - timedelta(days=1))
        .select(pl.col(name).cast(dtype) for name, dtype in DAY_SCHEMA.items())
        .sort("day", *KEY_COLUMNS)
    )
