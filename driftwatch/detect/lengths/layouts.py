"""Histograms of many layouts on one grid of edges: what two layouts share stays comparable.

The grid is the union of all edges seen. A histogram is kept as its cumulative counts at the
grid's edges, NaN at edges that its layout does not have. Sums keep NaN, so a sum of several
layouts is known exactly at the edges that all of them have, and a change of layout
(``--custom-histogram-buckets``, ``max_model_len``) is never taken for a change of traffic.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from driftwatch.detect.distributions.alignment import MIN_COMMON_EDGES
from driftwatch.detect.distributions.cells import Floats, ln_widths, shares
from driftwatch.detect.distributions.distances import js_and_w1

Bools = npt.NDArray[np.bool_]
Singles = npt.NDArray[np.float32]

SIGNALS = ("prompt_tokens", "generation_tokens")
# vLLM's own ladder up to 10 M tokens has 22; a fleet of many custom layouts still fits.
MOST_EDGES = 64
ONLY_INF: Floats = np.array([np.inf])


@dataclass(frozen=True, slots=True)
class Lengths:
    """What minutes say of lengths, a row each.

    Attributes:
        counts: cumulative, [rows, signals, edges]; NaN at unknown edges, 0 where nothing finished.
        sums: of tokens, [rows, signals]; NaN = unknown.
        known: which rows say anything, [rows, signals].
    """

    counts: Singles
    sums: Floats
    known: Bools


def wider(grid: Floats, minutes: pl.DataFrame) -> Floats:
    """The grid with the edges of these minutes; unchanged where it would grow too long.

    Args:
        grid: ascending, ``inf`` last.
        minutes: :data:`driftwatch.signals.minutes.MINUTE_SCHEMA`.
    """
    found = [grid]
    for name in SIGNALS:
        found += [layout for _, layout, _ in _layouts(minutes, name)]
    for layout in found[1:]:
        both = np.union1d(grid, layout)
        if len(both) <= MOST_EDGES:
            grid = both
    return grid


def read(minutes: pl.DataFrame, grid: Floats) -> Lengths:
    """Minutes → their histograms on the grid.

    Args:
        minutes: :data:`driftwatch.signals.minutes.MINUTE_SCHEMA`.
        grid: of :func:`wider`.
    """
    rows = len(minutes)
    counts = np.full((rows, len(SIGNALS), len(grid)), np.nan, dtype=np.float32)
    sums = np.full((rows, len(SIGNALS)), np.nan)
    known = np.zeros((rows, len(SIGNALS)), dtype=bool)
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
            known[which[fine], at] = True
    counts[~known] = 0.0
    sums[~known] = 0.0
    return Lengths(counts, sums, known)


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
    """How far rows are from what they are compared with, each [n]; NaN = unknown.

    Attributes:
        js: Jensen-Shannon distance.
        w1: Wasserstein-1 distance of ln tokens.
        direction: +1 longer, -1 shorter, by the mean of ln tokens.
    """

    js: Floats
    w1: Floats
    direction: Floats


def distances(counts: Floats, reference: Floats, grid: Floats) -> Distance:
    """Rows of cumulative counts against others, each pair on the edges that both have.

    Args:
        counts: [n, edges].
        reference: [n, edges].
        grid: [edges].
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


def known_alike(known: Bools) -> Iterator[tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]]:
    """Rows that know the same edges, and which those are; mostly all rows know all."""
    if not len(known):
        return
    if (known == known[0]).all():
        yield np.arange(len(known)), np.flatnonzero(known[0])
        return
    kinds, kind = np.unique(known, axis=0, return_inverse=True)
    for number, which in enumerate(kinds):
        yield np.flatnonzero(kind.ravel() == number), np.flatnonzero(which)


def _layouts(
    minutes: pl.DataFrame, name: str
) -> Iterator[tuple[npt.NDArray[np.intp], Floats, Floats]]:
    """Rows of one layout at a time: row numbers, edges, cumulative counts [rows, edges]."""
    buckets, edges = minutes[f"{name}_buckets"], minutes[f"{name}_edges"]
    counted = buckets.list.len().fill_null(0).to_numpy().astype(np.int64)
    given = edges.list.len().fill_null(0).to_numpy().astype(np.int64)
    for size in np.unique(given[(given == counted) & (given > 0)]):
        rows = np.flatnonzero((given == size) & (counted == size))
        matrix, layout = _matrix(buckets, rows, int(size)), _matrix(edges, rows, int(size))
        if (layout == layout[0]).all():
            kinds = [(rows, layout[0], matrix)]
        else:
            alike, kind = np.unique(layout, axis=0, return_inverse=True)
            groups = [np.flatnonzero(kind.ravel() == number) for number in range(len(alike))]
            kinds = [(rows[g], alike[i], matrix[g]) for i, g in enumerate(groups)]
        for which, of, counts in kinds:
            if np.isinf(of[-1]) and (np.diff(of) > 0).all():
                yield which, of, counts


def _matrix(lists: pl.Series, rows: npt.NDArray[np.intp], size: int) -> Floats:
    flat = lists.gather(rows).explode(empty_as_null=True).cast(pl.Float64).to_numpy()
    return np.asarray(flat, dtype=float).reshape(len(rows), size)
