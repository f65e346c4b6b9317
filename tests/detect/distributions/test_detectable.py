"""The smallest detectable shift, checked against lengths that were really multiplied."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from histogram_cases import EDGES, Floats, azure_lengths, binned, counts
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


@given(row=counts(), ratio=st.floats(0.2, 5.0))
@settings(max_examples=25, deadline=None)
def test_rescaling_keeps_the_mass_and_moves_it_one_way(row: Floats, ratio: float) -> None:
    shifted = row @ rescaling(EDGES, ratio, row[0])
    assert shifted.sum() == pytest.approx(row.sum())
    assert (shifted >= -1e-9).all()
    direction = np.cumsum(row - shifted)  # longer lengths: less at or below every edge
    assert (direction >= -1e-6).all() if ratio >= 1 else (direction <= 1e-6).all()


def test_lengths_are_whole_tokens() -> None:
    lengths = np.array([30.0, 20.0, 50.0, *np.zeros(len(EDGES) - 3)])  # 1, 2, and 3 to 5 tokens
    same = rescaling(EDGES, 1.15, lengths)
    np.testing.assert_allclose(same[:2, :2], np.eye(2))  # 1.15 and 2.3 are 1 and 2
    more = rescaling(EDGES, 1.6, lengths)
    assert more[0, 1] == 1.0  # 1.6 is 2
    assert more[1, 2] == 1.0  # 3.2 is 3
    assert 0.2 < more[2, 3] < 0.9  # 4.8 stays; 6.4 and 8 are above 5
