"""scipy is the oracle: both distances on the lengths of real requests."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from histogram_cases import EDGES, Floats, azure_lengths, binned, counts
from hypothesis import given, settings
from scipy import stats
from scipy.spatial.distance import jensenshannon

from driftwatch.detect.distributions import cell_bounds, js_and_w1


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
    np.testing.assert_allclose(js_and_w1(own, other, EDGES)[0], expected, atol=1e-7)


def test_w1_is_near_the_distance_of_the_lengths_themselves(
    real: list[tuple[Floats, Floats]],
) -> None:
    own, other = matrices(real)
    ratio = js_and_w1(own, other, EDGES)[1]
    exact = np.array([np.exp(stats.wasserstein_distance(np.log(a), np.log(b))) for a, b in real])
    assert np.median(np.abs(np.log(ratio / exact))) < 0.03
    assert exact.max() > 2  # some pair is far apart


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
    assert js_and_w1(first, second, EDGES)[1][0] == pytest.approx(expected, rel=2e-3)


def test_what_stays_inside_a_cell_is_no_distance() -> None:
    before, after = np.full(500, 210.0), np.full(500, 480.0)  # both in (200, 500]
    assert js_and_w1(binned(before), binned(after), EDGES)[0][0] == 0.0
