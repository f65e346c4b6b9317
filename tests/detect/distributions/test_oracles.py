"""scipy is the oracle: every statistic on the lengths of real requests."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from histogram_cases import EDGES, Floats, azure_lengths, binned, counts, drawn_layouts
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from scipy.spatial.distance import jensenshannon

from driftwatch.detect.distributions.cells import cell_bounds, shares
from driftwatch.detect.distributions.chi_square import chi_square
from driftwatch.detect.distributions.distances import (
    js_and_w1,
    js_distance,
    ks_distance,
    mean_log_ratio,
    psi,
    w1_ratio,
    wasserstein,
)


def blocks(shared_data: Path, size: int = 500) -> list[Floats]:
    """Prompt and generation lengths of both traces in blocks of consecutive requests."""
    return [
        block
        for name in ("conv", "code")
        for column in ("ContextTokens", "GeneratedTokens")
        for block in np.array_split(azure_lengths(shared_data, name, column)[:8000], 8000 // size)
    ]


@pytest.fixture(scope="module")
def real(shared_data: Path) -> list[tuple[Floats, Floats]]:
    """Raw lengths of one block and of the next: mostly alike, sometimes of another trace."""
    return list(pairwise(blocks(shared_data)))


def matrices(pairs: list[tuple[Floats, Floats]]) -> tuple[Floats, Floats]:
    return (
        np.concatenate([binned(first) for first, _ in pairs]),
        np.concatenate([binned(second) for _, second in pairs]),
    )


def test_jensen_shannon_is_scipys(real: list[tuple[Floats, Floats]]) -> None:
    own, other = matrices(real)
    expected = [jensenshannon(a, b, base=2) for a, b in zip(own, other, strict=True)]
    assert max(expected) > 0.5  # both traces and both signals are among the pairs
    np.testing.assert_allclose(js_distance(own, other), expected, atol=1e-7)


def test_chi_square_p_and_cramers_v_are_scipys(real: list[tuple[Floats, Floats]]) -> None:
    own, other = matrices(real)
    found = chi_square(own, other)
    for row, (a, b) in enumerate(zip(own, other, strict=True)):
        table = np.stack([a, b])[:, (a + b) > 0].astype(int)
        expected = stats.chi2_contingency(table, correction=False)
        assert found.statistic[row] == pytest.approx(expected.statistic, rel=1e-9)
        assert found.degrees[row] == expected.dof
        assert found.p_value[row] == pytest.approx(expected.pvalue, rel=1e-8, abs=1e-300)
        cramer = stats.contingency.association(table, method="cramer", correction=False)
        assert found.cramers_v[row] == pytest.approx(cramer, rel=1e-9)
    assert found.p_value.max() > 0.05 > found.p_value.min()


def test_ks_at_the_edges_is_scipys_on_values_at_the_edges_and_below_that_of_the_lengths(
    real: list[tuple[Floats, Floats]],
) -> None:
    own, other = matrices(real)
    found = ks_distance(own, other)
    at_edges = np.array([*EDGES[:-1], EDGES[-2] + 1])
    for row, (a, b) in enumerate(real):
        expanded = [at_edges[np.searchsorted(EDGES, side)] for side in (a, b)]
        assert found[row] == pytest.approx(stats.ks_2samp(*expanded, method="asymp").statistic)
        assert found[row] <= stats.ks_2samp(a, b, method="asymp").statistic + 1e-12


def test_the_distance_of_the_lengths_themselves_lies_within_the_hard_bounds(
    real: list[tuple[Floats, Floats]],
) -> None:
    own, other = matrices(real)
    found = wasserstein(own, other, EDGES)
    exact = np.array([np.exp(stats.wasserstein_distance(np.log(a), np.log(b))) for a, b in real])
    assert (found.lower_ratio <= exact * (1 + 1e-9)).all()
    assert (exact <= found.upper_ratio * (1 + 1e-9)).all()
    assert (found.lower_ratio <= found.ratio * (1 + 1e-12)).all()
    assert (found.ratio <= found.upper_ratio * (1 + 1e-12)).all()
    # and what stands between the bounds is an estimate worth the name
    assert np.median(np.abs(np.log(found.ratio / exact))) < 0.03
    assert found.lower_ratio.max() > 2  # some pair is apart wherever the values lie


@given(first=counts(), second=counts())
@settings(max_examples=25, deadline=None)
def test_w1_is_scipys_where_values_spread_evenly_in_their_cells(
    first: Floats, second: Floats
) -> None:
    lower, upper = cell_bounds(EDGES)
    inside = (np.arange(400) + 0.5) / 400
    grid = np.log(lower)[:, None] + inside * np.log(upper / lower)[:, None]
    weights = [np.repeat(side[0] / 400, 400) for side in (first, second)]
    expected = np.exp(stats.wasserstein_distance(grid.ravel(), grid.ravel(), *weights))
    assert w1_ratio(first, second, EDGES)[0] == pytest.approx(expected, rel=2e-3)


@given(edges=drawn_layouts(), data=st.data())
@settings(max_examples=60, deadline=None)
def test_the_hard_bounds_hold_for_any_layout_and_any_values(
    edges: Floats, data: st.DataObject
) -> None:
    last = int(edges[-2])
    some = st.lists(st.integers(1, int(2.5 * last)), min_size=1, max_size=30)
    a, b = (np.array(data.draw(some), dtype=float) for _ in range(2))
    found = wasserstein(binned(a, edges), binned(b, edges), edges)
    exact = np.exp(stats.wasserstein_distance(np.log(a), np.log(b)))
    assert found.lower_ratio[0] <= exact * (1 + 1e-9)
    assert exact <= found.upper_ratio[0] * (1 + 1e-9)


def test_psi_is_the_textbooks_where_no_cell_is_empty(real: list[tuple[Floats, Floats]]) -> None:
    own, other = (side + 1.0 for side in matrices(real))  # every share above the floor
    p, q = shares(own), shares(other)
    expected = stats.entropy(p, q, axis=1) + stats.entropy(q, p, axis=1)
    np.testing.assert_allclose(psi(own, other), expected, rtol=1e-9)


def test_an_empty_cell_counts_as_a_ten_thousandth_in_psi() -> None:
    found = psi(np.array([[50.0, 50.0]]), np.array([[100.0, 0.0]]))[0]
    assert found == pytest.approx(0.5 * np.log(2) + (0.5 - 1e-4) * np.log(0.5 / 1e-4), rel=1e-12)


def test_a_reference_may_be_one_for_all_rows(real: list[tuple[Floats, Floats]]) -> None:
    own, other = matrices(real)
    many = np.repeat(other[:1], len(own), axis=0)
    for statistic in (js_distance, psi, ks_distance):
        np.testing.assert_array_equal(statistic(own, other[:1]), statistic(own, many))
    np.testing.assert_allclose(
        chi_square(own, other[:1]).p_value, chi_square(own, many).p_value, rtol=1e-12
    )
    np.testing.assert_array_equal(
        wasserstein(own, other[:1], EDGES).upper_ratio, wasserstein(own, many, EDGES).upper_ratio
    )


def test_blocks_of_rows_give_what_all_rows_give(real: list[tuple[Floats, Floats]]) -> None:
    own, other = (np.tile(side, (80, 1)) for side in matrices(real))
    assert len(own) > 4096
    for reference in (other, other[:1]):
        js, w1 = js_and_w1(own, reference, EDGES)
        np.testing.assert_array_equal(js, js_distance(own, reference))
        np.testing.assert_allclose(w1, w1_ratio(own, reference, EDGES), rtol=1e-12)


def test_the_mean_ratio_sees_what_stays_inside_a_cell() -> None:
    before, after = np.full(500, 210.0), np.full(500, 480.0)  # both in (200, 500]
    assert js_distance(binned(before), binned(after))[0] == 0.0
    found = mean_log_ratio(*(np.array([x]) for x in (after.sum(), 500.0, before.sum(), 500.0)))
    assert np.exp(found[0]) == pytest.approx(480 / 210)
    nothing = mean_log_ratio(
        np.array([0.0, 5.0]), np.array([0.0, 0.0]), np.array([1.0, 1.0]), np.array([1.0, 1.0])
    )
    assert np.isnan(nothing).all()
