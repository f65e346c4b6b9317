"""Which inputs that were there are gone, and since when."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta

import polars as pl

from driftwatch.collect.registry import REGISTRY
from driftwatch.collect.schema import KEY_COLUMNS, TIME

_KEY = list(KEY_COLUMNS)
# Inputs are missed for a day after they were last seen (detection.md, CoverageLost).
REMEMBERED = timedelta(hours=24)
# The pool's share counts targets whose inputs are gone this long (detection.md, CoverageLost).
POOL_MISSING_SECONDS = 300.0

# An input is named as gone after two minutes: scrapes are up to a minute apart.
NAMED_AFTER_SECONDS = 120.0


def _probe(column: str) -> str:
    """The scrape column that shows whether a metric was on the page."""
    by_column = {m.column: m for m in REGISTRY}
    return f"{column}_count" if by_column[column].type == "histogram" else column


def last_seen(
    scrapes: pl.DataFrame, windows: pl.DataFrame, carried: pl.DataFrame, inputs: Iterable[str]
) -> pl.DataFrame:
    """When each input was last on a page, as known at each window's end.

    Args:
        scrapes: scrape table (failed scrapes included), sorted by target and time.
        windows: instance, engine, start, end; ascending ``end`` within a target.
        carried: instance, engine and ``seen_<input>`` (time) columns from before.
        inputs: registry columns to look for.

    Returns:
        The windows' instance, engine, end with ``seen_<input>`` per input (NULL = never).
    """
    names = list(inputs)
    seen = scrapes.select(
        *_KEY,
        "time",
        *[
            pl.when(pl.col(_probe(c)).is_not_null())
            .then(pl.col("time"))
            .forward_fill()
            .over(_KEY)
            .alias(f"seen_{c}")
            for c in names
        ],
    )
    found = (
        windows.select([*_KEY, "end"])
        .with_row_index("window")
        .sort("end")
        .join_asof(
            seen.sort("time"),
            left_on="end",
            right_on="time",
            by=_KEY,
            strategy="backward",
            allow_exact_matches=False,
            check_sortedness=False,
        )
        .sort("window")
    )
    missing = [c for c in names if f"seen_{c}" not in carried.columns]
    before = carried.with_columns(pl.lit(None, dtype=TIME).alias(f"seen_{c}") for c in missing)
    return found.join(
        before.select([*_KEY, *(f"seen_{c}" for c in names)]),
        on=_KEY,
        how="left",
        suffix="_before",
        maintain_order="left",
    ).select(
        *_KEY,
        "end",
        *[pl.coalesce(f"seen_{c}", f"seen_{c}_before").alias(f"seen_{c}") for c in names],
    )


def coverage_columns(seen: pl.DataFrame, pools: pl.DataFrame) -> pl.DataFrame:
    """How long inputs are gone, per target and in its pool.

    Args:
        seen: from :func:`last_seen`.
        pools: instance, engine, pool.

    Returns:
        instance, engine, end, ``coverage_missing_seconds`` (NULL: nothing was ever seen),
        ``coverage_missing_inputs``, ``pool_coverage_missing_ratio``,
        ``pool_coverage_missing_targets``.
    """
    inputs = [c.removeprefix("seen_") for c in seen.columns if c.startswith("seen_")]

    def gone(name: str) -> pl.Expr:
        """Seconds since the input was last seen, within the remembered day."""
        age = pl.col("end") - pl.col(f"seen_{name}")
        return pl.when(age <= REMEMBERED).then(age.dt.total_microseconds() / 1e6)

    ages = seen.with_columns(gone(c).alias(f"age_{c}") for c in inputs)
    oldest = pl.max_horizontal(pl.lit(None, dtype=pl.Float64), *(f"age_{c}" for c in inputs))
    named = (
        pl.concat_list(
            pl.lit(None, dtype=pl.String),
            *(pl.when(pl.col(f"age_{c}") >= NAMED_AFTER_SECONDS).then(pl.lit(c)) for c in inputs),
        )
        .list.drop_nulls()
        .list.join(", ")
    )
    rows = ages.select(
        *_KEY,
        "end",
        coverage_missing_seconds=oldest,
        coverage_missing_inputs=pl.when(named != "").then(named),
    ).join(pools.select(*_KEY, "pool"), on=_KEY, how="left", maintain_order="left")
    lost = pl.col("coverage_missing_seconds") >= POOL_MISSING_SECONDS
    group = ["pool", "end"]
    return rows.with_columns(
        pool_coverage_missing_ratio=lost.mean().over(group),
        pool_coverage_missing_targets=lost.sum().cast(pl.Float64).over(group),
    ).drop("pool")
