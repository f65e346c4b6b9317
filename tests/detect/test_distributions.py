"""Both distances on the lengths of real requests: scipy is the oracle."""

from __future__ import annotations

import doctest
from functools import cache
from itertools import pairwise
from pathlib import Path

import numpy as np
import numpy.typing as npt
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from driftwatch.detect import distributions
from driftwatch.detect.distributions import STATISTICS, compared, distances
from driftwatch.simulate.vllm_buckets import request_tokens

Floats = npt.NDArray[np.float64]
EDGES = np.array([*request_tokens(8192), np.inf])
LONGER = np.array([*request_tokens(131_072), np.inf])


@cache
def azure_lengths(shared_data: Path, name: str, column: str) -> Floats:
    """Lengths of every request of an Azure trace, 1 to 8,000 tokens, in order of arrival."""
    frame = pl.read_csv(shared_data / "traces" / f"azure_2023_{name}.csv.gz")
    return frame[column].clip(1, 8000).to_numpy().astype(float)


def binned(values: Floats, edges: Floats = EDGES) -> Floats:
    """One row of shares by cell."""
    found = np.bincount(np.searchsorted(edges, values), minlength=len(edges))
    return found[None, :] / len(values)


def lists(rows: list[object]) -> pl.Series:
    plain = [None if row is None else [float(x) for x in row] for row in rows]  # type: ignore[attr-defined]
    return pl.Series(plain, dtype=pl.List(pl.Float64))


@pytest.fixture(scope="module")
def real(shared_data: Path) -> list[tuple[Floats, Floats]]:
    """Lengths of 500 requests and of the next 500: mostly alike, sometimes of another trace."""
    blocks = [
        block
        for name in ("conv", "code")
        for column in ("ContextTokens", "GeneratedTokens")
        for block in np.array_split(azure_lengths(shared_data, name, column)[:8000], 16)
    ]
    return list(pairwise(blocks))


def test_w1_is_near_the_distance_of_the_lengths_themselves(
    real: list[tuple[Floats, Floats]],
) -> None:
    own, other = (np.concatenate([binned(pair[side]) for pair in real]) for side in (0, 1))
    ratio = distances(own, other, EDGES)[:, 1]
    exact = np.array([np.exp(stats.wasserstein_distance(np.log(a), np.log(b))) for a, b in real])
    assert np.median(np.abs(np.log(ratio / exact))) < 0.03
    assert exact.max() > 2  # some pair is far apart


def shares() -> st.SearchStrategy[Floats]:
    rows = st.lists(st.integers(0, 5000), min_size=len(EDGES), max_size=len(EDGES)).filter(any)
    return rows.map(lambda row: np.array([row], dtype=float) / sum(row))


@given(first=shares(), second=shares())
@settings(max_examples=25, deadline=None)
def test_symmetric_bounded_and_scipys_where_values_spread_evenly(
    first: Floats, second: Floats
) -> None:
    js, w1 = distances(first, second, EDGES)[0]
    assert distances(second, first, EDGES)[0] == pytest.approx([js, w1], rel=1e-9, abs=1e-9)
    assert -1e-9 <= js <= 1 + 1e-9
    lower = np.array([1.0, *EDGES[:-1]])
    upper = np.array([*EDGES[:-1], 2.5 * EDGES[-2]])
    inside = (np.arange(400) + 0.5) / 400
    grid = (np.log(lower)[:, None] + inside * np.log(upper / lower)[:, None]).ravel()
    weights = [np.repeat(side[0] / 400, 400) for side in (first, second)]
    expected = np.exp(stats.wasserstein_distance(grid, grid, *weights))
    assert w1 == pytest.approx(expected, rel=2e-3)


def test_what_stays_inside_a_cell_is_no_distance_and_nothing_in_common_the_largest() -> None:
    before, after = np.full(500, 210.0), np.full(500, 480.0)  # both in (200, 500]
    assert distances(binned(before), binned(after), EDGES)[0] == pytest.approx([0.0, 1.0])
    low, high = np.eye(len(EDGES))[[0]], np.eye(len(EDGES))[[-1]]
    assert distances(low, high, EDGES)[0, 0] == pytest.approx(1.0)
    # an edge at 0, that custom buckets may have: nothing lies there but what lies at 1
    widths = [distances(np.eye(3)[[k]], np.eye(3)[[k + 1]], np.array([0.0, 4.0, np.inf]))
              for k in (0, 1)]  # fmt: skip
    assert [found[0, 1] for found in widths] == pytest.approx([2.0, (4 * 2.5) ** 0.5])


def test_every_row_is_compared_in_its_own_layout(shared_data: Path) -> None:
    conv = azure_lengths(shared_data, "conv", "ContextTokens")
    code = azure_lengths(shared_data, "code", "ContextTokens")
    layouts, of = [EDGES, LONGER, EDGES, LONGER], [EDGES, EDGES, LONGER, LONGER]
    sides = [code[i * 500 : (i + 1) * 500] for i in range(4)]
    found = compared(
        lists([1e3 * np.cumsum(binned(s, e)) for s, e in zip(sides, layouts, strict=True)]),
        lists(list(layouts)),
        lists([1e3 * np.cumsum(binned(conv, e)) for e in of]),
        lists(list(of)),
    )
    assert found.columns == list(STATISTICS)
    for row in (0, 3):
        expected = distances(binned(sides[row]), binned(conv), EDGES)[0, 0]
        assert found["js_distance"][row] == pytest.approx(expected, rel=0.05)
        assert found["w1_ratio"][row] > 1
    assert found[1:3].null_count().row(0) == (2, 2)  # of other edges nothing is known


def test_what_cannot_be_compared_is_null_and_nothing_else_is() -> None:
    ones = np.cumsum(np.ones(len(EDGES)))
    many, inf = 10 * ones, float("inf")
    coarse = [1.0, inf]
    rows: list[tuple[object, object, object, object]] = [
        (many, EDGES, many, EDGES),
        (None, EDGES, many, EDGES),
        (many, EDGES, None, None),
        (many, EDGES[:-2], many, EDGES),  # counts without their edges
        (ones, EDGES, many, EDGES),  # 13 observations
        (0 * ones, EDGES, many, EDGES),
        (many[::-1], EDGES, many, EDGES),  # falls
        ([100.0, 120.0], coarse, [100.0, 120.0], coarse),  # a single edge, the same on both sides
        ([120.0], [inf], [120.0], [inf]),  # how many, and nothing of where
        ([100.0, 120.0], coarse, many, EDGES),
        (many[:3], EDGES[:3], many[:3], EDGES[:3]),  # no +Inf
        ([1e3, 2e3, 3e3], [5.0, 2.0, inf], [1e3, 2e3, 3e3], [5.0, 2.0, inf]),  # edges that fall
        ([50.0, 200.0, 300.0], [0.0, 2.0, inf], [0.0, 200.0, 300.0], [0.0, 2.0, inf]),
        ([1.0, np.nan, 200.0], [1.0, 2.0, inf], [0.0, 200.0, 300.0], [1.0, 2.0, inf]),
    ]
    found = compared(*(lists(list(column)) for column in zip(*rows, strict=True)), at_least=100)
    known = found["js_distance"].is_not_null().to_list()
    assert [row for row, is_known in enumerate(known) if is_known] == [0, 7, 12]
    assert found["w1_ratio"].is_not_null().to_list() == known
    empty = compared(*(lists([]) for _ in range(4)))
    assert empty.schema == pl.Schema({**STATISTICS})


def test_the_examples_in_docstrings_hold() -> None:
    found = doctest.testmod(distributions)
    assert found.failed == 0
    assert found.attempted > 0
