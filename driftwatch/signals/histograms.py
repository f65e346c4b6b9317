"""Quantiles and shares from cumulative bucket counts, for a whole column of histograms at once.

Every function takes a list column of cumulative counts (``+Inf`` last) with its edges and works
group by group of equal edges, in NumPy. A histogram without observations has no quantile: NULL.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Quantile:
    """A quantile of every histogram in a column, with the bucket it lies in.

    Attributes:
        value: linear inside the bucket, as PromQL's ``histogram_quantile``; the last finite edge
            where the bucket is +Inf.
        lower: lower edge of the bucket.
        upper: upper edge; NULL where the bucket is +Inf.
    """

    value: pl.Series
    lower: pl.Series
    upper: pl.Series


def _by_edges(
    buckets: pl.Series,
    edges: pl.Series,
    width: int,
    compute: Callable[[Floats, Floats], Floats],
) -> Floats:
    """Apply ``compute(counts[n, k], edges[k]) -> [n, width]`` per group of equal edges."""
    result = np.full((len(buckets), width), np.nan)
    sizes = edges.list.len().fill_null(0).to_numpy()
    counted = buckets.list.len().fill_null(0).to_numpy()
    usable = (sizes > 0) & (sizes == counted)
    for size in np.unique(sizes[usable]):
        rows = np.flatnonzero(usable & (sizes == size))
        counts, le = matrix_of(buckets, rows, size), matrix_of(edges, rows, size)
        for group in equal_rows(le):
            result[rows[group]] = compute(counts[group], le[group[0]])
    return result


def matrix_of(lists: pl.Series, rows: npt.NDArray[np.intp], size: int) -> Floats:
    """Some rows of a list column, each of ``size`` numbers, as a matrix [rows, size]."""
    flat = lists.gather(rows).explode(empty_as_null=True).to_numpy()
    matrix: Floats = flat.astype(float).reshape(len(rows), size)
    return matrix


def equal_rows(matrix: Floats) -> Iterator[npt.NDArray[np.intp]]:
    """Numbers of the rows that are the same, a group at a time; mostly all of them are."""
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

    Args:
        buckets: List(Float64), cumulative counts by edge, +Inf last.
        edges: List(Float64), the ``le`` values, inf last.
        q: which quantile.
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
        # a single bucket, +Inf, says how many and nothing of where
        out[(total <= 0) | (len(le) < 2)] = np.nan
        return out

    found = _by_edges(buckets, edges, 3, compute)
    value, lower, upper = (pl.Series(found[:, i]).fill_nan(None) for i in range(3))
    return Quantile(value, lower, upper)


def share_within(buckets: pl.Series, edges: pl.Series, targets: pl.Series) -> pl.DataFrame:
    """Share of observations at or below a target, as the bounds that the buckets allow.

    Args:
        buckets: List(Float64), cumulative counts.
        edges: List(Float64).
        targets: Float64, one target per row; NULL = none.

    Returns:
        ``lower`` and ``upper`` share (equal where the target is an edge); NULL without a target
        or without observations.
    """
    wanted = targets.to_numpy().astype(float)
    rows = np.full((len(buckets), 2), np.nan)
    for target in np.unique(wanted[~np.isnan(wanted)]):

        def compute(counts: Floats, le: Floats, target: float = float(target)) -> Floats:
            total = counts[:, -1]
            at_or_below = int(np.searchsorted(le, target, side="right")) - 1
            at_or_above = int(np.searchsorted(le, target, side="left"))
            low = counts[:, at_or_below] if at_or_below >= 0 else np.zeros(len(counts))
            high = counts[:, min(at_or_above, len(le) - 1)]
            with np.errstate(invalid="ignore", divide="ignore"):
                return np.stack([low / total, high / total], axis=1)

        hit = wanted == target
        rows[hit] = _by_edges(
            buckets.filter(pl.Series(hit)), edges.filter(pl.Series(hit)), 2, compute
        )
    return pl.DataFrame({"lower": rows[:, 0], "upper": rows[:, 1]}).fill_nan(None)


def second_moment_over_mean(buckets: pl.Series, edges: pl.Series, means: pl.Series) -> pl.Series:
    """E[X²]/E[X], assuming values spread evenly inside their bucket; the last finite edge stands
    for the open bucket.

    Args:
        buckets: List(Float64), cumulative counts.
        edges: List(Float64).
        means: Float64, exact means from sum and count.
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
