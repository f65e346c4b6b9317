"""CUDA-graph capture sizes."""

from __future__ import annotations

import doctest

from hypothesis import given
from hypothesis import strategies as st

from driftwatch.recommend import sweep_values
from driftwatch.recommend.sweep_values import capture_size_at_least

# vLLM 0.32 config/vllm.py _set_cudagraph_sizes, and the same steps beyond the largest
SIZES = [1, 2, 4, *range(8, 256, 8), *range(256, 20_000, 16)]


def test_the_doctests_hold() -> None:
    found = doctest.testmod(sweep_values)
    assert found.attempted > 0
    assert found.failed == 0


@given(st.floats(0.01, 18_000))
def test_a_capture_size_is_the_next_one(requests: float) -> None:
    assert capture_size_at_least(requests) == next(s for s in SIZES if s >= requests)
