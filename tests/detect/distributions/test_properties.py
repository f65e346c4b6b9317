"""What holds for any counts: symmetry, bounds, shares only, and unknown for nothing."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from histogram_cases import EDGES, Floats, counts
from hypothesis import given, settings
from hypothesis import strategies as st

from driftwatch.detect.distributions import cell_bounds, counts_of, js_and_w1, ln_widths

Statistic = Callable[[Floats, Floats], Floats]
STATISTICS: dict[str, tuple[Statistic, float, float]] = {
    "js": (lambda a, b: js_and_w1(a, b, EDGES)[0], 0.0, 1.0),
    "w1": (lambda a, b: js_and_w1(a, b, EDGES)[1], 1.0, 2.5 * EDGES[-2]),
}


@pytest.mark.parametrize("name", STATISTICS)
@given(first=counts(), second=counts())
@settings(max_examples=25, deadline=None)
def test_symmetric_and_bounded(name: str, first: Floats, second: Floats) -> None:
    statistic, least, most = STATISTICS[name]
    found = statistic(first, second)[0]
    assert found == pytest.approx(statistic(second, first)[0], rel=1e-9, abs=1e-9)
    assert least - 1e-12 <= found <= most + 1e-9


@pytest.mark.parametrize("name", STATISTICS)
@given(first=counts(), second=counts(), times=st.floats(0.01, 1000))
@settings(max_examples=25, deadline=None)
def test_only_shares_count(name: str, first: Floats, second: Floats, times: float) -> None:
    statistic, least, _ = STATISTICS[name]
    assert statistic(first * times, second)[0] == pytest.approx(
        statistic(first, second)[0], rel=1e-6, abs=1e-7
    )
    assert statistic(first * times, first)[0] == pytest.approx(least, abs=1e-7)


def test_nothing_in_common_is_the_largest_distance() -> None:
    low, high = np.eye(len(EDGES))[[0]], np.eye(len(EDGES))[[-1]]
    assert js_and_w1(low, high, EDGES)[0][0] == pytest.approx(1.0)


@pytest.mark.parametrize("name", STATISTICS)
def test_a_side_without_requests_is_unknown(name: str) -> None:
    statistic, _, _ = STATISTICS[name]
    some, none = np.ones((2, len(EDGES))), np.zeros((2, len(EDGES)))
    none[1] = np.nan
    assert np.isnan(statistic(some, none)).all()
    assert np.isnan(statistic(none, some)).all()


def test_what_is_no_histogram_is_unknown() -> None:
    found = counts_of(
        np.array(
            [
                [1.0, 3.0, 6.0],
                [2.0, 1.0, 6.0],  # falls
                [0.0, 0.0, 0.0],  # holds nothing
                [1.0, np.nan, 2.0],
                [1.0, 2.0, np.inf],
                [1.0, 1.0 - 1e-12, 2.0],  # a rounding error of shared-out increases
            ]
        )
    )
    np.testing.assert_array_equal(found[0], [1.0, 2.0, 3.0])
    assert np.isnan(found[1:5]).all()
    np.testing.assert_allclose(found[5], [1.0, 0.0, 1.0], atol=1e-9)


def test_the_first_cell_holds_one_token_and_the_open_one_ends_at_two_and_a_half_times() -> None:
    lower, upper = cell_bounds(EDGES)
    assert (lower[0], upper[0]) == (1.0, 1.0)
    assert (lower[-1], upper[-1]) == (5000.0, 12500.0)  # max_model_len 8192 lies inside
    coarse = np.array([16.0, 64.0, np.inf])
    np.testing.assert_allclose(ln_widths(coarse), np.log([16.0, 4.0, 2.5]))
    # an edge at 0, that custom buckets may have: nothing lies there but what lies at 1
    np.testing.assert_allclose(ln_widths(np.array([0.0, 4.0, np.inf])), np.log([1.0, 4.0, 2.5]))
