"""What is usual for a statistic: its own past, a histogram a UTC day, for many keys at once.

A threshold that was fixed once fits no server: the same statistic is three times as wide on one
as on the next. So each key (a target and a statistic, say) remembers how its statistic was
distributed on its last clean days, and a quantile of that is the scale of today. Today itself
counts from tomorrow on: quantiles change at midnight only, and the day of a fault does not hide it.

Everything is vectorised over keys; a key costs ``bins · (2 · days + 4)`` bytes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date

import numpy as np
import numpy.typing as npt
import polars as pl

from driftwatch.arrays import Floats, Indices, Integers
from driftwatch.detect.memory import Arrays, Field, arrays_from, no_arrays

EPOCH = date(1970, 1, 1).toordinal()
# what finished days are kept in: more minutes than a day has
_COUNT = np.uint16
NO_DAY = -1


@dataclass(frozen=True, slots=True)
class Null:
    """Daily histograms of one statistic, a slot per key. A value: every method gives a new one."""

    edges: Floats  # of the bins, rising, finite; what lies outside falls into the first or last bin
    days: int  # finished days kept per key
    least: int  # values that make a day count; a day with fewer is forgotten at its end
    day: int  # the day being counted, in days since 1970-01-01; :data:`NO_DAY` before the first
    # the keys, and of each ``current`` (counts of that day, [bins]), ``past`` (counts of finished
    # days, latest first, [days, bins]) and ``dates`` (which days those were, [days]; :data:`NO_DAY`
    # where there is none)
    slots: Arrays

    @property
    def size(self) -> int:
        """Number of keys."""
        return len(self.slots)

    @property
    def past(self) -> npt.NDArray[np.uint16]:
        """Counts of finished days, latest first, [slots, days, bins]."""
        return self.slots["past"]

    def with_keys(self, keys: pl.DataFrame) -> tuple[Null, Indices]:
        """Room for these keys (each once), and the slot of each of them, in order."""
        slots = self.slots.with_keys(keys.select(self.slots.key))
        return replace(self, slots=slots), slots.places(keys)

    def begun(self, day: int) -> Null:
        """The same at a day (:func:`day_number`, never one before), with earlier days finished."""
        if day == self.day:
            return self
        current = self.slots["current"]
        done = current.sum(axis=1) >= self.least
        past, dates = self.past.copy(), self.slots["dates"].copy()
        past[done, 1:], dates[done, 1:] = past[done, :-1], dates[done, :-1]
        past[done, 0] = np.minimum(current[done], np.iinfo(_COUNT).max)
        dates[done, 0] = self.day
        slots = self.slots.with_arrays(current=np.zeros_like(current), past=past, dates=dates)
        return replace(self, day=day, slots=slots)

    def add(self, slots: Indices, values: Floats) -> Null:
        """One more value of some keys, on the day being counted; NaN counts nowhere."""
        current = self.slots["current"].copy()
        is_known = ~np.isnan(values)
        cell = np.searchsorted(self.edges, values[is_known], side="right") - 1
        np.add.at(current, (slots[is_known], np.clip(cell, 0, len(self.edges) - 2)), 1)
        return replace(self, slots=self.slots.with_arrays(current=current))

    def known_days(self) -> Indices:
        """Finished days per key."""
        counts: Indices = (self.slots["dates"] != NO_DAY).sum(axis=1)
        return counts

    def quantile(self, q: float, least_days: int = 5) -> Floats:
        """The ``q`` quantile of each key's finished days, linear inside its bin.

        ``q``: between 0 and 1; ``least_days``: NaN for keys that know fewer.
        """
        counts = self.past.sum(axis=1, dtype=np.float64)
        return np.where(self.known_days() >= least_days, quantiles(counts, self.edges, q), np.nan)

    def middle_of_largest(self) -> Floats:
        """The median of the finished days' largest values; NaN for keys that know no day."""
        days = quantiles(
            self.past.reshape(-1, len(self.edges) - 1).astype(np.float64), self.edges, 1.0
        )
        largest = np.sort(days.reshape(self.size, -1), axis=1)  # unknown days go last
        day_counts = (~np.isnan(largest)).sum(axis=1)
        middle = np.maximum(np.stack([(day_counts - 1) // 2, day_counts // 2], axis=1), 0)
        medians: Floats = np.take_along_axis(largest, middle, axis=1).mean(axis=1)
        return medians

    def pooled_quantile(self, q: float, groups: Indices, least_days: int = 5) -> Floats:
        """The ``q`` quantile of the finished days of all keys of a group, added up; per slot.

        ``groups``: the group of each slot, from 0; -1 = of none.
        """
        inside = np.flatnonzero(groups >= 0)
        out = np.full(self.size, np.nan)
        if not len(inside):
            return out
        number = int(groups.max()) + 1
        counts, days = np.zeros((number, len(self.edges) - 1)), np.zeros(number)
        np.add.at(counts, groups[inside], self.past[inside].sum(axis=1, dtype=np.float64))
        np.add.at(days, groups[inside], self.known_days()[inside])
        of_groups = np.where(days >= least_days, quantiles(counts, self.edges, q), np.nan)
        out[inside] = of_groups[groups[inside]]
        return out

    def without(self, leaving: pl.DataFrame) -> Null:
        """Less the keys of some targets; ``leaving`` has some of the key columns."""
        return replace(self, slots=self.slots.without(leaving))

    def frames(self) -> dict[str, pl.DataFrame]:
        """Name → frame, from which :func:`null_from` makes the same again."""
        return {**self.slots.frames(), "day": pl.DataFrame({"day": [self.day]})}


def null(edges: Sequence[float] | Floats, key: Sequence[str], days: int, least: int) -> Null:
    """One without keys: rising, finite edges of the bins, names of the key columns, finished days
    to keep per key, and the number of values that makes a day count.
    """
    at = np.asarray(edges, dtype=np.float64)
    fields = {
        "current": Field((len(at) - 1,), "uint32"),
        "past": Field((days, len(at) - 1), _COUNT.__name__),
        "dates": Field((days,), "int32", NO_DAY),
    }
    return Null(at, days, least, NO_DAY, no_arrays(key, fields))


def null_from(frames: Mapping[str, pl.DataFrame], empty: Null) -> Null:
    """The one that :meth:`Null.frames` gave; ``empty`` is of :func:`null`."""
    return replace(empty, day=frames["day"].item(), slots=arrays_from(frames, empty.slots))


def quantiles(counts: Floats, edges: Floats, q: float) -> Floats:
    """The ``q`` quantile of each row of counts [n, bins], linear inside its bin; NaN without any.

    A quantile in the last bin reads as its upper edge: what lies beyond is only known to be more.
    """
    running = np.cumsum(counts, axis=1)
    total = running[:, -1]
    rank = q * total
    cell = np.minimum(np.argmax(running >= rank[:, None], axis=1), counts.shape[1] - 1)
    row = np.arange(len(counts))
    inside = counts[row, cell]
    below = running[row, cell] - inside
    with np.errstate(invalid="ignore", divide="ignore"):
        share = np.clip((rank - below) / inside, 0.0, 1.0)
    value = edges[cell] + (edges[cell + 1] - edges[cell]) * np.nan_to_num(share)
    value = np.where(cell == counts.shape[1] - 1, edges[-1], value)
    return np.where(total > 0, value, np.nan)


@dataclass(frozen=True, slots=True)
class Bins:
    """Bins of equal width on a line, for quantiles of a day in bounded memory.

    By logarithm a quantile is off by a constant ratio (DDSketch: Masson, Rim & Lee, VLDB 2019).
    """

    lowest: float  # lower end of the first bin; values below it count in it
    width: float  # of a bin
    count: int  # how many; values above the last count in it
    logarithmic: bool  # values are positive and counted by their logarithm

    def index(self, values: Floats) -> Integers:
        """The bin of each value; -1 for NaN and, where logarithms count, for what is not > 0."""
        with np.errstate(invalid="ignore", divide="ignore"):
            line = np.log(values) if self.logarithmic else values
            is_known = np.isfinite(line)
        place = np.floor((np.where(is_known, line, self.lowest) - self.lowest) / self.width)
        inside = np.clip(place, 0, self.count - 1).astype(np.int64)
        return np.where(is_known, inside, -1)

    def quantile(self, counts: npt.NDArray[np.integer], q: float) -> Floats:
        """The ``q`` quantile of every row of counts [n, count]; NaN where nothing was counted."""
        cumulative = np.cumsum(counts, axis=1, dtype=np.float64)
        total = cumulative[:, -1]
        rank = q * total
        cell = np.argmax(cumulative >= rank[:, None], axis=1)
        rows = np.arange(len(counts))
        below = np.where(cell > 0, cumulative[rows, cell - 1], 0.0)
        with np.errstate(invalid="ignore", divide="ignore"):
            share = (rank - below) / (cumulative[rows, cell] - below)
        line = self.lowest + self.width * (cell + share)
        line[total <= 0] = np.nan
        value: Floats = np.exp(line) if self.logarithmic else line
        return value


def day_number(day: date) -> int:
    """Days since 1970-01-01."""
    return day.toordinal() - EPOCH
