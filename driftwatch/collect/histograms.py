"""The parts of histograms → sum, count and buckets, those that are sound."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import polars as pl

from driftwatch.arrays import Flags, Floats, Integers
from driftwatch.collect.registry import Slot
from driftwatch.collect.schema import BUCKETS

_PARTS: Mapping[str, pl.DataType | type[pl.DataType]] = {
    "sum": pl.Float64,
    "count": pl.Float64,
    "buckets": BUCKETS,
    "edges": BUCKETS,
}


class Histograms:
    """One column's histograms, a row each; none of a row's numbers where one is not sound."""

    def __init__(self, count: int) -> None:
        self.wrong: list[tuple[int, str]] = []  # row, and why it is not read
        self.bare: list[Integers] = []  # rows that have a sum and a count, no bucket
        self._free = np.ones(count, np.bool_)  # rows that have no histogram yet
        self._read = [pl.DataFrame(schema={"row": pl.Int64, **_PARTS})]

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
        read = pl.DataFrame({"row": rows, "sum": value[:, -2], "count": value[:, -1]})
        if len(edges):
            counts = pl.Series("buckets", np.ascontiguousarray(value[:, :-2])).arr.to_list()
            same = pl.lit(pl.Series([edges.tolist()])).first()
            read = read.with_columns(counts, edges=same)
        else:
            self.bare.append(rows)
        self._read.append(read)

    def columns(self, name: str, buckets: bool) -> Mapping[str, pl.Series]:
        """The columns of the scrape table."""
        every = pl.DataFrame({"row": np.arange(len(self._free))})
        read = pl.concat(self._read, how="diagonal")
        table = every.join(read, on="row", how="left", maintain_order="left")
        parts = _PARTS if buckets else ("sum", "count")
        return {f"{name}_{part}": table[part].rename(f"{name}_{part}") for part in parts}


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
    patterns, which = np.unique(there[at], axis=0, return_inverse=True)
    for number, pattern in enumerate(patterns):
        yield pattern, at[which.reshape(-1) == number]
