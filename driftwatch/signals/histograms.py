"""Quantiles and shares from cumulative bucket counts, for a whole column of histograms at once.

Every function takes a list column of cumulative counts (``+Inf`` last) with its edges and works
group by group of equal edges, in NumPy. A histogram without observations has no quantile: NULL.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np
import polars as pl

from driftwatch.arrays import Flags, Floats, Indices


@dataclass(frozen=True, slots=True)
class Quantile:
    """A quantile of every histogram in a column, with the bucket it lies in."""

    # linear inside the bucket, as PromQL's ``histogram_quantile``; the last finite edge where the
    # bucket is +Inf
    value: pl.Series
    lower: pl.Series  # lower edge of the bucket
    upper: pl.Series  # upper edge; NULL where the bucket is +Inf


def _by_edges(
    buckets: pl.Series,
    edges: pl.Series,
    width: int,
    compute: Callable[[Floats, Floats], Floats],
) -> Floats:
    """Apply ``compute(counts[n, k], edges[k]) -> [n, width]`` per group of equal edges."""
    result = np.full((len(buckets), width), np.nan)
    for rows, le, counts in by_layout(buckets, edges):
        result[rows] = compute(counts, le)
    return result


def by_layout(buckets: pl.Series, edges: pl.Series) -> Iterator[tuple[Indices, Floats, Floats]]:
    """Groups of histograms with equal edges: rows, edges [k], cumulative counts [rows, k].

    Rows whose counts do not match their edges are left out.
    """
    if buckets.null_count() == len(buckets):
        return
    sizes, counted = (
        np.nan_to_num(lists.list.len().cast(pl.Float64).to_numpy()).astype(int)
        for lists in (edges, buckets)
    )
    usable = (sizes > 0) & (sizes == counted)
    for size in np.unique(sizes[usable]):
        rows = np.flatnonzero(usable & (sizes == size))
        counts, le = matrix_of(buckets, rows, size), matrix_of(edges, rows, size)
        for group in equal_rows(le):
            yield rows[group], le[group[0]], counts[group]


def matrix_of(lists: pl.Series, rows: Indices, size: int) -> Floats:
    """Some rows of a list column, each of ``size`` numbers, as a matrix [rows, size]."""
    flat = lists.gather(rows).explode(empty_as_null=True).to_numpy()
    matrix: Floats = flat.astype(float).reshape(len(rows), size)
    return matrix


def equal_rows(matrix: Floats | Flags) -> Iterator[Indices]:
    """Groups of equal rows, as row numbers; mostly there is one group."""
    if not len(matrix):
        return
    same = (matrix == matrix[0]).all(axis=1)
    same[0] = True
    yield np.flatnonzero(same)
    others = np.flatnonzero(~same)
    if len(others):
        _, group = np.unique(matrix[others], axis=0, return_inverse=True)
        order = np.argsort(group.ravel(), kind="stable")
        yield from np.split(others[order], np.cumsum(np.bincount(group.ravel()))[:-1])


def quantile(buckets: pl.Series, edges: pl.Series, q: float) -> Quantile:
    """The ``q`` quantile (0 < q < 1) of each histogram.

    ``buckets``: List(Float64), cumulative counts by edge, +Inf last; ``edges``: List(Float64), the
    ``le`` values, inf last; ``q``: which quantile.
    """

    def compute(counts: Floats, le: Floats) -> Floats:
        total = counts[:, -1]
        rank = q * total
        cell = np.argmax(counts >= rank[:, None], axis=1)
        rows = np.arange(len(counts))
        lower_edges = np.concatenate([[min(0.0, le[0])], le[:-1]])
        below = np.where(cell > 0, counts[rows, cell - 1], 0.0)
        inside = counts[rows, cell] - below
        lower, upper = lower_edges[cell], le[cell]
        with np.errstate(invalid="ignore", divide="ignore"):
            value = lower + (upper - lower) * (rank - below) / inside
        open_ended = np.isinf(upper)
        value = np.where(open_ended, lower, value)
        out = np.stack([value, lower, np.where(open_ended, np.nan, upper)], axis=1)
        # a single bucket, +Inf, shows no position
        out[(total <= 0) | (len(le) < 2)] = np.nan
        return out

    columns = _by_edges(buckets, edges, 3, compute)
    value, lower, upper = (pl.Series(columns[:, i]).fill_nan(None) for i in range(3))
    return Quantile(value, lower, upper)


def share_within(
    buckets: pl.Series, edges: pl.Series, targets: pl.Series, sums: pl.Series | None = None
) -> pl.DataFrame:
    """Share of observations at or below a target, as the bounds that the buckets allow.

    ``buckets``: List(Float64), cumulative counts of observations that are never negative;
    ``edges``: List(Float64); ``targets``: Float64, one target per row; NULL = none; ``sums``:
    Float64, sums of the observations; with them the bounds inside a bucket are closer
    (:func:`_inside`). NULL = not known.
    Returns: ``lower`` and ``upper`` share (equal where the target is an edge); NULL without a
    target or without observations.
    """
    wanted = targets.to_numpy().astype(float)
    rows = np.full((len(buckets), 2), np.nan)
    for target in np.unique(wanted[~np.isnan(wanted)]):
        hit = wanted == target
        cells = _by_edges(
            buckets.filter(pl.Series(hit)),
            edges.filter(pl.Series(hit)),
            len(_CELL),
            partial(_cell, float(target)),
        )
        summed = np.nan if sums is None else sums.to_numpy().astype(float)[hit]
        rows[hit] = _inside(cells, float(target), summed)
    return pl.DataFrame({"lower": rows[:, 0], "upper": rows[:, 1]}).fill_nan(None)


# Columns about the bucket that a target lies in: observations in all buckets, in those below it and
# in it, its edges, and the least and largest sum of all others.
_CELL = ("total", "below", "inside", "lower", "upper", "others_least", "others_most")


def _cell(target: float, counts: Floats, le: Floats) -> Floats:
    """:data:`_CELL` of every histogram; ``inside`` is 0 where the target is an edge."""
    mass = np.diff(counts, axis=1, prepend=0.0)
    lower = np.concatenate([[0.0], le[:-1]])
    at = min(int(np.searchsorted(le, target, side="left")), len(le) - 1)
    if le[at] == target:
        below, inside = counts[:, at], np.zeros(len(counts))
    else:
        below, inside = counts[:, at] - mass[:, at], mass[:, at]
    others = np.delete(mass, at, axis=1)
    with np.errstate(invalid="ignore"):  # none of the open bucket
        most = np.where(others > 0, others * np.delete(le, at), 0.0)
    columns = (
        counts[:, -1],
        below,
        inside,
        np.full(len(counts), lower[at]),
        np.full(len(counts), le[at]),
        (others * np.delete(lower, at)).sum(axis=1),
        most.sum(axis=1),
    )
    return np.stack(columns, axis=1)


def _inside(cells: Floats, target: float, sums: Floats | float) -> Floats:
    """Bounds of the share within ``target``, [rows, 2].

    Of n observations in (a, b] with the sum s at most (n·b - s)/(b - T) lie at or below the target
    T, or the others would have to exceed b; at least (n·T - s)/(T - a), or they would have to lie
    below a. s is known within what the other buckets leave of the whole sum.
    """
    total, below, n, a, b, least, most = cells.T
    with np.errstate(invalid="ignore", divide="ignore"):
        at_least = np.fmax(sums - most, n * a)  # of the sum inside; fmax passes over an unknown
        at_most = np.fmin(sums - least, np.where(np.isinf(b), np.nan, n * b))
        few = np.fmax(0.0, (n * target - at_most) / (target - a))
        many = np.fmin(n, np.where(np.isinf(b), n, (n * b - at_least) / (b - target)))
        few, many = np.fmin(few, n), np.fmax(many, 0.0)
        bounds = np.stack([below + np.fmin(few, many), below + np.fmax(few, many)], axis=1)
        shares: Floats = np.where(n[:, None] > 0, bounds, below[:, None]) / total[:, None]
    return shares


def second_moment_over_mean(buckets: pl.Series, edges: pl.Series, means: pl.Series) -> pl.Series:
    """E[X²]/E[X], assuming values spread evenly inside their bucket; the last finite edge stands
    for the open bucket.

    ``buckets``: List(Float64), cumulative counts; ``edges``: List(Float64); ``means``: Float64,
    exact means from sum and count.
    """

    def compute(counts: Floats, le: Floats) -> Floats:
        mass = np.diff(counts, axis=1, prepend=0.0)
        lower = np.concatenate([[0.0], le[:-1]])
        upper = np.where(np.isinf(le), lower, le)
        square = (lower**2 + lower * upper + upper**2) / 3
        with np.errstate(invalid="ignore", divide="ignore"):
            result: Floats = ((mass * square).sum(axis=1) / counts[:, -1])[:, None]
        return result

    square_mean = pl.Series(_by_edges(buckets, edges, 1, compute)[:, 0]).fill_nan(None)
    ratio = square_mean / means
    # never below the mean: E[X²] ≥ E[X]²
    return (
        pl.DataFrame({"r": ratio, "m": means})
        .select(pl.when(pl.col("r").is_not_null()).then(pl.max_horizontal("r", "m")))
        .to_series()
    )
