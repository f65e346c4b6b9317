"""The parts of histograms → sum, count and buckets, those that are sound."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import polars as pl

from driftwatch.arrays import Flags, Floats, Integers
from driftwatch.collect.registry import Slot
from driftwatch.collect.schema import BUCKETS

NONE = -1


class Histograms:
    """One column's histograms, a row each; none of a row's numbers where one is not sound."""

    def __init__(self, count: int) -> None:
        self.wrong: list[tuple[int, str]] = []  # row, and why it is not read
        self.bare: list[Integers] = []  # rows that have a sum and a count, no bucket
        self._sums, self._counts = np.full(count, np.nan), np.full(count, np.nan)
        self._place, self._edges_of = np.full(count, NONE), np.full(count, NONE)
        self._free = np.ones(count, np.bool_)  # rows that have no histogram yet
        self._pieces, self._edges = [pl.Series(dtype=BUCKETS)], [pl.Series(dtype=BUCKETS)]
        self._held = 0

    def add(self, slots: Sequence[tuple[Slot, int]], matrix: Floats) -> None:
        """Read the histograms of one name, in rows that have none of a newer name.

        ``slots``: their parts, each with its row of the matrix; ``matrix``: (slots, rows), NaN
        where there is no number, below 0 where it is none.
        """
        wire = slots[0][0].wire_name.removesuffix(f"_{slots[0][0].part}")
        buckets = [one for one in slots if one[0].part == "bucket"]
        buckets.sort(key=lambda one: (one[0].edge != one[0].edge, one[0].edge))
        sums = [one for one in slots if one[0].part == "sum"]
        counts = [one for one in slots if one[0].part == "count"]
        order = [number for _, number in (*buckets, *sums, *counts)]
        numbers = matrix[order].T
        there = ~np.isnan(numbers)
        ours = there.any(axis=1) & self._free
        self._free &= ~ours
        edge = np.array([slot.edge for slot, _ in buckets])
        width = len(edge)
        for pattern, rows in _patterns(there, ours):
            edges, value = edge[pattern[:width]], numbers[rows][:, pattern]
            ends = width + len(sums)
            has = {"_sum": pattern[width:ends].any(), "_count": pattern[ends:].any()}
            missing = [part for part, is_there in has.items() if not is_there]
            why = _why_none(edges, missing)
            if why is not None:
                self.wrong += [(row, f"{wire} {why}") for row in rows.tolist()]
                continue
            sound = np.ones(len(rows), np.bool_)
            for index, reason in _unsound(edges, value).items():
                sound[index] = False
                if reason:
                    self.wrong.append((int(rows[index]), f"{wire} {reason}"))
            self._put(rows[sound], edges, value[sound])

    def _put(self, rows: Integers, edges: Floats, value: Floats) -> None:
        if not len(rows):
            return
        self._sums[rows], self._counts[rows] = value[:, -2], value[:, -1]
        if not len(edges):
            self.bare.append(rows)
            return
        self._place[rows] = self._held + np.arange(len(rows))
        self._held += len(rows)
        self._pieces.append(pl.Series(np.ascontiguousarray(value[:, : len(edges)])).arr.to_list())
        self._edges_of[rows] = len(self._edges) - 1
        self._edges.append(pl.Series([edges.tolist()], dtype=BUCKETS))

    def columns(self, name: str, buckets: bool) -> Mapping[str, pl.Series]:
        """The columns of the scrape table."""
        columns = {
            f"{name}_sum": pl.Series(self._sums).fill_nan(None),
            f"{name}_count": pl.Series(self._counts).fill_nan(None),
        }
        if not buckets:
            return columns
        return columns | {
            f"{name}_buckets": gathered(pl.concat(self._pieces), self._place),
            f"{name}_edges": gathered(pl.concat(self._edges), self._edges_of),
        }


def _why_none(edges: Floats, missing: list[str]) -> str | None:
    """Why parts make no histogram; None where they do."""
    if np.isnan(edges).any():
        return "has a bucket whose le is not a number"
    if len(edges) and edges[-1] != np.inf:
        missing = ['le="+Inf"', *missing]
    return f"is incomplete: no {', no '.join(missing)}" if missing else None


def _unsound(edges: Floats, value: Floats) -> Mapping[int, str]:
    """Row → why its histogram is not read; "" where a part is no number (a problem too)."""
    wrong = dict.fromkeys(np.nonzero((value < 0).any(axis=1))[0].tolist(), "")
    buckets = value[:, : len(edges)]
    falls = np.diff(buckets, axis=1) < 0
    for row in np.nonzero(falls.any(axis=1))[0].tolist():
        i = int(np.argmax(falls[row]))
        before, after = buckets[row, i : i + 2]
        wrong.setdefault(row, f"falls from {before:g} to {after:g} at le={edges[i + 1]:g}")
    if len(edges):
        for row in np.nonzero(buckets[:, -1] != value[:, -1])[0].tolist():
            last, count = buckets[row, -1], value[row, -1]
            wrong.setdefault(row, f"has {last:g} in its +Inf bucket but a count of {count:g}")
    return wrong


def _patterns(there: Flags, ours: Flags) -> Iterator[tuple[Flags, Integers]]:
    """Which parts are there, and the rows in which exactly these are."""
    at = np.nonzero(ours)[0]
    if not len(at):
        return
    own = there[at]
    if (own == own[0]).all():
        yield own[0], at
        return
    packed = np.ascontiguousarray(np.packbits(own, axis=1))
    _, first, which = np.unique(
        packed.view(f"V{packed.shape[1]}").reshape(-1), return_index=True, return_inverse=True
    )
    for number, index in enumerate(first.tolist()):
        yield own[index], at[which.reshape(-1) == number]


def gathered(values: pl.Series, index: Integers) -> pl.Series:
    """The value of each index, NULL where that is below 0."""
    return values.gather(pl.Series(index).set(pl.Series(index < 0), None))
