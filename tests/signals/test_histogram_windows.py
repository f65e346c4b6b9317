"""Quantiles, shares and second moments of bucket counts against their plain definitions."""

from __future__ import annotations

import math

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from driftwatch.signals.histograms import quantile, share_within

INF = math.inf
LISTS = pl.List(pl.Float64)
Histogram = tuple[list[float], list[float]]  # counts by edge (cumulative), edges


def column(lists: list[list[float] | None]) -> pl.Series:
    return pl.Series(lists, dtype=LISTS)


def floats(values: list[float | None]) -> pl.Series:
    return pl.Series(values, dtype=pl.Float64)


def promql(counts: list[float], edges: list[float], q: float) -> tuple[float, float, float] | None:
    """``histogram_quantile`` as the Prometheus documentation has it → value, lower, upper."""
    total = counts[-1]
    if total <= 0 or len(edges) < 2:
        return None
    rank = q * total
    cell = next(i for i, count in enumerate(counts) if count >= rank)
    if cell == len(edges) - 1:  # beyond the last finite edge: that edge is returned
        return edges[-2], edges[-2], INF
    if cell == 0 and edges[0] <= 0:
        return edges[0], edges[0], edges[0]
    start, below = (edges[cell - 1], counts[cell - 1]) if cell else (0.0, 0.0)
    width = edges[cell] - start
    value = start + width * (rank - below) / (counts[cell] - below)
    return value, start, edges[cell]


@st.composite
def histograms(draw: st.DrawFn, lowest: float = 0.001) -> Histogram:
    finite = draw(
        st.lists(
            st.floats(lowest, 20_000, allow_nan=False), min_size=1, max_size=8, unique=True
        ).map(sorted)
    )
    mass = draw(st.lists(st.integers(0, 50), min_size=len(finite) + 1, max_size=len(finite) + 1))
    return [float(c) for c in np.cumsum(mass)], [*finite, INF]


@settings(max_examples=50, deadline=None)
@given(
    many=st.lists(histograms(lowest=-5.0), min_size=1, max_size=6),
    q=st.floats(0.01, 0.99),
)
def test_quantiles_are_those_of_promql(many: list[Histogram], q: float) -> None:
    # NULL rows and rows of other edges stand beside each other in one column
    counts = column([None, *(c for c, _ in many)])
    edges = column([None, *(e for _, e in many)])
    found = quantile(counts, edges, q)
    assert found.value[0] is None
    for i, (c, e) in enumerate(many, start=1):
        expected = promql(c, e, q)
        if expected is None:
            assert (found.value[i], found.lower[i], found.upper[i]) == (None, None, None)
            continue
        value, lower, upper = expected
        assert found.value[i] == pytest.approx(value, rel=1e-9, abs=1e-9)
        assert found.lower[i] == lower
        assert found.upper[i] == (None if math.isinf(upper) else upper)
        if found.upper[i] is not None:
            assert lower <= found.value[i] <= upper + 1e-9


# --- shares


def test_a_share_is_exact_at_an_edge_and_bounded_inside() -> None:
    found = share_within(
        column([[2.0, 6.0, 10.0]] * 4),
        column([[0.1, 1.0, INF]] * 4),
        floats([1.0, 0.5, None, 3.0]),
    )
    assert found.rows() == [(0.6, 0.6), (0.2, 0.6), (None, None), (0.6, 1.0)]


# --- second moments
