"""Intervals hold the truth as often as they say, for minutes that depend on each other."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.signal import lfilter

from driftwatch.verify.figures import FIGURES, Parts
from driftwatch.verify.interval import (
    Level,
    Side,
    block_length,
    counts_of,
    difference,
    level,
    wander_left,
)

Floats = np.ndarray


def _series(rng: np.random.Generator, n: int, persistence: float) -> Floats:
    noise = rng.standard_normal(n + 50) * math.sqrt(1 - persistence**2)
    return np.asarray(lfilter([1.0], [1.0, -persistence], noise))[50:]


def _side(values: Floats) -> Side:
    n = len(values)
    cell = np.arange(n) % 3
    parts = {"requests_per_forward_pass": Parts(values * 100.0, np.full(n, 100.0))}
    return Side(parts, cell, np.ones(3), n * 60.0, block_length(np.log(values)))


@pytest.mark.parametrize(("minutes", "persistence"), [(15, 0.3), (60, 0.6), (240, 0.8)])
def test_coverage_of_dependent_minutes(minutes: int, persistence: float) -> None:
    rng = np.random.default_rng(7)
    hits, trials = 0, 120
    for trial in range(trials):
        values = np.exp(0.3 * _series(rng, minutes, persistence))
        side = _side(values)
        counts = counts_of(side, np.random.default_rng(trial))
        found = level(side, FIGURES["requests_per_forward_pass"], counts, 0.95)
        assert found is not None
        hits += found.low <= math.exp(0.3**2 / 2) <= found.high
    assert hits / trials >= 0.88


def test_blocks_follow_the_correlation() -> None:
    rng = np.random.default_rng(3)
    free = [block_length(_series(rng, 400, 0.0)) for _ in range(20)]
    bound = [block_length(_series(rng, 400, 0.9)) for _ in range(20)]
    assert np.median(bound) > 3 * np.median(free)
    assert max(bound) <= 400 // 3
    assert block_length(np.ones(30)) == 3


def test_wander_is_averaged_out_only_over_hours() -> None:
    assert wander_left(60.0) == pytest.approx(1.0, abs=0.01)
    assert wander_left(3600.0) == pytest.approx(math.sqrt(2 * math.exp(-1)), rel=1e-6)
    assert wander_left(48 * 3600.0) < 0.21


def test_limits_of_a_difference_come_from_both_sides() -> None:
    low, high = difference(Level(2.0, 1.5, 3.0), Level(1.0, 0.9, 1.2))
    assert low == pytest.approx(-1.0 - math.hypot(0.1, 1.0))
    assert high == pytest.approx(-1.0 + math.hypot(0.2, 0.5))


def test_a_share_of_all_requests_is_not_certain() -> None:
    n = 20
    parts = {"ttft_in_target_ratio": Parts(np.full(n, 30.0), np.full(n, 30.0))}
    side = Side(parts, np.zeros(n, np.int64), np.ones(1), n * 60.0, 3)
    counts = counts_of(side, np.random.default_rng(0))
    found = level(side, FIGURES["ttft_in_target_ratio"], counts, 0.95)
    assert found is not None
    assert found.value == found.high == 1.0
    assert 0.99 < found.low < 1.0


def test_the_same_seed_gives_the_same_limits_and_unknown_stays_unknown() -> None:
    side = _side(np.exp(0.2 * _series(np.random.default_rng(1), 30, 0.4)))
    figure = FIGURES["requests_per_forward_pass"]
    one, other = (
        level(side, figure, counts_of(side, np.random.default_rng(5)), 0.95) for _ in range(2)
    )
    assert one == other
    counts = counts_of(side, np.random.default_rng(5))
    assert level(side, FIGURES["ttft_seconds_mean"], counts, 0.95) is None
