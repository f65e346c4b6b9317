"""Did lengths move? A ratio of means decides, where it exceeds the baseline's own swings.

On fleets of real clients a ratio of means found 11 of 17 episodes, as many as scores against peers,
contexts and days. The answer is unknown with few requests, with a baseline too short to show
its swings, and where finished requests do not represent those that come: they waited long, or many
clients gave up (long generations run into a time-out first).
"""

from __future__ import annotations

import math
from datetime import timedelta
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import polars as pl

from driftwatch.arrays import Flags, Floats, Indices
from driftwatch.collect.schema import KEY
from driftwatch.detect.speed.grid import Grid

LENGTHS: Final = ("prompt_tokens", "generation_tokens")
# A mean length takes this many requests.
MIN_REQUESTS: Final = 100
LONGER, SHORTER = 1.5, 0.67
SHORT, LONG = 10, 20  # minutes of a mean; the long one where the short one has too few
HELD, OF = 18, 20  # minutes beyond the bounds, of this many
# After longer waits, requests that finish now do not represent those that come.
MOST_WAIT_SECONDS = 60.0
MOST_GIVEN_UP = 0.1  # share of the begun requests: a tenth of them moves no mean by half
# With fewer windows a baseline shows no tail.
MIN_WINDOWS: Final = 60
# Blocks of ten minutes in a month of 30 days, times two lengths: a server may exceed its swing once
# in them. The 1 and 99 % quantiles of a day gave 82 false notices on fleets of real clients, this 6
# (85 server-days).
MONTH_BLOCKS: Final = 30 * 24 * 6 * len(LENGTHS)
BY_HOUR_DAYS = 7  # from this many days on each hour of the day has its own swings
HOURS = 24
WHOLE_DAY: Final = timedelta(hours=20)  # of a baseline: no part of a day stands for the whole
# Columns of a reference: how far means of windows swing.
SWINGS: Final = tuple(f"{name}_swing_{end}" for name in LENGTHS for end in ("low", "high"))


def rolling_means(sums: Floats, counts: Floats) -> Floats:
    """Mean of the last 10 minutes, or of 20 where those have too few: (target, minute)."""
    mean = np.full(sums.shape, np.nan)
    sums, counts = (_cumulative(values) for values in (sums, counts))
    for minutes in (LONG, SHORT):
        count = _of_last(counts, minutes)
        few = count < MIN_REQUESTS
        mean = np.where(few, mean, _of_last(sums, minutes) / np.maximum(count, 1.0))
    return mean


def _cumulative(values: npt.NDArray[Any]) -> Floats:
    return np.cumsum(np.nan_to_num(values), axis=1, dtype=np.float64)


def _of_last(total: Floats, minutes: int) -> Floats:
    """Sum of the last minutes; fewer at the start."""
    summed = total.copy()
    summed[:, minutes:] -= total[:, :-minutes]
    return summed


def swings(minutes: pl.DataFrame) -> dict[str, list[float] | None]:
    """:data:`SWINGS`: bounds of a window's mean over the mean of all, for each hour (UTC), which it
    leaves about once a month; of several targets those of the one that swings most.

    None with fewer than :data:`MIN_WINDOWS` windows. ``minutes``: MINUTE_SCHEMA.
    """
    found: dict[str, list[float] | None] = dict.fromkeys(SWINGS)
    for name in LENGTHS:
        each = [_swing(own, name) for _, own in minutes.group_by(KEY)]
        known = [bounds for bounds in each if bounds is not None]
        if known:
            found[f"{name}_swing_low"] = np.min([low for low, _ in known], axis=0).tolist()
            found[f"{name}_swing_high"] = np.max([high for _, high in known], axis=0).tolist()
    return found


def _swing(minutes: pl.DataFrame, name: str) -> Floats | None:
    """The bounds of one target: (2, hour)."""
    ends = minutes["end"].dt.epoch("s").to_numpy() // 60
    first = int(ends.min())
    sums, counts = np.zeros((2, 1, int(ends.max()) - first + 1))
    sums[0, ends - first] = minutes[f"{name}_sum"].fill_null(0.0).to_numpy()
    counts[0, ends - first] = minutes[f"{name}_count"].fill_null(0.0).to_numpy()
    if counts.sum() < MIN_REQUESTS or sums.sum() <= 0:
        return None
    ratio = (rolling_means(sums, counts) / (sums.sum() / counts.sum()))[0]
    seen = np.isfinite(ratio) & (ratio > 0) & (np.arange(len(ratio)) >= SHORT - 1)
    if seen.sum() < MIN_WINDOWS:
        return None
    bounds = np.repeat(_extremes(ratio[seen], MONTH_BLOCKS)[:, None], HOURS, axis=1)
    if len(ratio) >= BY_HOUR_DAYS * HOURS * 60:
        hour = (first + np.arange(len(ratio)) - 1) // 60 % HOURS
        for one in range(HOURS):
            own = seen & (hour == one)
            if own.sum() >= MIN_WINDOWS:
                bounds[:, one] = _extremes(ratio[own], MONTH_BLOCKS // HOURS)
    return bounds


def _extremes(ratio: Floats, blocks: int) -> Floats:
    """The bounds that such windows leave once in ``blocks`` blocks of ten minutes."""
    beyond = max(1.0, math.log(blocks) / math.log(len(ratio) / SHORT))
    return np.array([ratio.min() ** beyond, ratio.max() ** beyond])


def length_columns(grid: Grid, reference: pl.DataFrame, first: int) -> dict[str, Any]:
    """The evidence columns of the minutes from number ``first`` on: (target, minute) by column.

    ``reference``: REFERENCE_SCHEMA, a row per target that has one.
    """
    beside = grid.targets.select(KEY).join(reference, on=KEY, how="left", maintain_order="left")
    start = max(first - OF - LONG, 0)  # the first minute that any window reaches
    held = max(first - OF, 0)  # the first one whose ratio counts
    waited = _of_last(_cumulative(grid["waited"][:, start:]), SHORT)[:, first - start :]
    begun, given_up = (
        _of_last(_cumulative(grid[name][:, start:]), SHORT)[:, first - start :]
        for name in ("begun", "given_up")
    )
    overloaded = (waited / SHORT > MOST_WAIT_SECONDS) | (given_up > MOST_GIVEN_UP * begun)
    ends = int(grid.first.timestamp()) // 60 + np.arange(held, grid.minutes)
    hour = (ends - 1) // 60 % HOURS
    apply = _swings_apply(beside, 60.0 * ends)
    # a mean that a person declares (tuned_for) has no swings
    is_declared = (beside["kind"] == "tuned_for").fill_null(value=False).to_numpy()[:, None]
    scored = slice(first - held, None)
    columns: dict[str, Any] = {}
    words = np.array(["none", "longer", "shorter", None], dtype=object)
    for name in LENGTHS:
        mean = beside[f"reference_{name}_mean"].to_numpy()[:, None]
        sums, counts = (grid[f"{name}_{part}"][:, start:] for part in ("sum", "count"))
        ratio = rolling_means(sums, counts)[:, held - start :] / mean
        low, high = (
            _by_hour(beside[f"reference_{name}_swing_{end}"], hour) for end in ("low", "high")
        )
        low, high = (np.where(is_declared, 1.0, np.where(apply, x, np.nan)) for x in (low, high))
        with np.errstate(invalid="ignore"):
            ways = (ratio >= LONGER) & (ratio > high), (ratio <= SHORTER) & (ratio < low)
        longer, shorter = (_of_last(_cumulative(way), OF)[:, scored] >= HELD for way in ways)
        is_known = (np.isfinite(ratio) & np.isfinite(high))[:, scored] & ~overloaded
        word = np.where(longer, 1, np.where(shorter, 2, 0))
        columns[f"{name}_usual_ratio"] = np.maximum(high, 1.0 / low)[:, scored]
        columns[f"{name}_drift"] = words[np.where(is_known, word, -1)]
    return columns


def _swings_apply(beside: pl.DataFrame, ends: npt.NDArray[np.floating]) -> Flags:
    """Whether the baseline's swings apply, (target, minute): always if it covers most of a day,
    else for as long again as it lasted. ``ends``: Unix seconds.
    """
    length = pl.col("until") - pl.col("since")
    last = (pl.col("until") + length).dt.epoch("s").cast(pl.Float64)
    last = pl.when(length >= WHOLE_DAY).then(math.inf).otherwise(last)
    apply: Flags = ends <= beside.select(last).to_numpy()
    return apply


def _by_hour(column: pl.Series, hour: Indices) -> Floats:
    """The numbers of each hour of the day, at these hours: (target, minute)."""
    table = np.full((len(column), HOURS), np.nan)
    known = column.is_not_null().arg_true()
    table[known] = column[known].explode().to_numpy().reshape(-1, HOURS)
    by_minute: Floats = table[:, hour]
    return by_minute
