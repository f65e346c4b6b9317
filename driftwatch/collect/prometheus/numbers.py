"""What one query brought over every piece of the grid, as one array."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from driftwatch.collect.prometheus.answer import Heads, Keys, LastSeries, Points
from driftwatch.collect.prometheus.query import Labels, Numbers, labels_of

NEVER = int(np.iinfo(np.int64).min)


@dataclass(frozen=True, slots=True)
class RangeAnswer:
    """What one query brought, over every chunk of the grid."""

    keys: Keys  # of each series, once
    times: Numbers  # (times,), unix ms: those that any series has a sample at
    value: npt.NDArray[np.float64]  # (series, times), NaN where there is none
    # (series, times), whether there is one; None where there is everywhere
    there: npt.NDArray[np.bool_] | None
    # indexes of series that were told twice at one time, with different numbers; these are NaN
    twice: tuple[int, ...] = ()
    heads: Heads = field(default_factory=Heads)  # labels of the series that were not known

    @property
    def labels(self) -> list[Labels]:
        """Labels of each series, of an answer to a query without known series."""
        heads = self.heads.named()
        return [labels_of(heads[key]) for key in self.keys.tolist()]

    def samples(self) -> tuple[Numbers, Numbers, npt.NDArray[np.float64]]:
        """Series, index of the time, and value of each sample; series after series."""
        there = np.ones(self.value.shape, np.bool_) if self.there is None else self.there
        series, time = np.nonzero(there)
        return series, time, self.value[series, time]

    def at(self, times: Numbers) -> RangeAnswer:
        """What it has at these times."""
        joins = np.isin(self.times, times)
        if joins.all():
            return self
        there = None if self.there is None else self.there[:, joins]
        return replace(self, times=self.times[joins], value=self.value[:, joins], there=there)

    def of_series(self, wanted: npt.NDArray[np.bool_]) -> RangeAnswer:
        """Some of its series; for an answer to a query without known series."""
        there = None if self.there is None else self.there[wanted]
        return replace(
            self, keys=self.keys[wanted], value=self.value[wanted], there=there, twice=()
        )


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


def numbered(chunks: Sequence[Points], last_series: LastSeries | None = None) -> RangeAnswer:
    """The samples of each chunk of the grid → one array; ``last_series``: as asked with."""
    if not chunks:
        none = np.empty(0, np.int64)
        return RangeAnswer(none, none, np.empty((0, 0)), None)
    heads = Heads()
    for chunk in chunks:
        heads.extend(chunk.heads)
    keys, which = _merged(chunks, last_series)
    one = chunks[0]
    if len(chunks) == 1 and len(keys) == len(one.keys) and (one.counts == one.counts[:1]).all():
        count = int(one.counts[0]) if len(keys) else 0
        times = one.at[:count].copy()  # a view would hold all of them
        if (one.at.reshape(len(keys), count) == times).all() and (np.diff(times) > 0).all():
            value = one.value.reshape(len(keys), count)
            return RangeAnswer(keys, times, value, None, heads=heads)
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
    return RangeAnswer(keys, times, table, None if there.all() else there, twice, heads)
