"""Histograms of many layouts on one grid of edges, and their sums over the latest minutes.

The grid is the union of all edges seen. A histogram is kept as its cumulative counts at the
grid's edges, NaN at edges that its layout does not have. Sums keep NaN, so a sum of several
layouts is known exactly at the edges that all of them have, and a change of layout
(``--custom-histogram-buckets``, ``max_model_len``) is never taken for a change of traffic. Sums
are always added in the same order: the same to the bit however minutes were split over calls.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from driftwatch.arrays import Flags, Floats, Indices, Integers, Singles
from driftwatch.detect.distributions import MIN_COMMON_EDGES, js_and_w1, ln_widths, shares
from driftwatch.signals.histograms import by_layout, equal_rows

SIGNALS = ("prompt_tokens", "generation_tokens")
# vLLM's own ladder up to 10 M tokens has 22; a fleet of many custom layouts still fits.
MOST_EDGES = 64
ONLY_INF: Floats = np.array([np.inf])


def wider(grid: Floats, minutes: pl.DataFrame) -> Floats:
    """The grid with the edges of these minutes; unchanged where it would grow too long."""
    layouts = [grid]
    for name in SIGNALS:
        layouts += [layout for _, layout, _ in _layouts(minutes, name)]
    for layout in layouts[1:]:
        both = np.union1d(grid, layout)
        if len(both) <= MOST_EDGES:
            grid = both
    return grid


def read(minutes: pl.DataFrame, grid: Floats) -> tuple[Singles, Floats, Flags]:
    """Minutes → their histograms on the grid: cumulative counts [rows, signals, edges], NaN at
    unknown edges; sums of tokens and whether anything is known, [rows, signals].
    """
    rows = len(minutes)
    counts = np.full((rows, len(SIGNALS), len(grid)), np.nan, dtype=np.float32)
    sums = np.full((rows, len(SIGNALS)), np.nan)
    is_known = np.zeros((rows, len(SIGNALS)), dtype=bool)
    for at, name in enumerate(SIGNALS):
        sums[:, at] = minutes[f"{name}_sum"].cast(pl.Float64).to_numpy()
        for which, layout, matrix in _layouts(minutes, name):
            if not np.isin(layout, grid).all():
                continue  # one layout too many: unknown
            total = matrix[:, -1]
            with np.errstate(invalid="ignore"):
                fine = np.isfinite(matrix).all(axis=1) & (
                    np.diff(matrix, axis=1, prepend=0.0) >= -1e-9 * total[:, None]
                ).all(axis=1)
            place = np.searchsorted(grid, layout)
            counts[which[fine, None], at, place] = matrix[fine]
            none = which[fine & (total == 0)]
            counts[none, at] = 0.0
            sums[none, at] = 0.0
            is_known[which[fine], at] = True
    counts[~is_known] = 0.0
    sums[~is_known] = 0.0
    return counts, sums, is_known


def regridded(
    counts: npt.NDArray[np.floating], old: Floats, new: Floats
) -> npt.NDArray[np.floating]:
    """Cumulative counts [..., old] on a wider grid [..., new]: what is new is unknown.

    Histograms without counts stay 0 everywhere: they go with every layout.
    """
    if len(old) == len(new):
        return counts
    out = np.full((*counts.shape[:-1], len(new)), np.nan, dtype=counts.dtype)
    out[..., np.searchsorted(new, old)] = counts
    out[counts[..., -1] == 0] = 0.0
    return out


@dataclass(frozen=True, slots=True)
class Distance:
    """How far rows are from what they are compared with, each [n]; NaN = unknown."""

    js: Floats  # Jensen-Shannon distance
    w1: Floats  # Wasserstein-1 distance of ln tokens
    direction: Floats  # +1 longer, -1 shorter, by the mean of ln tokens

    @property
    def parts(self) -> tuple[Floats, Floats, Floats]:
        """All three."""
        return self.js, self.w1, self.direction


def distances(counts: Floats, reference: Floats, grid: Floats) -> Distance:
    """Rows of cumulative counts against others, each pair on the edges that both have.

    ``counts``: [n, edges]; ``reference``: [n, edges]; ``grid``: [edges].
    """
    n = len(counts)
    js, w1, direction = (np.full(n, np.nan) for _ in range(3))
    for rows, common in known_alike(~(np.isnan(counts) | np.isnan(reference))):
        edges = grid[common]
        if len(edges) - 1 < MIN_COMMON_EDGES:
            continue
        own = _cells(counts[np.ix_(rows, common)])
        other = _cells(reference[np.ix_(rows, common)])
        js[rows], ratio = js_and_w1(own, other, edges)
        w1[rows] = np.log(ratio)
        apart = np.cumsum(shares(own) - shares(other), axis=1)
        direction[rows] = -np.sign(apart @ ln_widths(edges))
    return Distance(js, w1, direction)


def _cells(cumulative: Floats) -> Floats:
    return np.maximum(np.diff(cumulative, axis=1, prepend=0.0), 0.0)


def known_alike(is_known: Flags) -> Iterator[tuple[Indices, Indices]]:
    """Rows that know the same edges, and which those are; mostly all rows know all."""
    for rows in equal_rows(is_known):
        yield rows, np.flatnonzero(is_known[rows[0]])


def _layouts(minutes: pl.DataFrame, name: str) -> Iterator[tuple[Indices, Floats, Floats]]:
    """Rows of one layout at a time: row numbers, edges, cumulative counts [rows, edges]."""
    for rows, edges, counts in by_layout(minutes[f"{name}_buckets"], minutes[f"{name}_edges"]):
        if np.isinf(edges[-1]) and (np.diff(edges) > 0).all():
            yield rows, edges, counts


WINDOWS = (10, 20, 60)
MIN_REQUESTS = 100


def running(
    history: npt.NDArray[np.floating], block: int, ends: Sequence[int]
) -> dict[int, Floats]:
    """Number of minutes (of ``ends``, rising) → sums [block, ...] of the latest so many minutes.

    ``history``: minutes first, the block's last; ``max(ends) - 1`` or more before the block.
    """
    before = len(history) - block
    total = np.zeros((block, *history.shape[1:]))
    sums = {}
    for lag in range(ends[-1]):
        total += history[before - lag : before - lag + block]
        if lag + 1 in ends:
            sums[lag + 1] = total.copy()
    return sums


@dataclass(frozen=True, slots=True, eq=False)
class Latest:
    """What finished in the latest so many minutes, at each minute of a block."""

    counts: dict[int, Floats]  # number of minutes → cumulative [minutes, units, signals, edges]
    sums: dict[int, Floats]  # of tokens [minutes, units, signals]

    @property
    def in_windows(self) -> tuple[dict[int, Floats], dict[int, Floats]]:
        """Of the numbers of minutes that are windows."""
        return {w: self.counts[w] for w in WINDOWS}, {w: self.sums[w] for w in WINDOWS}

    def at(self, minute: int) -> tuple[dict[int, Floats], dict[int, Floats]]:
        """Of one minute of the block."""
        only = slice(minute, minute + 1)
        counts = {w: values[only] for w, values in self.counts.items()}
        return counts, {w: values[only] for w, values in self.sums.items()}


@dataclass(frozen=True, slots=True)
class Window:
    """The shortest window with enough requests, per unit, minute and signal."""

    minutes: Integers  # its length [block, units, signals]; 0 = even the longest holds too few
    counts: Floats  # cumulative [block, units, signals, edges]
    sums: Floats  # of tokens [block, units, signals]

    def at(self, place: int) -> Window:
        """Those of one minute of the block."""
        one = slice(place, place + 1)
        return Window(self.minutes[one], self.counts[one], self.sums[one])

    @property
    def requests(self) -> Floats:
        """Finished requests [block, units, signals]."""
        last: Floats = self.counts[..., -1]
        return last


def shortest(counts: dict[int, Floats], sums: dict[int, Floats]) -> Window:
    """Of the :data:`WINDOWS` the first with :data:`MIN_REQUESTS`; the longest where none has."""
    length = np.full(sums[WINDOWS[0]].shape, 0, dtype=np.int64)
    cumulative, total = counts[WINDOWS[-1]].copy(), sums[WINDOWS[-1]].copy()
    for minutes in reversed(WINDOWS):
        enough = counts[minutes][..., -1] >= MIN_REQUESTS
        length[enough] = minutes
        cumulative[enough] = counts[minutes][enough]
        total[enough] = sums[minutes][enough]
    return Window(length, cumulative, total)


def by_window(by_length: dict[int, Floats], length: Integers, like: Floats) -> Floats:
    """For each place the value of the window of its length; ``like`` where the length is 0."""
    chosen = like.copy()
    for minutes, values in by_length.items():
        here = length == minutes
        chosen[here] = values[here]
    return chosen
