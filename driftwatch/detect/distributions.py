"""How far two histograms are apart, from bucket counts alone, for many pairs at once.

``counts`` is a matrix [n, k]: n histograms, k cells, not cumulative. ``edges`` [k] holds the upper
edges of the cells, ascending, ``inf`` last. A row without counts is unknown: NaN comes out of it.
A cell reaches from the edge before it (exclusive) to its own (inclusive), as Prometheus's ``le``.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import polars as pl

from driftwatch.arrays import Floats, Indices, Integers
from driftwatch.signals.histograms import equal_rows, matrix_of

# Where lengths begin: no prompt and no generation has less than one token. vLLM's first edge is
# 1, so its first cell holds lengths of exactly one token and has no width.
LOWEST_TOKENS = 1.0
# Where the open cell is taken to end: vLLM's token edges go 1, 2, 5, 10, ... up to max_model_len
# (v1/metrics/buckets.py), so the edge that is no longer there would be at most 2.5 times the last
# one, and no length reaches it.
OPEN_CELL_RATIO = 2.5
# Three cells say long, middle, short; fewer would call a drift of lengths "no drift".
MIN_COMMON_EDGES = 3
# Most of the mass must lie in cells that are as fine as one of the two layouts.
MAX_MERGED_RATIO = 0.5
TOO_FEW_IN_COMMON = "bucket edges have too few in common"
# Increases that were shared out over windows leave rounding errors in cells that hold nothing.
_ROUNDING = 1e-9
# Rows that are worked on at a time: a block of ~20 cells then stays in the second-level cache.
_BLOCK = 2048
# Added where 0 ln 0 or 0/0 would be NaN; far below any share, so nothing else changes.
_TINY = 1e-300


def counts_of(cumulative: Floats) -> Floats:
    """Cumulative counts by edge [n, k] → counts by cell.

    A row that falls somewhere, is not finite or holds nothing becomes NaN: it is no histogram.
    """
    counts = np.diff(cumulative, axis=1, prepend=0.0)
    total = cumulative[:, -1:]
    with np.errstate(invalid="ignore"):
        usable = (counts >= -_ROUNDING * total).all(axis=1) & (total[:, 0] > 0)
    usable &= np.isfinite(total[:, 0])
    counts = np.maximum(counts, 0.0)
    counts[~usable] = np.nan
    return counts


def shares(counts: Floats) -> Floats:
    """Counts → shares of their row [n, k]; NaN where a row holds nothing."""
    total = counts.sum(axis=1, keepdims=True)
    with np.errstate(invalid="ignore", divide="ignore"):
        of_row: Floats = counts / np.where(total > 0, total, np.nan)
    return of_row


def cell_bounds(edges: Floats) -> tuple[Floats, Floats]:
    """Lower and upper edge of every cell [k], both finite.

    The first cell begins at one token; up to an edge at or below that it has no width.
    """
    finite = edges[:-1]
    positive = finite[finite > 0]
    start = min(LOWEST_TOKENS, positive[0]) if len(positive) else LOWEST_TOKENS
    finite = np.maximum(finite, start)
    last = finite[-1] if len(finite) else start
    return (
        np.concatenate([[start], finite]),
        np.concatenate([finite, [last * OPEN_CELL_RATIO]]),
    )


def ln_widths(edges: Floats) -> Floats:
    """Width of every cell in ln units [k]; see :func:`cell_bounds`."""
    lower, upper = cell_bounds(edges)
    widths: Floats = np.log(upper) - np.log(lower)
    return widths


def js_and_w1(counts: Floats, reference: Floats, edges: Floats) -> tuple[Floats, Floats]:
    """Jensen-Shannon distance [n], and exp of the Wasserstein-1 distance of ln values [n].

    JS, base 2, without smoothing (Lin 1991; Endres & Schindelin 2003); W1 spreads values evenly in
    ln over their cells. ``reference`` is [n, k] or [1, k]. Never through BLAS, whose sums vary.

    >>> counts, edges = np.array([[10.0, 0.0], [5.0, 5.0]]), np.array([10.0, np.inf])
    >>> js_and_w1(counts, np.array([[0.0, 7.0]]), edges)[0].round(3)
    array([1.   , 0.558])
    """
    widths = ln_widths(edges)
    js, w1 = np.empty(len(counts)), np.empty(len(counts))
    for first in range(0, len(counts), _BLOCK):
        block = slice(first, first + _BLOCK)
        p = _columns(counts[block])
        q = _columns(reference if len(reference) == 1 else reference[block])
        js[block], w1[block] = _js(p, q), np.exp(_w1(p, q, widths))
    return js, w1


def _columns(counts: Floats) -> Floats:
    """Counts [n, k] → shares [k, n]; NaN where a row holds nothing."""
    transposed: Floats = np.ascontiguousarray(counts.T, dtype=float)
    total = transposed.sum(axis=0)
    return transposed / np.where(total > 0, total, np.nan)


def _js(p: Floats, q: Floats) -> Floats:
    middle = p + q
    middle *= 0.5
    middle += _TINY
    divergence = _relative_entropy(p, middle)
    divergence += _relative_entropy(q, middle)
    distance: Floats = np.sqrt(np.clip(divergence.sum(axis=0) / (2 * np.log(2)), 0.0, 1.0))
    return distance


def _relative_entropy(p: Floats, middle: Floats) -> Floats:
    """p ln(p/m) by cell; 0 where p is 0."""
    entropy = (p + _TINY) / middle  # p may be one column for all
    np.log(entropy, out=entropy)
    entropy *= p
    return entropy


def _w1(p: Floats, q: Floats, widths: Floats) -> Floats:
    """Sum over cells of width times the mean size of a straight line between CDF differences."""
    after = p - q
    for cell in range(1, len(after)):
        after[cell] += after[cell - 1]
    size = np.abs(after)
    # twice the mean size between the edges, less what a line that crosses zero there saves
    mean = size.copy()
    mean[1:] += size[:-1]
    crossing = after[1:] * after[:-1]
    np.minimum(crossing, 0.0, out=crossing)
    crossing /= mean[1:] + _TINY
    mean *= 0.5
    mean[1:] += crossing
    mean *= widths[:, None]
    distance: Floats = mean.sum(axis=0)
    return distance


def aligned(
    counts: Floats, edges: Floats, reference: Floats, reference_edges: Floats
) -> tuple[Floats, Floats, Floats] | None:
    """Counts [n, k] and reference [n or 1, j] on the edges that both have, and those edges.

    Counts are added up between common edges. Rows with more than :data:`MAX_MERGED_RATIO` in cells
    where both were finer are NaN; None with fewer than :data:`MIN_COMMON_EDGES` common edges.
    """
    if np.array_equal(edges, reference_edges):
        return counts, reference, edges
    common = np.intersect1d(edges, reference_edges)
    if len(common) - 1 < MIN_COMMON_EDGES or not np.isinf(common[-1]):
        return None
    sides, finer = [], np.ones(len(common), dtype=bool)
    for side, of in ((counts, edges), (reference, reference_edges)):
        to = np.searchsorted(common, of)
        merged = np.zeros((len(side), len(common)))
        np.add.at(merged.T, to, side.T)
        sides.append(merged)
        finer &= np.bincount(to, minlength=len(common)) > 1
    for merged in sides:
        with np.errstate(invalid="ignore"):
            lost = merged[:, finer].sum(axis=1) > MAX_MERGED_RATIO * merged.sum(axis=1)
        merged[lost] = np.nan
    return sides[0], sides[1], common


STATISTICS: dict[str, type[pl.DataType]] = {
    "js_distance": pl.Float64,
    "w1_ratio": pl.Float64,
}


def compared(
    buckets: pl.Series,
    edges: pl.Series,
    reference_buckets: pl.Series,
    reference_edges: pl.Series,
    at_least: float = 0.0,
) -> pl.DataFrame:
    """:data:`STATISTICS` of two columns of histograms (cumulative, ``le`` edges), row for row.

    NULL where a side is no histogram or holds fewer than ``at_least``, or few edges are common.
    """
    n = len(buckets)
    js, w1 = np.full(n, np.nan), np.full(n, np.nan)
    if reference_buckets.null_count() == n:
        return pl.DataFrame({"js_distance": js, "w1_ratio": w1}, nan_to_null=True)
    for rows, own, own_edges, other, other_edges in _by_layouts(
        buckets, edges, reference_buckets, reference_edges
    ):
        pair = aligned(counts_of(own), own_edges, counts_of(other), other_edges)
        if pair is None:
            continue
        counts, reference, common = pair
        if len(common) < 2 or not np.isinf(common[-1]) or not (np.diff(common) > 0).all():
            continue  # a single cell says how many and nothing of where; the rest is no layout
        few = (counts.sum(axis=1) < at_least) | (reference.sum(axis=1) < at_least)
        counts[few] = np.nan
        js[rows], w1[rows] = js_and_w1(counts, reference, common)
    return pl.DataFrame({"js_distance": js, "w1_ratio": w1}, nan_to_null=True)


def _by_layouts(
    buckets: pl.Series, edges: pl.Series, other: pl.Series, other_edges: pl.Series
) -> Iterator[tuple[Indices, Floats, Floats, Floats, Floats]]:
    """Rows of a pair of layouts at a time: row numbers, counts, edges, the other's, its edges."""
    sizes, other_sizes = _sizes(buckets, edges), _sizes(other, other_edges)
    usable = (sizes > 0) & (other_sizes > 0)
    for size, other_size in np.unique(
        np.stack([sizes[usable], other_sizes[usable]], axis=1), axis=0
    ):
        rows = np.flatnonzero(usable & (sizes == size) & (other_sizes == other_size))
        both = np.hstack([matrix_of(edges, rows, size), matrix_of(other_edges, rows, other_size)])
        for group in equal_rows(both):
            layout = both[group[0]]
            yield (
                rows[group],
                matrix_of(buckets, rows[group], size),
                layout[:size],
                matrix_of(other, rows[group], other_size),
                layout[size:],
            )


def _sizes(buckets: pl.Series, edges: pl.Series) -> Integers:
    """Cells of each row; 0 where counts and edges are not as many."""
    counted = buckets.list.len().fill_null(0).to_numpy().astype(np.int64)
    of_edges = edges.list.len().fill_null(0).to_numpy().astype(np.int64)
    return np.where(counted == of_edges, of_edges, 0)
