"""Where counters may be subtracted and where not: restarts, knob changes, gaps.

A scrape starts a new *epoch* of its target when the engine restarted (the process start or the
counters' creation time changed, or any counter fell), when the KV configuration or a histogram's
edges changed, or after a gap longer than :data:`MAX_GAP_SECONDS`. Inside an epoch every counter is
a plain running sum, so a window is a difference of two scrapes.

What a restarted process counted is the increase since the scrape before it. What a process counted
that was already running before a gap is none: it is another server, which took the name over. Such
an epoch begins with nothing booked.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Literal

import numpy as np
import polars as pl

from driftwatch.arrays import Integers
from driftwatch.collect.registry import COUNTERS, GAUGES, HISTOGRAMS
from driftwatch.collect.schema import KEY, SCRAPE_SCHEMA, in_order, only

# All targets stand on one line of whole microseconds, which must fit into 64 bits.
_LONGEST = 1 << 62


def keys(frame: pl.DataFrame) -> list[str]:
    """What says whose a row is: a number where targets are numbered, else instance and engine."""
    return ["target"] if "target" in frame.columns else KEY


def at_end(
    windows: pl.DataFrame,
    levels: pl.DataFrame,
    *,
    inclusive: bool = False,
    tolerance: timedelta | None = None,
) -> pl.DataFrame:
    """Each window with the last row before its end.

    ``windows``: instance, engine, end (``target`` too where the levels have it); ``levels``:
    instance, engine or ``target``, ``time`` and what is wanted of it; by target and time;
    ``inclusive``: a row exactly at the end counts (a person's window); on the minute grid it
    belongs to the next minute; ``tolerance``: how much older than the end a row may be; None =
    however old.
    Returns: ``window`` (the row's number in ``windows``, ascending), the window's columns and those
    of the level; NULL where there is none.
    """
    before, first, _ = _last_before(windows, levels, "end", inclusive=inclusive)
    joined = _joined(windows, levels, np.where(before >= first, before, -1))
    if tolerance is None:
        return joined
    near = pl.col("time") >= pl.col("end") - tolerance
    of_level = [c for c in levels.columns if c not in keys(levels)]
    return joined.with_columns(pl.when(near).then(pl.col(c)).alias(c) for c in of_level)


def at_start(windows: pl.DataFrame, levels: pl.DataFrame) -> pl.DataFrame:
    """Each window with the first row at or after its start; otherwise as :func:`at_end`."""
    before, _, last = _last_before(windows, levels, "start", inclusive=False)
    return _joined(windows, levels, np.where(before < last, before + 1, -1))


def _joined(windows: pl.DataFrame, levels: pl.DataFrame, rows: Integers) -> pl.DataFrame:
    """Windows beside the levels' rows of these numbers; NULL where the number is below 0."""
    numbered = pl.DataFrame({"row": rows}).select(pl.when(pl.col("row") >= 0).then(pl.col("row")))
    of_level = levels.drop(keys(levels)).select(pl.all().gather(numbered.to_series()))
    return windows.with_row_index("window").hstack(of_level)


def _last_before(
    windows: pl.DataFrame, levels: pl.DataFrame, edge: Literal["start", "end"], *, inclusive: bool
) -> tuple[Integers, Integers, Integers]:
    """Per window: the last row before its edge, the first and the last row of its target.

    The last row before may be that of the target before; without rows 0 is first and -1 last.
    """
    by = keys(levels)
    begins = pl.any_horizontal((pl.col(c) != pl.col(c).shift(1)).fill_null(True) for c in by)
    begun = levels.select(*by, begins=begins).with_row_index("first").filter("begins")
    firsts = begun["first"].to_numpy().astype(np.int64)
    lasts = np.append(firsts, len(levels))[1:] - 1
    whose = windows.select(by).join(
        begun.select(by).with_row_index("whose"), on=by, how="left", maintain_order="left"
    )["whose"]
    has_target = whose.is_not_null().to_numpy()
    if not has_target.any():
        none = np.full(len(windows), -1, dtype=np.int64)
        return none, none + 1, none
    number = whose.fill_null(0).cast(pl.Int64).to_numpy()
    times = levels["time"].dt.epoch("us").to_numpy()
    edges = windows[edge].dt.epoch("us").to_numpy()
    side: Literal["left", "right"] = "right" if inclusive else "left"
    if (int(times.max()) - int(times.min()) + 3) * len(firsts) >= _LONGEST:
        # too far apart to stand on one line: their ranks do; an edge's rank counts what is before
        ranked = np.unique(times)
        times, edges = np.searchsorted(ranked, times), np.searchsorted(ranked, edges, side)
        side = "left"
    low, high = int(times.min()), int(times.max())
    apart = high - low + 3
    line = np.repeat(np.arange(len(firsts)), lasts - firsts + 1) * apart + (times - low + 1)
    places = number * apart + (np.clip(edges, low - 1, high + 1) - low + 1)
    before = np.searchsorted(line, places, side) - 1
    return (
        np.where(has_target, before, -1),
        np.where(has_target, firsts[number], 0),
        np.where(has_target, lasts[number], -1),
    )


# Prometheus' own look-back: beyond it a series counts as gone (promql lookback-delta, 5m).
MAX_GAP_SECONDS = 300.0
# Process start times are served rounded to 10 ms; a real restart moves them by seconds.
START_TIME_TOLERANCE_SECONDS = 1.0
# How far the clocks of a server and of who scrapes it may be apart.
CLOCK_TOLERANCE_SECONDS = 60.0

_MONOTONE = (*COUNTERS, *(f"{name}_count" for name in HISTOGRAMS))
# Histograms whose buckets the evidence reads; of the others the sums do.
READ_BUCKETS = (
    "prompt_tokens",
    "generation_tokens",
    "queue_seconds",
    "ttft_seconds",
    "itl_seconds",
    "tpot_seconds",
    "e2e_seconds",
)
_EDGES = tuple(f"{name}_edges" for name in READ_BUCKETS)
UNREAD = [f"{name}_{part}" for name in HISTOGRAMS if name not in READ_BUCKETS
           for part in ("buckets", "edges")]  # fmt: skip
# What is compared with its last known value, however long ago that was.
COMPARED = (
    *_MONOTONE,
    "process_start_time_seconds",
    "created_seconds",
    "cache_config",
    *_EDGES,
)
# Gauges whose window mean is asked for; the process's own times are not signals.
MEAN_GAUGES = tuple(g for g in GAUGES if not g.endswith("_seconds"))


def in_seconds(microseconds: pl.Expr) -> pl.Expr:
    """Integers microseconds as seconds.

    Integers seconds and the rest apart: Polars divides a single row by a literal and multiplies a
    column by its reciprocal, so that a plain ``/ 1e6`` would make the last digit depend on how
    many rows are evaluated together.
    """
    return (microseconds // 1_000_000).cast(pl.Float64) + (microseconds % 1_000_000) * 1e-6


def _previous(scrapes: pl.DataFrame, column: str) -> pl.Expr:
    """The last known value of ``column`` before this scrape; a target's first row has none.

    A column that is known everywhere needs no filling, and then a row's own predecessor does,
    which is several times faster; on a target's first row that is another target's.
    """
    if scrapes[column].null_count() in (0, len(scrapes)):
        return pl.col(column).shift(1)
    return pl.col(column).forward_fill().shift(1).over(keys(scrapes))


# The process was already running at the scrape before.
_BEGAN = ("process_start_time_seconds", "created_seconds")
_RAN_BEFORE = (
    pl.coalesce(_BEGAN) * 1e6
    < pl.col("previous_time").dt.epoch("us") - CLOCK_TOLERANCE_SECONDS * 1e6
).fill_null(False)
_NOT_FIRST = pl.col("previous_time").is_not_null()


def _changed(scrapes: pl.DataFrame, column: str, tolerance: float | None = None) -> pl.Expr:
    """``column`` is known now and before, and differs (by more than ``tolerance``)."""
    before = _previous(scrapes, column)
    differs = (
        pl.col(column) != before
        if tolerance is None
        else (pl.col(column) - before).abs() > tolerance
    )
    return differs.fill_null(False) & _NOT_FIRST


def _fell(scrapes: pl.DataFrame, column: str) -> pl.Expr:
    """``column`` is below its last known value."""
    return (pl.col(column) < _previous(scrapes, column)).fill_null(False) & _NOT_FIRST


def with_epochs(scrapes: pl.DataFrame, before: pl.DataFrame | None = None) -> pl.DataFrame:
    """Usable scrapes with their continuity, sorted by target and time.

    ``scrapes``: scrape table (:data:`driftwatch.collect.schema.SCRAPE_SCHEMA`), any order; of
    several rows of a target with the same time the first counts; ``before``: per target and
    ``time`` of its first row here the last known values of :data:`COMPARED`, where scrapes before
    it are known to somebody; None = to nobody.
    Returns: the rows with ``ok`` true, and per row: ``previous_time``; ``restarted``,
    ``configuration_changed``, ``edges_changed``, ``after_gap`` (booleans, false on a target's first
    row); ``epoch`` (counts up within a target) and ``epoch_starts``; ``step_microseconds`` (time
    since the previous scrape that this scrape's increments cover, 0 where there is none).
    """
    by = keys(scrapes)
    usable = only(scrapes, pl.col("ok"))
    usable = in_order(usable, by)
    told_before = pl.all_horizontal(pl.col(c) == pl.col(c).shift(1) for c in (*by, "time"))
    usable = only(usable, ~told_before.fill_null(False)).with_columns(
        previous_time=pl.col("time").shift(1).over(by)
    )
    filled = usable if before is None else with_known(usable, before, COMPARED)
    fell = pl.any_horizontal([_fell(filled, c) for c in _MONOTONE])
    after_gap = (
        (pl.col("time") - pl.col("previous_time")).dt.total_milliseconds() > MAX_GAP_SECONDS * 1000
    ).fill_null(False)
    other = fell | pl.any_horizontal(
        _changed(filled, column, START_TIME_TOLERANCE_SECONDS) for column in _BEGAN
    )
    flags = filled.select(
        restarted=other & ~(after_gap & _RAN_BEFORE),
        configuration_changed=_changed(filled, "cache_config"),
        edges_changed=_edges_changed(filled),
        after_gap=after_gap,
    )
    first = pl.col("previous_time").is_null()
    begins = pl.any_horizontal("restarted", "configuration_changed", "edges_changed", "after_gap")
    usable = usable.with_columns(flags).with_columns(
        epoch=begins.cast(pl.Int64).cum_sum().over(by),
        epoch_starts=begins | first,
    )
    return usable.with_columns(step_microseconds=_step_microseconds())


def as_read(scrapes: pl.DataFrame) -> pl.DataFrame:
    """The scrapes without the buckets that no evidence reads: a third of what a scrape takes."""
    nothing = (pl.lit(None, dtype=SCRAPE_SCHEMA[column]).alias(column) for column in UNREAD)
    return scrapes.with_columns(*nothing)


def _edges_changed(scrapes: pl.DataFrame) -> pl.Series:
    """Edges of a histogram that is read differ; one by one, for they are half the table."""
    changed = pl.repeat(False, len(scrapes), dtype=pl.Boolean, eager=True)
    for column in _EDGES:
        changed |= scrapes.select(_changed(scrapes, column).alias(column)).to_series()
    return changed


def with_known(scrapes: pl.DataFrame, past: pl.DataFrame, columns: Sequence[str]) -> pl.DataFrame:
    """The rows with what was known before where the row itself says nothing.

    ``scrapes``: any columns of the scrape table; ``past``: per target and time some of
    ``columns``; ``columns``: which ones to fill.
    """
    wanted = [c for c in columns if scrapes[c].null_count() and c in past.columns]
    if not wanted or past.is_empty():
        return scrapes
    by = [*keys(scrapes), "time"]
    before = scrapes.select(by).join(
        past.select(*by, *wanted), on=by, how="left", maintain_order="left"
    )
    return scrapes.with_columns(pl.coalesce(pl.col(c), before[c]).alias(c) for c in wanted)


def _step_microseconds() -> pl.Expr:
    """Microseconds that this scrape's increments cover; whole numbers, so that sums are exact.

    After a restart the increments began with the process, not with the last scrape before it. After
    a gap nobody can say when in it they fell, restart or not: they cover nothing.
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
