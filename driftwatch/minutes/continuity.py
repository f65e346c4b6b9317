"""Where counters may be subtracted and where not: restarts, knob changes, gaps.

A scrape starts a new *epoch* of its target when the engine restarted (the process start or the
counters' creation time changed, or any counter fell), when the KV configuration or a histogram's
edges changed, or after a gap longer than :data:`MAX_GAP_SECONDS`. Inside an epoch every counter is
a plain running sum, so a window is a difference of two scrapes.

After a restart the new value of a counter is its increase. A process that appears after a gap and
already ran before it is another server under the same name: its value is no increase, and the epoch
begins at 0.
"""

from __future__ import annotations

import polars as pl

from driftwatch.collect.registry import BUCKETED, COUNTERS, GAUGES, HISTOGRAMS
from driftwatch.collect.schema import KEY, only, scrapes_once

# Prometheus' own look-back: beyond it a series counts as gone (promql lookback-delta, 5m).
MAX_GAP_SECONDS = 300.0
# Process start times are served rounded to 10 ms; a real restart moves them by seconds.
START_TIME_TOLERANCE_SECONDS = 1.0
# How far the clocks of a server and of its scraper may be apart.
CLOCK_TOLERANCE_SECONDS = 60.0

_MONOTONE = (*COUNTERS, *(f"{name}_count" for name in HISTOGRAMS))
_EDGES = tuple(f"{name}_edges" for name in BUCKETED)
# Times that are never 0 s: a sum of 0 was not measured (vllm#6337 books TTFT as 0).
NEVER_ZERO = ("ttft_seconds", "itl_seconds", "tpot_seconds", "e2e_seconds")
# Gauges with a mean per window; the process's own times are no signals.
MEAN_GAUGES = tuple(g for g in GAUGES if not g.endswith("_seconds"))


def in_seconds(microseconds: pl.Expr) -> pl.Expr:
    """Integer microseconds as seconds.

    Whole seconds and the rest are converted apart: Polars divides a single row by a literal and
    multiplies a column by its reciprocal, so with a plain ``/ 1e6`` the last digit would depend on
    the number of rows.
    """
    return (microseconds // 1_000_000).cast(pl.Float64) + (microseconds % 1_000_000) * 1e-6


# The process was already running at the scrape before.
_BEGAN = ("process_start_time_seconds", "created_seconds")
_RAN_BEFORE = (
    pl.coalesce(_BEGAN) * 1e6
    < pl.col("previous_time").dt.epoch("us") - CLOCK_TOLERANCE_SECONDS * 1e6
).fill_null(False)
_NOT_FIRST = pl.col("previous_time").is_not_null()
# It began after the scrape before, which had no start time.
_BEGAN_SINCE = (
    (
        pl.coalesce(_BEGAN) * 1e6
        > pl.col("previous_time").dt.epoch("us") + CLOCK_TOLERANCE_SECONDS * 1e6
    ).fill_null(False)
    & pl.all_horizontal(pl.col(column).shift(1).is_null() for column in _BEGAN)
    & _NOT_FIRST
)


def _changed(column: str, tolerance: float | None = None) -> pl.Expr:
    """``column`` is known in this scrape and in the one before it, and differs."""
    before = pl.col(column).shift(1)
    differs = (
        pl.col(column) != before
        if tolerance is None
        else (pl.col(column) - before).abs() > tolerance
    )
    return differs.fill_null(False) & _NOT_FIRST


def _fell(column: str) -> pl.Expr:
    return (pl.col(column) < pl.col(column).shift(1)).fill_null(False) & _NOT_FIRST


# The process start did not change, and some counter rose.
_WENT_ON = (
    pl.col("process_start_time_seconds").diff().abs() <= START_TIME_TOLERANCE_SECONDS
) & pl.any_horizontal(
    pl.col(c).diff() > 0
    for c in ("generation_tokens_total", "prompt_tokens_total", "finished_requests_total")
)


def with_epochs(scrapes: pl.DataFrame) -> pl.DataFrame:
    """Usable scrapes with their continuity, sorted by target and time.

    ``scrapes``: scrape table (:data:`driftwatch.collect.schema.SCRAPE_SCHEMA`), any order; of
    several rows of a target with the same time the first counts.
    Returns: the rows with ``ok`` true, and per row: ``previous_time``; ``restarted``,
    ``counters_fell`` (of a process that went on), ``configuration_changed``, ``edges_changed``,
    ``after_gap`` (booleans, false on a target's first
    row); ``epoch`` (counts up within a target) and ``epoch_starts``; ``step_microseconds`` (time
    since the previous scrape that this scrape's increments cover, 0 where there is none).
    """
    usable = scrapes_once(only(scrapes, pl.col("ok"))).with_columns(
        previous_time=pl.col("time").shift(1).over(KEY)
    )
    fell = pl.any_horizontal([_fell(c) for c in _MONOTONE])
    after_gap = (
        (pl.col("time") - pl.col("previous_time")).dt.total_milliseconds() > MAX_GAP_SECONDS * 1000
    ).fill_null(False)
    other = (
        fell
        | _BEGAN_SINCE
        | pl.any_horizontal(_changed(column, START_TIME_TOLERANCE_SECONDS) for column in _BEGAN)
    )
    # some counters of one process fell: its increase since the scrape before is unknown
    impossible = (fell & _WENT_ON).fill_null(False)
    flags = usable.select(
        restarted=other & ~impossible & ~(after_gap & _RAN_BEFORE),
        counters_fell=impossible,
        configuration_changed=_changed("cache_config"),
        edges_changed=_edges_changed(usable),
        after_gap=after_gap,
    )
    first = pl.col("previous_time").is_null()
    begins = pl.any_horizontal(flags.columns)
    usable = usable.with_columns(flags).with_columns(
        epoch=begins.cast(pl.Int64).cum_sum().over(KEY),
        epoch_starts=begins | first,
    )
    return usable.with_columns(step_microseconds=_step_microseconds())


def _edges_changed(scrapes: pl.DataFrame) -> pl.Series:
    """Whether a histogram's edges changed; compared one by one, for they are half the table."""
    changed = pl.repeat(False, len(scrapes), dtype=pl.Boolean, eager=True)
    for column in _EDGES:
        changed |= scrapes.select(_changed(column).alias(column)).to_series()
    return changed


def _step_microseconds() -> pl.Expr:
    """Microseconds that this scrape's increments cover; whole numbers, so that sums are exact.

    After a restart the increments began with the process, not with the last scrape before it. After
    a gap their time within it is unknown, restart or not: they cover nothing.
    """
    time = pl.col("time")
    elapsed = (time - pl.col("previous_time")).dt.total_microseconds()
    started = (pl.col("process_start_time_seconds") * 1e6).round().cast(pl.Int64)
    alive = time.dt.epoch("us") - started
    since_restart = pl.min_horizontal(elapsed, pl.when(alive > 0).then(alive))
    return (
        pl.when(pl.col("restarted") & ~pl.col("after_gap"))
        .then(since_restart)
        .when(pl.col("epoch_starts"))
        .then(0)
        .otherwise(elapsed)
        .fill_null(0)
    )
