"""A change of bucket layout is no change of traffic: common edges, or no verdict."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from histogram_cases import EDGES, Floats, azure_lengths, binned, drawn_layouts
from hypothesis import given, settings
from hypothesis import strategies as st

from driftwatch.detect.distributions import aligned, js_and_w1
from driftwatch.simulate.vllm_buckets import request_tokens

LONGER = np.array([*request_tokens(131_072), np.inf])
POWERS = np.array([*(2.0**i for i in range(18)), np.inf])


@pytest.mark.parametrize("column", ["ContextTokens", "GeneratedTokens"])
def test_the_same_requests_under_another_layout_are_no_difference(
    shared_data: Path, column: str
) -> None:
    lengths = azure_lengths(shared_data, "conv", column)
    dropped = np.array([edge for edge in EDGES if edge not in (20.0, 1000.0)])
    for layout in (LONGER, dropped, np.array([*EDGES[:-1], 7000.0, np.inf])):
        pair = aligned(binned(lengths), EDGES, binned(lengths, layout), layout)
        assert pair is not None
        own, other, edges = pair
        np.testing.assert_array_equal(own, other)
        assert own.sum() == len(lengths)
        assert set(edges) == set(EDGES) & set(layout)
        js, w1 = js_and_w1(own, other, edges)
        assert (js[0], w1[0]) == (0.0, pytest.approx(1.0))


def test_layouts_with_too_little_in_common_give_no_verdict(shared_data: Path) -> None:
    lengths = azure_lengths(shared_data, "conv", "ContextTokens")
    # 1, 2 and inf
    assert aligned(binned(lengths), EDGES, binned(lengths, POWERS), POWERS) is None
    # a layout that does not end with +Inf is none
    other = EDGES[1:-1]
    assert aligned(binned(lengths)[:, :-1], EDGES[:-1], binned(lengths)[:, 1:-1], other) is None
    # edges enough in common, but most requests lie where both layouts were finer
    other = np.array([1.0, 2.0, 5.0, 10.0, 60.0, 300.0, 900.0, 3000.0, np.inf])
    pair = aligned(binned(lengths), EDGES, binned(lengths, other), other)
    assert pair is not None
    assert np.isnan(js_and_w1(*pair)[0]).all()
    # the same layouts with requests where they agree: a verdict
    short = np.full(200, 4.0)
    pair = aligned(binned(short), EDGES, binned(short, other), other)
    assert pair is not None
    assert js_and_w1(*pair)[0][0] == 0.0


@given(
    first=drawn_layouts(),
    second=drawn_layouts(),
    shared=st.lists(st.integers(1, 200_000), min_size=3, max_size=10, unique=True),
    lengths=st.lists(st.integers(1, 200_000), min_size=1, max_size=40),
)
@settings(max_examples=30, deadline=None)
def test_no_layouts_make_a_difference_of_equal_requests(
    first: Floats, second: Floats, shared: list[int], lengths: list[int]
) -> None:
    first, second = (np.union1d(side, np.array(shared, dtype=float)) for side in (first, second))
    values = np.array(lengths, dtype=float)
    pair = aligned(binned(values, first), first, binned(values, second), second)
    assert pair is not None  # three edges are common
    js = js_and_w1(*pair)[0][0]
    assert np.isnan(js) or js == 0.0
