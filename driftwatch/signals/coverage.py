"""Which inputs have gone from the pages, and since when."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta

import numpy as np
import polars as pl

from driftwatch.collect.registry import BY_COLUMN
from driftwatch.collect.schema import KEY, TIME
from driftwatch.minutes.continuity import MAX_GAP_SECONDS
from driftwatch.minutes.schema import NOT_KEPT

MAX_GAP, _MICROSECOND = timedelta(seconds=MAX_GAP_SECONDS), timedelta(microseconds=1)
# A lost input counts as missing for a day.
REMEMBERED = timedelta(hours=24)
# The pool's share counts targets whose inputs are gone this long.
POOL_MISSING_SECONDS = 300.0
# An input is named as gone after two minutes: scrapes are up to a minute apart.
NAMED_AFTER_SECONDS = 120.0

# No rule needs these inputs: times of the process serve only to find restarts.
_NOT_MISSED = ("process_start_time_seconds", "created_seconds", *NOT_KEPT)


def input_coverage(
    rows: pl.DataFrame, carried: pl.DataFrame, inputs: Iterable[str]
) -> pl.DataFrame:
    """When each input was last on a page, and since when its page has been scraped.

    After a gap longer than the look-back the count starts anew.

    ``rows``: minute rows, the same minutes of every target, by target and end; ``carried``:
    instance, engine, ``looked_until``, ``looking_since`` and ``seen_<input>`` (times) as returned
    for the last row before; empty at first; ``inputs``: registry columns to look for.
    Returns: instance, engine, end with ``looked_until`` (end of the last minute with a scrape,
    failed or not), ``looking_since``, and ``seen_<input>`` (end of the last minute with it; NULL:
    never).
    """
    names = [name for name in inputs if name not in _NOT_MISSED]
    columns = ["looked_until", "looking_since", *(f"seen_{name}" for name in names)]
    keys = rows.select(KEY).unique(maintain_order=True)
    missing = (pl.lit(None, dtype=TIME).alias(c) for c in columns if c not in carried.columns)
    before = keys.join(
        carried.with_columns(missing).select(*KEY, *columns),
        on=KEY,
        how="left",
        maintain_order="left",
    ).select(pl.col(columns).dt.epoch("us").fill_null(_NEVER))
    shape = (len(keys), len(rows) // max(len(keys), 1))
    ends = rows["end"].dt.epoch("us").to_numpy().reshape(shape)
    looked = (rows["looks"] > 0).fill_null(False).to_numpy().reshape(shape)
    shown = rows.select(_shown(name) for name in names).to_numpy().reshape(*shape, len(names))
    until, since, *seen = (before[c].to_numpy() for c in columns)
    last = np.stack(seen, axis=1) if seen else np.empty((len(keys), 0), dtype=np.int64)
    every = np.empty((*shape, len(columns)), dtype=np.int64)
    for minute in range(shape[1]):
        end, here = ends[:, minute], looked[:, minute]
        resumed = here & (end - until > MAX_GAP_SECONDS * 1e6)
        since = np.where(resumed, end - 60_000_000, since)
        until = np.where(here, end, until)
        last = np.where(shown[:, minute], end[:, None], last)
        every[:, minute, 0], every[:, minute, 1], every[:, minute, 2:] = until, since, last
    times = pl.DataFrame(every.reshape(-1, len(columns)), schema=columns)
    known = (pl.when(pl.col(c) != _NEVER).then(pl.col(c)).cast(TIME).alias(c) for c in columns)
    return rows.select(*KEY, "end").hstack(times.select(known))


_NEVER = -(1 << 60)  # microseconds; earlier than any time, and no difference overflows


def _shown(column: str) -> pl.Expr:
    """Whether a metric was on the target's page in a minute."""
    is_histogram = BY_COLUMN[column].type == "histogram"
    return pl.col(f"{column}_count" if is_histogram else column).is_not_null()


def coverage_columns(inputs_seen: pl.DataFrame, pools: pl.DataFrame) -> pl.DataFrame:
    """How long inputs are gone, per target and in its pool.

    ``inputs_seen``: from :func:`input_coverage`; ``pools``: instance, engine, pool.
    Returns: instance, engine, end, ``coverage_missing_seconds`` (NULL: no input was ever there, or
    no scrape came for longer than the look-back), ``coverage_missing_inputs``,
    ``pool_coverage_missing_ratio`` (0 where one target alone lacks inputs).
    """
    inputs = [c.removeprefix("seen_") for c in inputs_seen.columns if c.startswith("seen_")]
    times = inputs_seen.select(
        pl.col("end", "looked_until", "looking_since", *(f"seen_{c}" for c in inputs))
        .dt.epoch("us")
        .fill_null(_NEVER)
    ).to_numpy()
    end, until, since, seen = times[:, :1], times[:, 1:2], times[:, 2:3], times[:, 3:]
    is_known = (until - seen <= REMEMBERED / _MICROSECOND) & (end - until <= MAX_GAP / _MICROSECOND)
    # 0 where it is there, NaN where it was gone for a day or no scrape came
    ages = np.where(is_known, np.maximum(until - np.maximum(seen, since), 0) / 1e6, np.nan)
    oldest = np.fmax.reduce(ages, axis=1, initial=np.nan) if inputs else np.full(len(ages), np.nan)
    gone = ages >= NAMED_AFTER_SECONDS
    named = [
        ", ".join(name for name, is_gone in zip(inputs, row, strict=True) if is_gone)
        if row.any()
        else None
        for row in gone
    ]
    rows = inputs_seen.select(
        *KEY,
        "end",
        coverage_missing_seconds=pl.Series(oldest, nan_to_null=True),
        coverage_missing_inputs=pl.Series(named, dtype=pl.String),
    ).join(pools.select(*KEY, "pool"), on=KEY, how="left", maintain_order="left")
    lost = pl.col("coverage_missing_seconds") >= POOL_MISSING_SECONDS
    share = pl.when(lost.sum() != 1).then(lost.mean()).otherwise(0.0)
    return rows.with_columns(
        pool_coverage_missing_ratio=share.over(["pool", "end"]),
    ).drop("pool")
