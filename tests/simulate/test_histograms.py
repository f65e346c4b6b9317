"""Lengths drawn from histograms: in their cells, with their mean."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from driftwatch.simulate.workload.histograms import LengthHistogram, sample_lengths

EDGES = np.array([1.0, 2, 5, 10, 20, 50, 100, 200, 500, 1000])


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(1, 1500), min_size=1, max_size=60), st.integers(1, 90), st.integers(0))
def test_any_lengths_come_back_in_their_cells_with_their_mean(
    lengths: list[int], count: int, seed: int
) -> None:
    truth = np.array(lengths)
    cells = np.searchsorted(EDGES, truth)
    counts = np.bincount(cells, minlength=len(EDGES) + 1)
    histogram = LengthHistogram(EDGES, counts, float(truth.sum()))
    same = sample_lengths(histogram, len(truth), np.random.default_rng(seed), longest=1500)
    assert same.sum() == truth.sum()
    found = np.bincount(np.searchsorted(EDGES, same), minlength=len(EDGES) + 1)
    assert found.tolist() == counts.tolist()
    other = sample_lengths(histogram, count, np.random.default_rng(seed), longest=1500)
    assert len(other) == count
    assert other.min() >= 1
    shares = np.bincount(np.searchsorted(EDGES, other), minlength=len(EDGES) + 1) / count
    assert np.abs(shares - counts / len(truth)).max() <= 1 / count + 1e-9
    assert not set(np.flatnonzero(shares)) - set(np.flatnonzero(counts))


def test_no_length_of_an_inner_bucket_is_beyond_the_longest_that_can_be() -> None:
    """max_model_len 8,192 lies inside the bucket (5,000, 10,000]."""
    edges, counts = np.array([1000.0, 2000.0, 5000.0, 10_000.0]), np.array([0, 5, 5, 40, 0])
    histogram = LengthHistogram(edges, counts, 5 * 1500 + 5 * 3500 + 40 * 7900.0)
    drawn = sample_lengths(histogram, 50, np.random.default_rng(1), longest=8192)
    assert drawn.max() <= 8192
    assert (drawn > 5000).sum() == 40
    assert drawn.sum() == round(histogram.total_tokens)
    whole = sample_lengths(histogram, 50, np.random.default_rng(1))
    assert whole.max() > 8192
