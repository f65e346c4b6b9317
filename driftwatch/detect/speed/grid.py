"""Rows of work as arrays (target, minute)."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any

import numpy as np
import polars as pl

from driftwatch.arrays import Codes, Flags, Floats, Indices
from driftwatch.collect.schema import KEY
from driftwatch.detect.speed.load import (
    COMPLETE,
    COVARIATES,
    GAP,
    PREEMPTING,
    RESTARTED,
    UNSEEN,
    WARMING,
)
from driftwatch.model import TargetKey

# Minutes after a restart or a gap that do not count: graphs are captured, caches are cold.
WARM_MINUTES = 5
SETTLING_MINUTES = 10  # from a restart or a change to the first minute that is good for a model
_MINUTE = timedelta(minutes=1)


# Values of a place without a row; 0 in other columns.
_NO_ROW = {"why": UNSEEN, **dict.fromkeys(COVARIATES, np.nan)}


@dataclass(frozen=True)
class Grid:
    """Minutes of targets; a place without a row is a minute without a scrape."""

    work: pl.DataFrame  # WORK_SCHEMA
    targets: pl.DataFrame  # instance, engine, pool, by instance and engine
    first: datetime  # end of the first minute
    minutes: int  # how many
    target: Indices  # of each row of work
    minute: Indices
    _placed: dict[str, Any] = field(default_factory=dict)

    def __getitem__(self, name: str) -> Any:
        """A column of work as (target, minute); NaN is unknown."""
        if name not in self._placed:
            values = self.work[name].to_numpy()
            shape = self.minutes, len(self.targets)  # as rows come: minute after minute
            array = np.full(shape, _NO_ROW.get(name, 0), dtype=values.dtype)
            array.ravel()[self._place] = values
            self._placed[name] = array.T
        return self._placed[name]

    @cached_property
    def _place(self) -> Indices:
        return self.minute * len(self.targets) + self.target

    @cached_property
    def keys(self) -> list[TargetKey]:
        """The targets' keys, in their order."""
        return [TargetKey(*row) for row in self.targets.select(KEY).iter_rows()]

    @property
    def last(self) -> datetime:
        """End of the last minute."""
        return self.first + (self.minutes - 1) * _MINUTE

    def at(self, end: datetime) -> int:
        """Number of the minute that ends at ``end``; may lie outside the grid."""
        number: int = int((end - self.first) // _MINUTE)
        return number

    @cached_property
    def why(self) -> Codes:
        """Index into WHY_NOT."""
        why = self["why"]
        cold = within(self["changed"] == RESTARTED, WARM_MINUTES)
        # one minute without a scrape is no gap; two are
        missed = why == UNSEEN
        missed[:, 1:] &= missed[:, :-1].copy()
        after_gap = within(missed, WARM_MINUTES + 1)
        has_load = (why == COMPLETE) | (why == PREEMPTING)
        why = np.where(has_load & after_gap, np.int8(GAP), why)
        return np.where(has_load & cold, np.int8(WARMING), why)

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
        return ~within(self["changed"] > 0, SETTLING_MINUTES)

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
    instance, engine = (work[name].to_physical().to_numpy().astype(np.intp) for name in KEY)
    engine = _dense(engine)
    code = _dense(instance * (engine.max() + 1) + engine)
    newest = np.empty(code.max() + 1, dtype=np.intp)
    newest[code] = np.arange(len(work))
    targets = work[newest].select(pl.col(*KEY, "pool").cast(pl.String))
    order = targets.select(pl.struct(KEY).arg_sort()).to_series()
    place = np.empty(len(newest), dtype=np.intp)
    place[order.to_numpy()] = np.arange(len(newest))
    minute = work["end"].to_physical().to_numpy() // 60_000_000
    first = work["end"].min()
    assert isinstance(first, datetime)  # noqa: S101
    minute -= minute.min()
    return Grid(work, targets[order], first, int(minute.max()) + 1, place[code], minute)


def _dense(codes: Indices) -> Indices:
    """The codes renumbered without gaps."""
    known = np.zeros(int(codes.max()) + 1, dtype=np.intp)
    known[codes] = 1
    return (np.cumsum(known) - 1)[codes]


def within(flags: Flags, minutes: int) -> Flags:
    """Whether a flag is set in one of the ``minutes`` minutes that end with each."""
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


def median_of_others(values: Floats) -> Floats:
    """Median of the pool's other rows in the same minute; NaN with fewer than two others.

    ``values``: (pool, target, minute).
    """
    ordered = np.sort(values, axis=1)  # NaN last
    present = np.isfinite(values).sum(axis=1, keepdims=True)

    def at(place: Indices) -> Floats:
        inside = np.clip(place, 0, values.shape[1] - 1)
        return np.take_along_axis(ordered, inside, axis=1)

    def without(place: Indices) -> Floats:
        """The same place once the row's own value is taken out."""
        before = at(place)
        return np.where(values > before, before, at(place + 1))

    # an unknown row takes no value away
    known = (without((present - 2) // 2) + without((present - 1) // 2)) / 2.0
    unknown = (at((present - 1) // 2) + at(present // 2)) / 2.0
    is_known = np.isfinite(values)
    enough = present - is_known >= 2
    return np.where(enough, np.where(is_known, known, unknown), np.nan)
