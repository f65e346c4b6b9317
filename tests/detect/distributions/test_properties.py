"""What holds for any counts: symmetry, bounds, shares only, and unknown for nothing."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from histogram_cases import EDGES, Floats, counts, drawn_layouts
from hypothesis import given, settings
from hypothesis import strategies as st

from driftwatch.detect.distributions.cells import cell_bounds, counts_of, ln_widths
from driftwatch.detect.distributions.chi_square import chi_square
from driftwatch.detect.distributions.distances import (
    js_distance,
    ks_distance,
    psi,
    w1_ratio,
    wasserstein,
)

Statistic = Callable[[Floats, Floats], Floats]
STATISTICS: dict[str, tuple[Statistic, float, float]] = {
    "js": (js_distance, 0.0, 1.0),
    "w1": (lambda a, b: w1_ratio(a, b, EDGES), 1.0, 2.5 * EDGES[-2]),
    "psi": (psi, 0.0, 2 * np.log(1e4)),
    "ks": (ks_distance, 0.0, 1.0),
    "cramers_v": (lambda a, b: chi_square(a, b).cramers_v, 0.0, 1.0),
    "p": (lambda a, b: chi_square(a, b).p_value, 0.0, 1.0),
}
OF_SHARES = ("js", "w1", "psi", "ks")  # a p-value knows how many there were, and V both sides'


@pytest.mark.parametrize("name", STATISTICS)
@given(first=counts(), second=counts())
@settings(max_examples=40, deadline=None)
def test_symmetric_and_bounded(name: str, first: Floats, second: Floats) -> None:
    statistic, least, most = STATISTICS[name]
    found = statistic(first, second)[0]
    assert found == pytest.approx(statistic(second, first)[0], rel=1e-9, abs=1e-9)
    assert least - 1e-12 <= found <= most + 1e-9


@pytest.mark.parametrize("name", OF_SHARES)
@given(first=counts(), second=counts(), times=st.floats(0.01, 1000))
@settings(max_examples=40, deadline=None)
def test_only_shares_count(name: str, first: Floats, second: Floats, times: float) -> None:
    statistic, least, _ = STATISTICS[name]
    assert statistic(first * times, second)[0] == pytest.approx(
        statistic(first, second)[0], rel=1e-6, abs=1e-7
    )
    assert statistic(first * times, first)[0] == pytest.approx(least, abs=1e-7)


@given(first=counts())
@settings(max_examples=20, deadline=None)
def test_equal_shares_are_no_difference(first: Floats) -> None:
    test = chi_square(first, 3 * first)
    assert test.statistic[0] == pytest.approx(0.0, abs=1e-6)
    assert test.p_value[0] == pytest.approx(1.0)
    bounds = wasserstein(first, first, EDGES)
    assert bounds.ratio[0] == pytest.approx(1.0)
    assert bounds.lower_ratio[0] == pytest.approx(1.0)


def test_nothing_in_common_is_the_largest_distance() -> None:
    low, high = np.eye(len(EDGES))[[0]], np.eye(len(EDGES))[[-1]]
    assert js_distance(low, high)[0] == pytest.approx(1.0)
    assert ks_distance(low, high)[0] == pytest.approx(1.0)
    assert chi_square(100 * low, 100 * high).cramers_v[0] == pytest.approx(1.0)


def test_a_scaled_length_moves_w1_by_its_factor() -> None:
    """Where one cell's mass goes to another whole cell, the ratio is that of their middles."""
    in_200, in_2k = np.eye(len(EDGES))[[8]], np.eye(len(EDGES))[[11]]
    assert (EDGES[8], EDGES[11]) == (500.0, 5000.0)
    assert w1_ratio(in_2k, in_200, EDGES)[0] == pytest.approx(10.0)


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
    assert (ln_widths(np.array([0.3, 0.5, np.inf]), lowest=0.1) > 0).all()
    # an edge at 0, that custom buckets may have: nothing lies there but what lies at 1
    np.testing.assert_allclose(ln_widths(np.array([0.0, 4.0, np.inf])), np.log([1.0, 4.0, 2.5]))


@given(edges=drawn_layouts())
@settings(max_examples=40, deadline=None)
def test_cells_follow_each_other_without_gap(edges: Floats) -> None:
    lower, upper = cell_bounds(edges)
    np.testing.assert_array_equal(lower[1:], upper[:-1])
    assert (ln_widths(edges) >= 0).all()
    assert np.isfinite(upper).all()
