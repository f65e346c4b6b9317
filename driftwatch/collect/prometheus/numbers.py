"""What one query brought, over every piece of the grid: as one frame, or as one array."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from driftwatch.collect.prometheus.answer import Keys, LastSeries, Points
from driftwatch.collect.prometheus.query import Labels, Numbers, labels_of

NEVER = int(np.iinfo(np.int64).min)


LONG = {"series": pl.UInt32, "at": pl.Int64, "value": pl.Float64}  # at: unix ms


@dataclass(frozen=True, slots=True)
class LongAnswer:
    """All series that one query brought, over every chunk of the grid."""

    heads: Sequence[bytes]  # labels of each series as JSON
    # ``series`` (index into ``heads``), ``at``, ``value``; in order of time per series
    long: pl.DataFrame

    @property
    def labels(self) -> list[Labels]:
        """Labels of each series."""
        return [labels_of(head) for head in self.heads]


@dataclass(frozen=True, slots=True)
class ArrayAnswer:
    """What one query brought, over every chunk of the grid, as arrays."""

    keys: Keys  # of each series, once
    times: npt.NDArray[np.int64]  # (times,), unix ms: those that any series has a sample at
    value: npt.NDArray[np.float64]  # (series, times), NaN where there is none
    # (series, times), whether there is one; None where there is everywhere
    there: npt.NDArray[np.bool_] | None
    # indexes of series that were told twice at one time, with different numbers; these are NaN
    twice: tuple[int, ...] = ()

    def at(self, times: Numbers) -> ArrayAnswer:
        """What it has at these times."""
        joins = np.isin(self.times, times)
        if joins.all():
            return self
        there = None if self.there is None else self.there[:, joins]
        return ArrayAnswer(self.keys, self.times[joins], self.value[:, joins], there, self.twice)


def answers(chunks: Sequence[Points]) -> LongAnswer:
    """The samples of each chunk of the grid → one table; all of them read with nothing known."""
    if not chunks:
        return LongAnswer((), pl.DataFrame(schema=LONG))
    keys, which = _merged(chunks)
    heads = {key: head for one in chunks for key, head in one.heads.named().items()}
    long = pl.DataFrame(
        {
            "series": np.concatenate(
                [np.repeat(s, one.counts) for s, one in zip(which, chunks, strict=True)]
            ),
            "at": np.concatenate([one.at for one in chunks]),
            "value": np.concatenate([one.value for one in chunks]),
        },
        schema=LONG,
        strict=False,
    )
    return LongAnswer([heads[key] for key in keys.tolist()], long)


def _merged(
    chunks: Sequence[Points], last_series: LastSeries | None = None
) -> tuple[Keys, list[Numbers]]:
    """Every key once, in order of first appearance, and the index of each chunk's series."""
    keys = chunks[0].keys
    if last_series is not None and np.array_equal(last_series.keys, keys):
        keys, distinct = last_series.keys, True
    else:
        distinct = len(np.unique(keys)) == len(keys)
    if distinct and all(np.array_equal(keys, c.keys) for c in chunks):
        return keys, [np.arange(len(keys))] * len(chunks)
    every = np.concatenate([one.keys for one in chunks])
    _, first, which = np.unique(every, return_index=True, return_inverse=True)
    order = np.argsort(first)
    number = np.empty(len(order), np.int64)
    number[order] = np.arange(len(order))
    ends = np.cumsum([len(one.keys) for one in chunks])[:-1]
    return every[first[order]], np.split(number[which.reshape(-1)], ends)


def numbered(chunks: Sequence[Points], last_series: LastSeries | None = None) -> ArrayAnswer:
    """The samples of each chunk of the grid → one array; ``last_series``: as asked with."""
    if not chunks:
        none = np.empty(0, np.int64)
        return ArrayAnswer(none, none, np.empty((0, 0)), None)
    keys, which = _merged(chunks, last_series)
    one = chunks[0]
    if len(chunks) == 1 and len(keys) == len(one.keys) and (one.counts == one.counts[:1]).all():
        count = int(one.counts[0]) if len(keys) else 0
        times = one.at[:count].copy()  # a view would hold all of them
        if (one.at.reshape(len(keys), count) == times).all() and (np.diff(times) > 0).all():
            return ArrayAnswer(keys, times, one.value.reshape(len(keys), count), None)
    at = np.concatenate([c.at for c in chunks])
    value = np.concatenate([c.value for c in chunks])
    row = np.concatenate([np.repeat(w, c.counts) for w, c in zip(which, chunks, strict=True)])
    times, column = np.unique(at, return_inverse=True)
    cell = row * len(times) + column.reshape(-1)
    table = np.full((len(keys), len(times)), np.nan)
    # of several the first is kept, to compare the others with
    table.reshape(-1)[cell[::-1]] = value[::-1]
    there = np.zeros(table.shape, np.bool_)
    there.reshape(-1)[cell] = True
    stored = table.reshape(-1)[cell]
    other = (stored != value) & ~(np.isnan(stored) & np.isnan(value))
    table.reshape(-1)[cell[other]] = np.nan
    twice = tuple(np.unique(row[other]).tolist())
    return ArrayAnswer(keys, times, table, None if there.all() else there, twice)
