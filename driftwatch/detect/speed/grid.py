"""Rows of work as arrays (target, minute)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any

import numpy as np
import polars as pl

from driftwatch.arrays import Codes, Flags, Floats, Indices, Singles
from driftwatch.collect.schema import KEY
from driftwatch.detect.speed.load import (
    COMPLETE,
    COVARIATES,
    GAP,
    LENGTH_PARTS,
    PREEMPTING,
    RESTARTED,
    UNSEEN,
    WARMING,
)

# Minutes after a restart or a gap that do not count: graphs are captured, caches are cold.
WARM_MINUTES = 5
SETTLING_MINUTES = 10  # a minute is good for a model only so long after a restart or a change
_MINUTE = timedelta(minutes=1)


@dataclass(frozen=True)
class Grid:
    """Minutes of targets; a place without a row is a minute without a scrape."""

    targets: pl.DataFrame  # instance, engine, pool, by instance and engine
    first: datetime  # end of the first minute
    values: Mapping[str, Singles]  # covariate → (target, minute), NaN where unknown
    why: Codes  # index into WHY_NOT
    changed: Codes
    scrapes: Singles
    sound: Flags
    limited: Flags
    lengths: tuple[Floats, ...]  # sums and counts: LENGTH_PARTS
    waited: Singles  # seconds in the queue
    target: Indices  # of each row of work
    minute: Indices

    def __getitem__(self, name: str) -> Singles:
        return self.values[name]

    @property
    def minutes(self) -> int:
        """How many."""
        return int(self.why.shape[1])

    @property
    def last(self) -> datetime:
        """End of the last minute."""
        return self.first + (self.minutes - 1) * _MINUTE

    def at(self, end: datetime) -> int:
        """Number of the minute that ends at ``end``; may lie outside the grid."""
        number: int = int((end - self.first) // _MINUTE)
        return number

    @cached_property
    def usable(self) -> Flags:
        """Minutes whose load is known."""
        usable: Flags = self.why == COMPLETE
        return usable

    def counts(self, preempts: Flags) -> Flags:
        """Minutes that count; ``preempts`` (target,): whether its preempting minutes count too."""
        counts: Flags = self.usable | (preempts[:, None] & (self.why == PREEMPTING))
        return counts

    @cached_property
    def settled(self) -> Flags:
        """No restart and no change in the minute and the nine before it."""
        return ~within(self.changed > 0, SETTLING_MINUTES)

    @cached_property
    def by_pool(self) -> list[tuple[str, Indices]]:
        """Pool and its rows, by name."""
        return [
            (str(pool), np.asarray(rows, dtype=np.intp))
            for pool, rows in self.targets.with_row_index("row")
            .group_by(pl.col("pool").fill_null(""))
            .agg("row")
            .sort("pool")
            .iter_rows()
        ]


def grid_of(work: pl.DataFrame) -> Grid:
    """The arrays of :data:`driftwatch.detect.speed.load.WORK_SCHEMA` rows, at least one."""
    targets = work.select(*KEY, "pool").unique(KEY, keep="last", maintain_order=True).sort(KEY)
    places = targets.select(KEY).with_row_index("target")
    rows = work.join(places, on=KEY, how="left", maintain_order="left")
    ends = work["end"].dt.epoch("s").to_numpy() // 60
    start = int(ends.min())
    target, minute = rows["target"].to_numpy().astype(np.intp), (ends - start).astype(np.intp)
    shape = (len(targets), int(minute.max()) + 1)

    def placed(name: str, fill: float, dtype: str) -> Any:
        array = np.full(shape, fill, dtype=dtype)
        array[target, minute] = work[name].to_numpy()
        return array

    why = placed("why", UNSEEN, "int8")
    changed = placed("changed", 0, "int8")
    cold = within(changed == RESTARTED, WARM_MINUTES)
    # one minute without a scrape is no gap; two are
    missed = why == UNSEEN
    missed[:, 1:] &= missed[:, :-1].copy()
    after_gap = within(missed, WARM_MINUTES + 1)
    why = np.where((why == COMPLETE) & cold, np.int8(WARMING), why)
    why = np.where((why == COMPLETE) & after_gap, np.int8(GAP), why)
    values = {name: placed(name, np.nan, "float32") for name in COVARIATES}
    first = work["end"].min()
    assert isinstance(first, datetime)  # noqa: S101
    return Grid(
        targets=targets,
        first=first,
        values=values,
        why=why,
        changed=changed,
        scrapes=placed("scrapes", 0.0, "float32"),
        sound=placed("sound", False, "bool"),
        limited=placed("limited", False, "bool"),
        lengths=tuple(np.nan_to_num(placed(name, 0.0, "float64")) for name in LENGTH_PARTS),
        waited=placed("waited", 0.0, "float32"),
        target=target,
        minute=minute,
    )


def within(flags: Flags, minutes: int) -> Flags:
    """Whether a flag is set in a minute or in one of those before it."""
    found = flags.copy()
    for back in range(1, minutes):
        found[:, back:] |= flags[:, :-back]
    return found


def quantile(values: Floats, q: float) -> Floats:
    """Quantile (linear) of the known values along the last axis; NaN without any."""
    ordered = np.sort(values, axis=-1)  # NaN last
    known = np.isfinite(values).sum(axis=-1)
    place = q * np.maximum(known - 1, 0)
    low, high = np.floor(place).astype(np.intp), np.ceil(place).astype(np.intp)
    below = np.take_along_axis(ordered, low[..., None], axis=-1)[..., 0]
    above = np.take_along_axis(ordered, high[..., None], axis=-1)[..., 0]
    between: Floats = below + (above - below) * (place - low)
    return between


def rolling(values: Floats, minutes: int, q: float, known: int, start: int = 0) -> Floats:
    """Quantile q of the ``minutes`` minutes that end with each from ``start`` on; NaN where fewer
    than ``known`` of them are known. ``values``: (target, minute).
    """
    before = max(start - minutes + 1, 0)
    values, start = values[:, before:], start - before
    found = np.full(values.shape, np.nan)
    if values.shape[1] >= minutes:
        windows = np.lib.stride_tricks.sliding_window_view(values, minutes, axis=1)
        enough = np.isfinite(windows).sum(axis=-1) >= known
        found[:, minutes - 1 :] = np.where(enough, quantile(windows, q), np.nan)
    return found[:, start:]


def of_others(values: Floats) -> Floats:
    """Median of the other rows in the same minute; NaN with fewer than two others.

    ``values``: (target of one pool, minute).
    """
    rows, count = values.shape
    if rows < 3:
        return np.full((rows, count), np.nan)
    order = np.argsort(values, axis=0, kind="stable")  # NaN last
    rank = np.empty_like(order)
    np.put_along_axis(rank, order, np.arange(rows)[:, None].repeat(count, axis=1), axis=0)
    ordered = np.take_along_axis(values, order, axis=0)
    present = np.isfinite(values).sum(axis=0)
    # without a row of rank k the places from k on move up by one; an unknown row takes none away
    others = np.where(np.isnan(values), present, present - 1)
    low, high = np.maximum(others - 1, 0) // 2, others // 2
    cut = np.where(np.isnan(values), rows, rank)
    low, high = low + (low >= cut), high + (high >= cut)
    below = np.take_along_axis(ordered, np.minimum(low, rows - 1), axis=0)
    above = np.take_along_axis(ordered, np.minimum(high, rows - 1), axis=0)
    return np.where(others >= 2, (below + above) / 2.0, np.nan)
