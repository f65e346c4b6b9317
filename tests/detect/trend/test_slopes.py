"""Theil-Sen and Mann-Kendall against scipy, against sums by hand, and against chance."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import kendalltau, norm, theilslopes

from driftwatch.detect.trend.creep import trends

ONE = np.zeros(28, dtype=np.int64)
DAYS = np.arange(28.0)


def random_days(rows: int, seed: int = 0, ties: bool = False) -> np.ndarray:
    """Rows of days, a fifth of them unknown."""
    rng = np.random.default_rng(seed)
    values = rng.normal(0, 0.01, (rows, 28)) + rng.normal(0, 0.001, (rows, 1)) * DAYS
    if ties:
        values = values.round(2)
    values[rng.random(values.shape) < 0.2] = np.nan
    return values


def test_slopes_and_intervals_are_scipy_s() -> None:
    values = random_days(60)
    found = trends(values, DAYS, ONE)
    assert np.all(found.days >= 12)
    for row, one in enumerate(values):
        known = np.isfinite(one)
        slope, _, lower, upper = theilslopes(one[known], DAYS[known], alpha=0.95)
        assert found.slope[row] == pytest.approx(slope, rel=1e-12)
        if found.factor[row] == 1.0:
            assert (found.lower[row], found.upper[row]) == pytest.approx((lower, upper), rel=1e-12)
        else:
            assert found.lower[row] <= lower < upper <= found.upper[row]
    assert (found.factor == 1.0).mean() > 0.5


@pytest.mark.parametrize("ties", [False, True])
def test_s_and_its_variance_are_kendall_s(ties: bool) -> None:
    values = random_days(60, seed=1, ties=ties)
    found = trends(values, DAYS, ONE)
    for row, one in enumerate(values):
        known = np.isfinite(one)
        expected = kendalltau(DAYS[known], one[known], method="asymptotic")
        # scipy's p has no correction for continuity
        z = found.s[row] / np.sqrt(found.variance[row] / found.factor[row])
        assert 2 * norm.sf(abs(z)) == pytest.approx(expected.pvalue, rel=1e-9)
        assert np.sign(found.s[row]) == np.sign(expected.statistic)


def test_days_are_compared_inside_their_part_of_the_week_only() -> None:
    season = (np.arange(28) % 7 >= 5).astype(np.int64)
    values = random_days(20, seed=2)
    found = trends(values, DAYS, season)
    for row, one in enumerate(values):
        slopes = [
            (one[j] - one[i]) / (j - i)
            for i in range(28)
            for j in range(i + 1, 28)
            if season[i] == season[j] and np.isfinite(one[i] + one[j])
        ]
        assert found.slope[row] == pytest.approx(np.median(slopes), rel=1e-12)
        assert found.s[row] == np.sign(slopes).sum()
    # weekends that are slower by a fifth are no trend, though the last week ends with one
    weekly = np.where(season == 1, -0.2, 0.0)[None, :] + np.random.default_rng(3).normal(
        0, 1e-3, (200, 28)
    )
    assert np.abs(trends(weekly, DAYS, season).slope).max() < 2e-4
    one_week = weekly[:, :7]
    told = np.abs(trends(one_week, DAYS[:7], season[:7]).slope)
    assert told.max() < 2e-3
    assert np.median(np.abs(trends(one_week, DAYS[:7], ONE[:7]).slope)) > 5 * np.median(told)


def test_correlated_days_are_not_taken_for_independent_ones() -> None:
    rng = np.random.default_rng(4)
    days = rng.normal(size=(1500, 28))
    for i in range(1, 28):
        days[:, i] = 0.6 * days[:, i - 1] + 0.8 * days[:, i]
    found = trends(days, DAYS, ONE)
    plain = 2 * norm.sf((np.abs(found.s) - 1) / np.sqrt(found.variance / found.factor))
    liberal, corrected = (plain <= 0.05).mean(), (found.p_value <= 0.05).mean()
    assert liberal > 0.25
    assert corrected < 0.7 * liberal
    assert found.factor.min() == 1.0


def test_too_little_is_unknown() -> None:
    values = np.full((3, 28), np.nan)
    values[1, 4] = 1.0
    values[2, :2] = [1.0, 2.0]
    found = trends(values, DAYS, ONE)
    assert np.isnan(found.slope[:2]).all()
    assert np.isnan(found.p_value[:2]).all()
    equal = trends(np.ones((1, 7)), DAYS[:7], ONE[:7])
    assert (equal.slope[0], equal.p_value[0]) == (0.0, 1.0)
    assert found.slope[2] == 1.0
    assert len(trends(values[:0], DAYS, ONE).slope) == 0
    assert np.isnan(trends(values[:, :1], DAYS[:1], ONE[:1]).slope).all()
