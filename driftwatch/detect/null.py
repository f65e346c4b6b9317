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
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import polars as pl

from driftwatch.arrays import Floats, Indices, Texts

EPOCH = date(1970, 1, 1).toordinal()
# what finished days are kept in: more minutes than a day has
_KEPT = np.uint16
NO_DAY = -1
_Kind = TypeVar("_Kind", bound=np.generic)


@dataclass(frozen=True, slots=True)
class Null:
    """Daily histograms of one statistic, a slot per key. A value: every method gives a new one.

    Attributes:
        edges: of the bins, rising, finite; what lies outside falls into the first or last bin.
        days: finished days kept per key.
        least: values that make a day count; a day with fewer is forgotten at its end.
        keys: the key columns (strings), row = slot.
        day: the day being counted, in days since 1970-01-01; :data:`NO_DAY` before the first.
        current: counts of that day, [slots, bins].
        past: counts of finished days, latest first, [slots, days, bins].
        dates: which days those were, [slots, days]; :data:`NO_DAY` where there is none.
    """

    edges: Floats
    days: int
    least: int
    keys: pl.DataFrame
    day: int
    current: npt.NDArray[np.uint32]
    past: npt.NDArray[np.uint16]
    dates: npt.NDArray[np.int32]

    @property
    def size(self) -> int:
        """Number of keys."""
        return len(self.keys)

    @property
    def bins(self) -> int:
        """Number of bins."""
        return len(self.edges) - 1

    def with_keys(self, keys: pl.DataFrame) -> tuple[Null, Indices]:
        """Room for these keys, and the slot of each of them, in order.

        Args:
            keys: the key columns, each key once.
        """
        columns = self.keys.columns
        wanted = keys.select(columns)
        known = self.keys.with_row_index("slot")
        found = wanted.join(known, on=columns, how="left", maintain_order="left")["slot"]
        fresh = wanted.filter(found.is_null())
        grown = self._grown(fresh) if len(fresh) else self
        slots = np.array(found.fill_null(-1).cast(pl.Int64), dtype=np.intp)
        slots[slots < 0] = self.size + np.arange(len(fresh))
        return grown, slots

    def _grown(self, fresh: pl.DataFrame) -> Null:
        more = len(fresh)
        return replace(
            self,
            keys=pl.concat([self.keys, fresh]),
            current=_padded(self.current, more, 0),
            past=_padded(self.past, more, 0),
            dates=_padded(self.dates, more, NO_DAY),
        )

    def begun(self, day: int) -> Null:
        """The same at a day, with the days before it finished.

        Args:
            day: days since 1970-01-01 (:func:`day_number`); never before the one being counted.
        """
        if day == self.day:
            return self
        done = self.current.sum(axis=1) >= self.least
        past, dates = self.past.copy(), self.dates.copy()
        past[done, 1:], dates[done, 1:] = past[done, :-1], dates[done, :-1]
        past[done, 0] = np.minimum(self.current[done], np.iinfo(_KEPT).max)
        dates[done, 0] = self.day
        return replace(self, day=day, current=np.zeros_like(self.current), past=past, dates=dates)

    def add(self, slots: Indices, values: Floats) -> Null:
        """One more value of some keys, on the day being counted.

        Args:
            slots: from :meth:`with_keys`.
            values: beside them; NaN counts nowhere.
        """
        current = self.current.copy()
        _count(current, self.edges, slots, values)
        return replace(self, current=current)

    def known_days(self) -> Indices:
        """Finished days per key."""
        known: Indices = (self.dates != NO_DAY).sum(axis=1)
        return known

    def quantile(self, q: float, least_days: int = 5) -> Floats:
        """The ``q`` quantile of each key's finished days, linear inside its bin.

        Args:
            q: between 0 and 1.
            least_days: NaN for keys that know fewer.
        """
        counts = self.past.sum(axis=1, dtype=np.float64)
        return np.where(self.known_days() >= least_days, quantiles(counts, self.edges, q), np.nan)

    def middle_of_largest(self) -> Floats:
        """The median of the finished days' largest values; NaN for keys that know no day."""
        days = quantiles(self.past.reshape(-1, self.bins).astype(np.float64), self.edges, 1.0)
        largest = np.sort(days.reshape(self.size, -1), axis=1)  # unknown days go last
        known = (~np.isnan(largest)).sum(axis=1)
        middle = np.maximum(np.stack([(known - 1) // 2, known // 2], axis=1), 0)
        found: Floats = np.take_along_axis(largest, middle, axis=1).mean(axis=1)
        return found

    def pooled_quantile(self, q: float, groups: Indices, least_days: int = 5) -> Floats:
        """The ``q`` quantile of the finished days of all keys of a group, added up.

        Args:
            q: between 0 and 1.
            groups: the group of each slot, from 0; -1 = of none.
            least_days: NaN where the group's keys know fewer days in all.

        Returns:
            Per slot, the quantile of its group.
        """
        inside = np.flatnonzero(groups >= 0)
        out = np.full(self.size, np.nan)
        if not len(inside):
            return out
        number = int(groups.max()) + 1
        counts, days = np.zeros((number, self.bins)), np.zeros(number)
        np.add.at(counts, groups[inside], self.past[inside].sum(axis=1, dtype=np.float64))
        np.add.at(days, groups[inside], self.known_days()[inside])
        found = np.where(days >= least_days, quantiles(counts, self.edges, q), np.nan)
        out[inside] = found[groups[inside]]
        return out

    def without(self, gone: pl.DataFrame) -> Null:
        """Less the keys of some targets.

        Args:
            gone: some of the key columns.
        """
        mark = self.keys.join(gone.with_columns(gone=True), on=gone.columns, how="left")
        stay = mark["gone"].is_null().to_numpy()
        if stay.all():
            return self
        return replace(
            self,
            keys=self.keys.filter(stay),
            current=self.current[stay],
            past=self.past[stay],
            dates=self.dates[stay],
        )

    def frames(self) -> dict[str, pl.DataFrame]:
        """Name → frame, from which :func:`null_from` makes the same again."""
        slot, place = np.nonzero(self.dates != NO_DAY)
        today = np.flatnonzero(self.current.any(axis=1))
        counts = np.concatenate([self.past[slot, place].astype(np.uint32), self.current[today]])
        days = pl.DataFrame(
            {
                "slot": np.concatenate([slot, today]).astype(np.int64),
                "day": np.concatenate(
                    [self.dates[slot, place], np.full(len(today), self.day)]
                ).astype(np.int64),
                "counts": counts,
            },
            schema_overrides={"counts": pl.Array(pl.UInt32, self.bins)},
        ).with_columns(pl.col("counts").arr.to_list())
        about = pl.DataFrame(
            {"day": [self.day], "days": [self.days], "least": [self.least], "edges": [self.edges]},
            schema_overrides={"edges": pl.List(pl.Float64)},
        )
        return {"keys": self.keys, "days": days, "about": about}


def null(edges: Sequence[float] | Floats, key: Sequence[str], days: int, least: int) -> Null:
    """One without keys.

    Args:
        edges: of the bins, rising and finite.
        key: names of the key columns.
        days: finished days to keep per key.
        least: values that make a day count.
    """
    at = np.asarray(edges, dtype=np.float64)
    return Null(
        edges=at,
        days=days,
        least=least,
        keys=pl.DataFrame(schema=dict.fromkeys(key, pl.String)),
        day=NO_DAY,
        current=np.zeros((0, len(at) - 1), dtype=np.uint32),
        past=np.zeros((0, days, len(at) - 1), dtype=_KEPT),
        dates=np.zeros((0, days), dtype=np.int32),
    )


def null_from(frames: Mapping[str, pl.DataFrame]) -> Null:
    """The one that :meth:`Null.frames` gave."""
    about = frames["about"].row(0, named=True)
    keys = frames["keys"]
    empty = null(about["edges"], keys.columns, about["days"], about["least"])
    made = replace(empty._grown(keys), day=about["day"])
    told = frames["days"]
    if not len(told):
        return made
    slot, day = told["slot"].to_numpy(), told["day"].to_numpy()
    counts = told["counts"].list.to_array(made.bins).to_numpy().reshape(len(told), made.bins)
    running = day == made.day
    made.current[slot[running]] = counts[running]
    # latest first, as they were written
    old_slot, old_day, old = slot[~running], day[~running], counts[~running]
    order = np.lexsort((-old_day, old_slot))
    old_slot, old_day, old = old_slot[order], old_day[order], old[order]
    first = np.searchsorted(old_slot, old_slot, side="left")
    place = np.arange(len(old_slot)) - first
    made.past[old_slot, place] = old
    made.dates[old_slot, place] = old_day
    return made


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


def day_number(day: date) -> int:
    """Days since 1970-01-01."""
    return day.toordinal() - EPOCH


def first_known(*sources: tuple[str, Floats]) -> tuple[Floats, Texts]:
    """Row by row the first source that is known, and its name.

    Args:
        sources: name and values [n], the best first: own, pool, shipped.

    Returns:
        Values (NaN where no source knows one) and names (None there).
    """
    value = np.full(len(sources[0][1]), np.nan)
    name = np.full(len(value), None, dtype=object)
    for source, values in reversed(sources):
        known = ~np.isnan(values)
        value[known], name[known] = values[known], source
    return value, name


def _count(current: npt.NDArray[np.uint32], edges: Floats, slots: Indices, values: Floats) -> None:
    known = ~np.isnan(values)
    cell = np.clip(np.searchsorted(edges, values[known], side="right") - 1, 0, len(edges) - 2)
    np.add.at(current, (slots[known], cell), 1)


def _padded(array: npt.NDArray[_Kind], rows: int, fill: float) -> npt.NDArray[_Kind]:
    more = np.full((rows, *array.shape[1:]), fill, dtype=array.dtype)
    return np.concatenate([array, more])
