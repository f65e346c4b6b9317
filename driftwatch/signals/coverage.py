"""Which inputs that were there are gone, and since when."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta

import polars as pl

from driftwatch.collect.registry import REGISTRY
from driftwatch.collect.schema import KEY, TIME
from driftwatch.signals.continuity import MAX_GAP_SECONDS, at_end, in_seconds

MAX_GAP = timedelta(seconds=MAX_GAP_SECONDS)
# Inputs are missed for a day after they were last seen.
REMEMBERED = timedelta(hours=24)
# The pool's share counts targets whose inputs are gone this long.
POOL_MISSING_SECONDS = 300.0

_THERE = pl.lit(0).cast(TIME)
# An input is named as gone after two minutes: scrapes are up to a minute apart.
NAMED_AFTER_SECONDS = 120.0


def _probe(column: str) -> str:
    """The scrape column that shows whether a metric was on the page."""
    by_column = {m.column: m for m in REGISTRY}
    return f"{column}_count" if by_column[column].type == "histogram" else column


def input_coverage(
    scrapes: pl.DataFrame, windows: pl.DataFrame, carried: pl.DataFrame, inputs: Iterable[str]
) -> pl.DataFrame:
    """When each input was last on a page, and since which scrape it is missing.

    Only scrapes count, failed ones included: time in which nobody looked is not evidence, so a
    gap longer than the look-back starts the count anew.

    ``scrapes``: scrape table, sorted by target and time; ``windows``: instance, engine, start, end;
    ascending ``end`` within a target; ``carried``: instance, engine, ``looked_at``,
    ``seen_<input>`` and ``gone_<input>`` (times) as returned for the last window before; empty at
    first; ``inputs``: registry columns to look for.
    Returns: the windows' instance, engine, end with ``looked_at`` (the last scrape before the end),
    and per input ``seen_<input>`` (NULL = never) and ``gone_<input>`` (the first scrape of the run
    of scrapes without it; NULL = it is there, or nobody looked yet).
    """
    names = list(inputs)
    columns = [f"{kind}_{name}" for name in names for kind in ("seen", "gone")]
    carried_columns = ["looked_at", *columns]
    missing = [c for c in carried_columns if c not in carried.columns]
    before = carried.with_columns(pl.lit(None, dtype=TIME).alias(c) for c in missing).select(
        *KEY, *carried_columns
    )
    # what was looked at before is known; seen again from the middle of it, it would count anew
    rows = (
        scrapes.select(*KEY, "time", *dict.fromkeys(_probe(name) for name in names))
        .join(before, on=KEY, how="left", maintain_order="left")
        .filter(pl.col("looked_at").is_null() | (pl.col("time") > pl.col("looked_at")))
        .with_columns(target=_number().set_sorted())
        .with_columns(previous=pl.col("time").shift(1).over("target"))
    )
    # history that was let go may hide that nobody looked before its first scrape
    since = pl.col("time") - pl.coalesce("previous", "looked_at")
    rows = rows.with_columns(resumed=(since > MAX_GAP).fill_null(False))
    levels = rows.select(*KEY, "time", *[e for name in names for e in _levels(name)])
    rows_of_windows = at_end(windows.select([*KEY, "end"]), levels).join(
        before, on=KEY, how="left", maintain_order="left", suffix="_before"
    )
    # without a scrape before its end a window knows what was known before
    unseen = pl.col("time").is_null()
    return rows_of_windows.select(
        *KEY,
        "end",
        looked_at=pl.coalesce("time", "looked_at"),
        **{c: pl.when(unseen).then(pl.col(f"{c}_before")).otherwise(pl.col(c)) for c in columns},
    )


def _number() -> pl.Expr:
    """Rows by target → a number per target, ascending."""
    return (
        pl.any_horizontal((pl.col(c) != pl.col(c).shift(1)).fill_null(True) for c in KEY)
        .cum_sum()
        .cast(pl.UInt32)
    )


def _levels(name: str) -> tuple[pl.Expr, pl.Expr]:
    """``seen_`` and ``gone_`` of one input, after each scrape."""
    there = pl.col(_probe(name)).is_not_null()
    first = pl.col("previous").is_null()
    was_there = there.shift(1).over("target")
    last_seen = (
        pl.when(there)
        .then(pl.col("time"))
        .when(first)
        .then(pl.col(f"seen_{name}"))
        .forward_fill()
        .over("target")
    )
    # the sentinel keeps "it is there" apart from "as before" while filling forward
    missing_since = (
        pl.when(there)
        .then(_THERE)
        .when(first & ~pl.col("resumed"))
        .then(pl.coalesce(f"gone_{name}", "time"))
        .when(first | was_there | pl.col("resumed"))
        .then(pl.col("time"))
        .forward_fill()
        .over("target")
    )
    return last_seen.alias(f"seen_{name}"), pl.when(missing_since != _THERE).then(
        missing_since
    ).alias(f"gone_{name}")


def coverage_columns(inputs_seen: pl.DataFrame, pools: pl.DataFrame) -> pl.DataFrame:
    """How long inputs are gone, per target and in its pool.

    ``inputs_seen``: from :func:`input_coverage`; ``pools``: instance, engine, pool.
    Returns: instance, engine, end, ``coverage_missing_seconds`` (NULL: nothing was ever seen, or
    nobody looked for longer than the look-back), ``coverage_missing_inputs``,
    ``pool_coverage_missing_ratio``, ``pool_coverage_missing_targets``.
    """
    inputs = [c.removeprefix("seen_") for c in inputs_seen.columns if c.startswith("seen_")]

    def age(name: str) -> pl.Expr:
        """Seconds without the input, 0 where it is there; NULL if not seen for a day."""
        recent = pl.col("end") - pl.col("looked_at") <= MAX_GAP
        remembered = pl.col("looked_at") - pl.col(f"seen_{name}") <= REMEMBERED
        missing = pl.col("looked_at") - pl.col(f"gone_{name}")
        return pl.when(remembered & recent).then(
            in_seconds(missing.dt.total_microseconds()).fill_null(0.0)
        )

    ages = inputs_seen.with_columns(age(c).alias(f"age_{c}") for c in inputs)
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
        *KEY,
        "end",
        coverage_missing_seconds=oldest,
        coverage_missing_inputs=pl.when(named != "").then(named),
    ).join(pools.select(*KEY, "pool"), on=KEY, how="left", maintain_order="left")
    lost = pl.col("coverage_missing_seconds") >= POOL_MISSING_SECONDS
    group = ["pool", "end"]
    return rows.with_columns(
        pool_coverage_missing_ratio=lost.mean().over(group),
        pool_coverage_missing_targets=lost.sum().cast(pl.Float64).over(group),
    ).drop("pool")
