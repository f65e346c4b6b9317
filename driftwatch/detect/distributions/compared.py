"""Two columns of histograms → a column for each statistic, whatever their layouts."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import polars as pl

from driftwatch.detect.distributions.alignment import aligned
from driftwatch.detect.distributions.cells import Floats, counts_of
from driftwatch.detect.distributions.chi_square import chi_square
from driftwatch.detect.distributions.distances import js_distance, ks_distance, psi, wasserstein
from driftwatch.detect.distributions.moved import moved
from driftwatch.signals.histograms import equal_rows, matrix_of

STATISTICS: dict[str, type[pl.DataType]] = {
    "js_distance": pl.Float64,
    "w1_ratio": pl.Float64,
    "w1_upper_ratio": pl.Float64,
    "psi": pl.Float64,
    "ks_distance": pl.Float64,
    "chi2_p_value": pl.Float64,
    "cramers_v": pl.Float64,
    "moved": pl.String,
}


def compared(
    buckets: pl.Series,
    edges: pl.Series,
    reference_buckets: pl.Series,
    reference_edges: pl.Series,
    at_least: float = 0.0,
) -> pl.DataFrame:
    """Every statistic of :data:`STATISTICS`, row for row.

    Args:
        buckets: List(Float64), cumulative counts by edge, +Inf last.
        edges: List(Float64), the ``le`` values, inf last.
        reference_buckets: what they are compared with.
        reference_edges: of the reference.
        at_least: rows with fewer observations on either side are unknown.

    Returns:
        NULL where a side is NULL, holds too little or nothing, is no histogram, or where the
        layouts have too few edges in common.
    """
    n = len(buckets)
    found = {name: np.full(n, np.nan) for name, dtype in STATISTICS.items() if dtype == pl.Float64}
    texts = np.full(n, None, dtype=object)
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
        distance = wasserstein(counts, reference, common)
        test = chi_square(counts, reference)
        found["js_distance"][rows] = js_distance(counts, reference)
        found["w1_ratio"][rows] = distance.ratio
        found["w1_upper_ratio"][rows] = distance.upper_ratio
        found["psi"][rows] = psi(counts, reference)
        found["ks_distance"][rows] = ks_distance(counts, reference)
        found["chi2_p_value"][rows] = test.p_value
        found["cramers_v"][rows] = test.cramers_v
        texts[rows] = moved(counts, reference, common)
    return (
        pl.DataFrame(found)
        .fill_nan(None)
        .with_columns(pl.Series("moved", texts.tolist(), dtype=pl.String))
    )


def _by_layouts(
    buckets: pl.Series, edges: pl.Series, other: pl.Series, other_edges: pl.Series
) -> Iterator[tuple[npt.NDArray[np.intp], Floats, Floats, Floats, Floats]]:
    """Rows of one pair of layouts at a time: row numbers, counts, edges, the other's, its edges.

    Rows without a whole histogram on both sides come not at all.
    """
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


def _sizes(buckets: pl.Series, edges: pl.Series) -> npt.NDArray[np.int64]:
    """Cells of each row; 0 where counts and edges are not as many."""
    counted = buckets.list.len().fill_null(0).to_numpy().astype(np.int64)
    given = edges.list.len().fill_null(0).to_numpy().astype(np.int64)
    return np.where(counted == given, given, 0)
