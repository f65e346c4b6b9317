"""Quantiles and shares of bucket counts, by hand."""

from __future__ import annotations

import math

import polars as pl
import pytest

from driftwatch.signals.histograms import quantile, share_within

INF = math.inf
LISTS = pl.List(pl.Float64)
# counts by edge (cumulative) and edges, side by side in one column
PLAIN = ([2.0, 6.0, 10.0], [0.1, 1.0, INF])
BELOW_ZERO = ([3.0, 6.0, 6.0], [-1.0, 2.0, INF])
OTHERS = [(None, None), ([0.0, 0.0, 0.0], [0.1, 1.0, INF]), ([5.0], [INF])]


@pytest.mark.parametrize(
    ("q", "plain", "below_zero"),
    [
        # as histogram_quantile of the Prometheus documentation: value, lower and upper edge
        (0.1, (0.05, 0.0, 0.1), (-1.0, -1.0, -1.0)),
        (0.5, (0.1 + 0.9 * 3 / 4, 0.1, 1.0), (-1.0, -1.0, -1.0)),
        (0.75, (1.0, 1.0, None), (0.5, -1.0, 2.0)),
    ],
)
def test_quantiles_are_those_of_promql(
    q: float, plain: tuple[float | None, ...], below_zero: tuple[float | None, ...]
) -> None:
    counts, edges = zip(PLAIN, BELOW_ZERO, *OTHERS, strict=True)
    found = quantile(pl.Series(counts, dtype=LISTS), pl.Series(edges, dtype=LISTS), q)
    rows = list(zip(found.value, found.lower, found.upper, strict=True))
    assert rows[0] == pytest.approx(plain)
    assert rows[1] == pytest.approx(below_zero)
    assert rows[2:] == [(None, None, None)] * 3


def test_a_share_is_exact_at_an_edge_and_bounded_inside() -> None:
    counts, edges = (pl.Series([part] * 4, dtype=LISTS) for part in PLAIN)
    found = share_within(counts, edges, pl.Series([1.0, 0.5, None, 3.0], dtype=pl.Float64))
    assert found.rows() == [(0.6, 0.6), (0.2, 0.6), (None, None), (0.6, 1.0)]
