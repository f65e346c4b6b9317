"""The smallest detectable shift, checked against lengths that were really multiplied."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from histogram_cases import EDGES, Floats, azure_lengths, binned, counts, drawn_layouts
from hypothesis import given, settings
from hypothesis import strategies as st

from driftwatch.detect.detectable import POWER_RATIO, RATIOS, rescaling, smallest_detectable_ratio
from driftwatch.detect.distributions.distances import js_and_w1, js_distance


def score(own: Floats, context: Floats, edges: Floats) -> Floats:
    js, w1 = js_and_w1(own, context, edges)
    return np.where(w1 >= 1.15, js, 0.0)


def windows(lengths: Floats, size: int) -> list[Floats]:
    return [lengths[i : i + size] for i in range(0, len(lengths) - size + 1, size)]


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
    threshold = float(np.quantile(js_distance(history, context), 0.99)) * 1.3
    found = smallest_detectable_ratio(history, context, EDGES, threshold, score)
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
    threshold = float(np.quantile(js_distance(history, context), 0.99)) * 1.3
    found = smallest_detectable_ratio(history, context, EDGES, threshold, score)
    assert power(raw, found + 0.1, context, threshold) >= POWER_RATIO
    assert power(raw, found - 0.15, context, threshold) < POWER_RATIO


def test_a_threshold_out_of_reach_is_nan_and_a_higher_one_needs_a_larger_shift(
    shared_data: Path,
) -> None:
    lengths = azure_lengths(shared_data, "conv", "ContextTokens")
    history = np.concatenate([binned(window) for window in windows(lengths, 300)])
    context = history.sum(axis=0, keepdims=True)
    found = [
        smallest_detectable_ratio(history, context, EDGES, threshold, score)
        for threshold in (0.15, 0.25, 0.4)
    ]
    assert found == sorted(found)
    assert found[0] < found[-1]
    assert math.isnan(smallest_detectable_ratio(history, context, EDGES, 1.0, score))
    assert math.isnan(smallest_detectable_ratio(0 * history, context, EDGES, 0.1, score))


def test_each_window_has_its_own_context_and_empty_windows_are_left_out(shared_data: Path) -> None:
    lengths = azure_lengths(shared_data, "conv", "ContextTokens")
    history = np.concatenate([binned(window) for window in windows(lengths, 300)])
    # every window its own context: the smallest shift that shows at all
    own = smallest_detectable_ratio(history, history, EDGES, 0.1, score)
    whole = smallest_detectable_ratio(
        history, history.sum(axis=0, keepdims=True), EDGES, 0.1, js_only
    )
    assert own >= 1.15  # below it W1 says that it is nothing
    assert whole <= own
    padded = np.concatenate([history, np.zeros((5, len(EDGES)))])
    assert smallest_detectable_ratio(padded, padded, EDGES, 0.1, score) == own


def js_only(own: Floats, context: Floats, edges: Floats) -> Floats:
    return js_distance(own, context)


def test_a_score_that_dips_counts_from_where_it_stays_above() -> None:
    seen = iter([1.0, 0.0, 1.0])  # shown at the first ratio, not at the second, at the third

    def dips(own: Floats, context: Floats, edges: Floats) -> Floats:
        return np.array(list(seen))

    row = binned(np.full(100, 300.0))
    assert smallest_detectable_ratio(row, row, EDGES, 0.5, dips, (1.1, 1.2, 1.3)) == 1.3


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
    np.testing.assert_allclose(rescaling(edges, 1.0, lengths), np.eye(len(edges)), atol=1e-9)
    rows = rescaling(edges, 1.7, lengths)
    np.testing.assert_allclose(rows.sum(axis=1), 1.0)
    assert (np.tril(rows, -1) == 0).all()


def test_an_edge_at_zero_is_no_trouble() -> None:
    edges = np.array([0.0, 100.0, 200.0, np.inf])
    rows = rescaling(edges, 1.5, np.array([0.0, 60.0, 40.0, 0.0]))
    np.testing.assert_allclose(rows.sum(axis=1), 1.0)
    assert rows[1, 2] > 0.1


def test_ratios_ascend_from_five_percent_to_three() -> None:
    assert list(RATIOS) == sorted(set(RATIOS))
    assert (RATIOS[0], RATIOS[-1]) == (1.05, 3.0)
