"""A pool's window against its contexts; what counts is the nearest of them.

Contexts are the previous hour, the trailing 24 hours, and the same hour of the six days before
and of the same weekday one to four weeks ago. A holiday is compared with Sundays and holidays
of the last four weeks instead, and is no context of an ordinary day.
"""

from __future__ import annotations

from collections.abc import Iterator, Set
from dataclasses import dataclass

import numpy as np

from driftwatch.arrays import Flags, Floats, Integers, Singles
from driftwatch.detect.lengths.episodes import MOVED_OF_POOL, moved_enough
from driftwatch.detect.lengths.layouts import (
    MIN_REQUESTS,
    WINDOWS,
    Distance,
    Window,
    by_window,
    distances,
)
from driftwatch.detect.lengths.peers import Compared, ln_mean_ratio
from driftwatch.detect.lengths.scales import CONTEXT_REQUESTS

# ends of sums that make the previous hour of each window: latest 70 minutes less latest 10, ...
HOUR_ENDS = tuple(w + 60 for w in WINDOWS)
_DAYS = (1, 2, 3, 4, 5, 6, 7, 14, 21, 28)
_FULL_DAY_HOURS = 20  # of the trailing 24
_SUNDAY = 3  # 1970-01-01, day 0, was a Thursday


@dataclass(frozen=True, slots=True)
class Past:
    """What the contexts are made of."""

    hours: Integers  # numbers of the hours known, rising
    counts: Singles  # cumulative [hours, pools, signals, edges]
    sums: Floats  # of tokens [hours, pools, signals]
    holidays: Set[int]  # days since 1970-01-01

    def special(self, day: int) -> bool:
        """A Sunday or a holiday."""
        return day % 7 == _SUNDAY or day in self.holidays

    def rows(self, hours: list[int]) -> Integers:
        """Indices of those of these hours that are known."""
        place = np.searchsorted(self.hours, hours)
        inside = place < len(self.hours)
        place, wanted = place[inside], np.asarray(hours)[inside]
        places: Integers = place[self.hours[place] == wanted]
        return places

    def same_hours(self, hour: int) -> list[int]:
        """The hours of other days that an hour may be compared with."""
        day = hour // 24
        if day in self.holidays:
            return [hour - 24 * d for d in range(1, 29) if self.special(day - d)]
        return [hour - 24 * d for d in _DAYS if day - d not in self.holidays]

    def day_before(self, hour: int) -> list[int]:
        """The 24 hours before an hour, of days that it may be compared with."""
        hours = range(hour - 24, hour)
        if hour // 24 in self.holidays:
            return list(hours)
        return [h for h in hours if h // 24 not in self.holidays]


def against_contexts(
    window: Window,
    counts: dict[int, Floats],
    sums: dict[int, Floats],
    first: int,
    wanted: Flags,
    past: Past,
    grid: Floats,
) -> tuple[Compared, Floats]:
    """Every pool's window against the nearest of its contexts [minutes, pools, signals].

    There is a verdict where the same hour of another day is among them. ``counts``, ``sums``: of
    :data:`WINDOWS` and :data:`HOUR_ENDS`; ``first``: number of the block's first minute. Returns
    the verdicts, and the statistic wherever there is any context.
    """
    there = wanted & (window.minutes > 0)
    shape, none = window.sums.shape, np.zeros(window.sums.shape, dtype=bool)
    if not there.any():
        unknown = np.full(shape, np.nan)
        return Compared(unknown, unknown, none, none, none), unknown
    own, tokens = window.counts[there], window.sums[there]
    nearest = Distance(*(np.full(len(own), fill) for fill in (np.inf, np.nan, np.nan)))
    mean, comparable = np.full(len(own), np.nan), np.zeros(len(own), dtype=bool)
    for context, of_tokens, same_hour in contexts(window, counts, sums, first, past):
        other, of_other = context[there], of_tokens[there]
        rows = np.flatnonzero(other[:, -1] >= MIN_REQUESTS)
        if not len(rows):
            continue
        apart = distances(own[rows], other[rows], grid)
        comparable[rows] |= same_hour & np.isfinite(apart.js)
        near = apart.js < nearest.js[rows]
        rows = rows[near]
        for best, new in zip(nearest.parts, apart.parts, strict=True):
            best[rows] = new[near]
        mean[rows] = ln_mean_ratio(tokens[rows], own[rows, -1], of_other[rows], other[rows, -1])

    def placed(values: Floats | Flags) -> Floats:
        everywhere: Floats = np.full(shape, np.nan)
        everywhere[there] = values
        return everywhere

    statistic = np.where(np.isfinite(nearest.js), nearest.js * np.sqrt(weight(own[:, -1])), np.nan)
    moved, clearly = moved_enough(nearest, mean, MOVED_OF_POOL)
    verdicts = Compared(
        placed(np.where(comparable, statistic, np.nan)),
        placed(np.where(comparable, mean, np.nan)),
        placed(moved & comparable) == 1.0,
        placed(clearly & comparable) == 1.0,
        none,
    )
    return verdicts, placed(statistic)


def weight(requests: Floats) -> Floats:
    """What JS is multiplied with (its root): requests, up to where more of them tell nothing."""
    weights: Floats = requests * CONTEXT_REQUESTS / (requests + CONTEXT_REQUESTS)
    return weights


def contexts(
    window: Window, counts: dict[int, Floats], sums: dict[int, Floats], first: int, past: Past
) -> Iterator[tuple[Floats, Floats, bool]]:
    """Each context of all windows: counts, sums of tokens, and whether it is the same hour."""
    hour_counts = {w: counts[w + 60] - counts[w] for w in WINDOWS}
    hour_sums = {w: sums[w + 60] - sums[w] for w in WINDOWS}
    none = np.zeros_like(window.counts), np.zeros_like(window.sums)
    yield (
        np.maximum(by_window(hour_counts, window.minutes, none[0]), 0.0),
        by_window(hour_sums, window.minutes, none[1]),
        False,
    )
    minute = first + np.arange(len(window.sums))
    starts = {w: (minute - w) // 60 for w in WINDOWS}
    middles = {w: (2 * minute - w) // 120 for w in WINDOWS}
    if not len(past.hours):
        return
    trailing = {h: _day(past, h) for h in {int(h) for s in starts.values() for h in s}}
    yield _placed(window, starts, trailing, False)
    same = {
        h: [_hours(past, [o]) for o in past.same_hours(h)]
        for h in {int(h) for m in middles.values() for h in m}
    }
    for number in range(max(len(s) for s in same.values())):
        one = {h: s[number] if number < len(s) else None for h, s in same.items()}
        if any(one.values()):
            yield _placed(window, middles, one, True)


_Sum = tuple[Floats, Floats]


def _hours(past: Past, hours: list[int]) -> _Sum | None:
    rows = past.rows(hours)
    if not len(rows):
        return None
    return past.counts[rows].sum(axis=0, dtype=np.float64), past.sums[rows].sum(axis=0)


def _day(past: Past, hour: int) -> _Sum | None:
    """The 24 hours before an hour; nothing for pools that know too few of them."""
    rows = past.rows(past.day_before(hour))
    if len(rows) < _FULL_DAY_HOURS:
        return None
    counts = past.counts[rows].sum(axis=0, dtype=np.float64)
    sums = past.sums[rows].sum(axis=0)
    few = (past.counts[rows][..., -1] > 0).sum(axis=0) < _FULL_DAY_HOURS
    counts[few], sums[few] = 0.0, 0.0
    return counts, sums


def _placed(
    window: Window, hour: dict[int, Integers], by_hour: dict[int, _Sum | None], same_hour: bool
) -> tuple[Floats, Floats, bool]:
    """What belongs to each window's hour, in the shape of the windows."""
    counts, sums = np.zeros_like(window.counts), np.zeros_like(window.sums)
    for length, hours in hour.items():
        for one in {int(h) for h in hours}:
            value = by_hour[one]
            if value is None:
                continue
            here = (window.minutes == length) & (hours == one)[:, None, None]
            counts = np.where(here[..., None], value[0], counts)
            sums = np.where(here, value[1], sums)
    return counts, sums, same_hour
