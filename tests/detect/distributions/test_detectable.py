"""The smallest detectable shift, checked against lengths that were really multiplied."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from histogram_cases import EDGES, Floats, azure_lengths, binned, counts, drawn_layouts
from hypothesis import given, settings
from hypothesis import strategies as st

from driftwatch.detect.distributions import js_and_w1
from driftwatch.detect.lengths.detectable import POWER_RATIO, rescaling, smallest_factor

FACTORS = tuple(round(1 + 0.05 * i, 2) for i in range(1, 41))


def score(own: Floats, context: Floats, edges: Floats) -> Floats:
    js, w1 = js_and_w1(own, context, edges)
    return np.where(w1 >= 1.15, js, 0.0)


def windows(lengths: Floats, size: int) -> list[Floats]:
    return [lengths[i : i + size] for i in range(0, len(lengths) - size + 1, size)]


def promised(history: Floats, threshold: float) -> float:
    """The smallest factor that would show in these windows, against all of them together."""
    context = history.sum(axis=0, keepdims=True)
    scores = [score(history @ rescaling(EDGES, f, context[0]), context, EDGES) for f in FACTORS]
    shown = np.array([(one > threshold).mean() for one in scores])
    return float(smallest_factor(shown, FACTORS))


def power(raw: list[Floats], ratio: float, context: Floats, threshold: float) -> float:
    """Share of windows whose lengths, really multiplied and counted anew, are shown."""
    shifted = np.concatenate([binned(np.round(window * ratio)) for window in raw])
    return float((score(shifted, context, EDGES) > threshold).mean())


@pytest.mark.parametrize(
    ("trace", "column"),
    [("conv", "ContextTokens"), ("code", "ContextTokens"), ("code", "GeneratedTokens")],
)
def test_what_it_promises_is_what_multiplied_lengths_show(
    shared_data: Path, trace: str, column: str
) -> None:
    raw = windows(azure_lengths(shared_data, trace, column), 300)
    history = np.concatenate([binned(window) for window in raw])
    context = history.sum(axis=0, keepdims=True)
    threshold = float(np.quantile(js_and_w1(history, context, EDGES)[0], 0.99)) * 1.3
    found = promised(history, threshold)
    assert 1.05 < found < 3.0
    # these lengths lie unevenly in their cells, which no bucket shows: within a seventh
    assert power(raw, found * 1.15, context, threshold) >= POWER_RATIO
    assert power(raw, 1 + (found - 1) / 2, context, threshold) < POWER_RATIO
    assert power(raw, 1.0, context, threshold) <= 0.01


@pytest.mark.parametrize("spread", [0.4, 0.7, 1.0])
@pytest.mark.parametrize("size", [100, 1000])
def test_of_smooth_lengths_it_is_right_to_a_step_or_two(spread: float, size: int) -> None:
    """Narrow distributions too, of which most cells hold no even spread."""
    rng = np.random.default_rng(6)
    raw = windows(np.clip(np.round(np.exp(rng.normal(5.5, spread, 40_000))), 1, 8000), size)
    history = np.concatenate([binned(window) for window in raw])
    context = history.sum(axis=0, keepdims=True)
    threshold = float(np.quantile(js_and_w1(history, context, EDGES)[0], 0.99)) * 1.3
    found = promised(history, threshold)
    assert power(raw, found + 0.1, context, threshold) >= POWER_RATIO
    assert power(raw, found - 0.15, context, threshold) < POWER_RATIO


def test_a_threshold_out_of_reach_is_nan_and_a_higher_one_needs_a_larger_shift(
    shared_data: Path,
) -> None:
    lengths = azure_lengths(shared_data, "conv", "ContextTokens")
    history = np.concatenate([binned(window) for window in windows(lengths, 300)])
    found = [promised(history, threshold) for threshold in (0.15, 0.25, 0.4)]
    assert found == sorted(found)
    assert found[0] < found[-1]
    assert math.isnan(promised(history, 1.0))


def test_the_smallest_factor_is_the_one_from_which_on_all_show() -> None:
    factors = (1.1, 1.2, 1.5)
    shown = np.array(
        [
            [[0.0, 0.95, 1.0], [0.96, 0.9, 1.0]],  # a dip counts against what lies below it
            [[1.0, 1.0, 1.0], [1.0, 1.0, 0.94]],
            [[np.nan, np.nan, np.nan], [np.nan, 1.0, 1.0]],
        ]
    )
    np.testing.assert_array_equal(
        smallest_factor(shown, factors), [[1.2, 1.5], [1.1, np.nan], [np.nan, 1.2]]
    )


@given(row=counts(), ratio=st.floats(0.2, 5.0))
@settings(max_examples=40, deadline=None)
def test_rescaling_keeps_the_mass_and_moves_it_one_way(row: Floats, ratio: float) -> None:
    shifted = row @ rescaling(EDGES, ratio, row[0])
    assert shifted.sum() == pytest.approx(row.sum())
    assert (shifted >= -1e-9).all()
    direction = np.cumsum(row - shifted)  # longer lengths: less at or below every edge
    assert (direction >= -1e-6).all() if ratio >= 1 else (direction <= 1e-6).all()


@given(edges=drawn_layouts(), data=st.data())
@settings(max_examples=30, deadline=None)
def test_rescaling_by_one_changes_nothing_and_by_more_nothing_becomes_shorter(
    edges: Floats, data: st.DataObject
) -> None:
    lengths = data.draw(counts(len(edges)))[0]
    np.testing.assert_allclose(rescaling(edges, 1.0, lengths), np.eye(len(edges)), atol=1e-12)
    rows = rescaling(edges, 1.7, lengths)
    np.testing.assert_allclose(rows.sum(axis=1), 1.0)
    assert (np.tril(rows, -1) == 0).all()


def test_lengths_are_whole_tokens() -> None:
    lengths = np.array([30.0, 20.0, 50.0, *np.zeros(len(EDGES) - 3)])  # 1, 2, and 3 to 5 tokens
    same = rescaling(EDGES, 1.15, lengths)
    np.testing.assert_allclose(same[:2, :2], np.eye(2))  # 1.15 and 2.3 are 1 and 2
    more = rescaling(EDGES, 1.6, lengths)
    assert more[0, 1] == 1.0  # 1.6 is 2
    assert more[1, 2] == 1.0  # 3.2 is 3
    assert 0.2 < more[2, 3] < 0.9  # 4.8 stays; 6.4 and 8 are above 5


@pytest.mark.parametrize("kind", ["prompt", "generation"])
def test_production_lengths_move_as_far_as_they_are_said_to(shared_data: Path, kind: str) -> None:
    """ServeGen's first day, all clients alike: a fifth of its generations is a single token."""
    told = pl.read_parquet(shared_data / "servegen" / "m-small_lengths.parquet").filter(
        pl.col("kind") == kind, pl.col("start_seconds") < 86_400
    )
    tokens = told["tokens"].clip(1, 8000).to_numpy().astype(float)
    shares = told["probability"].to_numpy()

    def of(values: Floats) -> Floats:
        cells = np.searchsorted(EDGES, values)
        return np.bincount(cells, shares, minlength=len(EDGES))[None, :]

    before = of(tokens)
    for ratio in (1.5, 2.0, 3.0):
        real = js_and_w1(of(np.rint(tokens * ratio)), before, EDGES)[0][0]
        said = js_and_w1(before @ rescaling(EDGES, ratio, before[0]), before, EDGES)[0][0]
        assert said == pytest.approx(real, rel=0.35), ratio


def test_an_edge_at_zero_is_no_trouble() -> None:
    edges = np.array([0.0, 100.0, 200.0, np.inf])
    rows = rescaling(edges, 1.5, np.array([0.0, 60.0, 40.0, 0.0]))
    np.testing.assert_allclose(rows.sum(axis=1), 1.0)
    assert rows[1, 2] > 0.1
    # and edges between which no whole number lies
    rows = rescaling(np.array([1.2, 1.7, 9.5, np.inf]), 2.0, np.array([5.0, 0.0, 5.0, 0.0]))
    np.testing.assert_allclose(rows.sum(axis=1), 1.0)
    assert rows[0, 2] == 1.0
