"""Intervals hold the truth as often as they say, for minutes that depend on each other."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.signal import lfilter

from driftwatch.verify.figures import Parts
from driftwatch.verify.interval import Level, Side, both_of, difference

Floats = np.ndarray
NAME = "itl_seconds_mean"


def _series(rng: np.random.Generator, n: int, persistence: float) -> Floats:
    noise = rng.standard_normal(n + 400) * math.sqrt(1 - persistence**2)
    return np.asarray(lfilter([1.0], [1.0, -persistence], noise))[400:]


def _side(values: Floats, first: int) -> Side:
    n = len(values)
    return _side_of(Parts(values * 100.0, np.full(n, 100.0)), first)


def _side_of(parts: Parts, first: int) -> Side:
    n = len(parts.denominator)
    minutes, cells = np.arange(first, first + n), np.zeros(n, np.int64)
    return Side(parts, minutes, cells, np.ones(1), np.zeros((n, 2)))


@pytest.mark.parametrize(("minutes", "persistence"), [((60, 20), 0.3), ((1200, 240), 0.8)])
def test_coverage_of_dependent_minutes(minutes: tuple[int, int], persistence: float) -> None:
    rng = np.random.default_rng(7)
    hits, trials = 0, 100
    for _ in range(trials):
        one, other = (np.exp(0.3 * _series(rng, n, persistence)) for n in minutes)
        found = both_of(_side(one, 0), _side(other, minutes[0]), NAME, 0.95)
        assert found is not None
        low, high = difference(found.before, found.after)
        hits += low <= 0.0 <= high
    assert hits / trials >= 0.89


@pytest.mark.parametrize("hours", [2.0])
def test_an_engine_that_wanders_by_itself_is_no_effect(hours: float) -> None:
    """5 % of wander that forgets in an hour and a half: more than is believed before the data."""
    rng = np.random.default_rng(11)
    before, after = 1200, round(60 * hours)
    hits, trials = 0, 100
    for _ in range(trials):
        whole = 0.05 * _series(rng, before + after, math.exp(-1 / 90))
        whole += 0.02 * rng.standard_normal(len(whole))
        values = np.exp(whole)
        found = both_of(_side(values[:before], 0), _side(values[before:], before), NAME, 0.95)
        assert found is not None
        low, high = difference(found.before, found.after)
        hits += low <= 0.0 <= high
    assert hits / trials >= 0.89


def test_a_share_of_all_requests_is_not_certain() -> None:
    name = "ttft_in_target_ratio"
    side = _side(np.ones(20), 0)
    found = both_of(side, _side(np.ones(20), 20), name, 0.95, speed=0.0)
    assert found is not None
    assert found.after.value == found.after.high == 1.0
    assert 0.99 < found.after.low < 1.0


def test_the_same_minutes_give_the_same_limits_and_unknown_stays_unknown() -> None:
    values = np.exp(0.2 * _series(np.random.default_rng(1), 60, 0.4))
    one, other = (both_of(_side(values[:30], 0), _side(values[30:], 30), NAME, 0.95) for _ in "ab")
    assert one == other
    empty = _side_of(Parts(np.zeros(5), np.zeros(5)), 0)
    assert both_of(empty, _side(values, 5), NAME, 0.95) is None


def test_a_time_cannot_fall_by_more_than_it_is() -> None:
    """A mean before of 2.5 s that so few minutes know as 0.1 to 55 s."""
    low, high = difference(Level(2.5, 0.1, 55.0), Level(0.4, 0.2, 0.9))
    assert low == -2.5
    assert low < -2.1 < high
