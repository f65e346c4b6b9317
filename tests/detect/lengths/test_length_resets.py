"""Weekly thresholds: episodes a month as the budget says, within bounds."""

from __future__ import annotations

from datetime import date

import numpy as np
import pytest

from driftwatch.detect.lengths.episodes import (
    OFF,
    Reading,
    step,
    watch,
)
from driftwatch.detect.lengths.scales import PEAKS, Thresholds, threshold_of
from driftwatch.detect.null import day_number

MONDAY = day_number(date(2026, 11, 9))


def counted(peaks: np.ndarray, months: float, scope: int = 0) -> Thresholds:
    return Thresholds().at(MONDAY, 0.25).counted(scope, peaks, int(months * 43_200))


@pytest.mark.parametrize("excess", [0.1, 0.2, 0.4])
def test_the_budget_is_met_by_episodes_like_those_of_the_week(excess: float) -> None:
    rng = np.random.default_rng(3)
    months, rate, budget = 3.0, 60.0, 0.25
    week = 1.0 + rng.exponential(excess, int(rate * months))
    threshold = threshold_of(np.histogram(week, PEAKS)[0], months, budget)
    later = 1.0 + rng.exponential(excess, int(rate * 4000))
    assert (later > threshold).sum() / 4000 == pytest.approx(budget, rel=0.9)


def test_true_shifts_in_the_week_hardly_move_it() -> None:
    rng = np.random.default_rng(4)
    quiet = 1.0 + rng.exponential(0.2, 200)
    true = np.full(10, 8.0)
    without = threshold_of(np.histogram(quiet, PEAKS)[0], 3.0, 0.25)
    beside = threshold_of(np.histogram(np.concatenate([quiet, true]), PEAKS)[0], 3.0, 0.25)
    assert beside == pytest.approx(without, rel=0.08)


def test_a_new_week_sets_it() -> None:
    week = counted(1.0 + np.random.default_rng(5).exponential(0.25, 100), 2.0)
    assert week.at(MONDAY + 6, 0.25) is week
    after = week.at(MONDAY + 7, 0.25)
    assert after.values[0] != week.values[0]
    assert after.values[1] == week.values[1]  # pools had no calibrated verdict
    assert after.peaks.sum() == after.minutes.sum() == 0
    assert after.at(MONDAY + 14, 0.25).values == after.values  # a week without minutes


def test_it_stays_within_its_bounds() -> None:
    wild = counted(np.full(5000, 15.0), 1.0).at(MONDAY + 7, 0.25)
    assert wild.values[0] == pytest.approx(1.3 * 3)
    calm = counted(np.zeros(0), 50.0).at(MONDAY + 7, 0.25)
    assert calm.values[0] == pytest.approx(1.3 * 0.8)
    pools = counted(np.full(5000, 15.0), 1.0, scope=1).at(MONDAY + 7, 0.25)
    assert 4.0 < pools.values[1] <= 2.0 * 3


def said(score: float, moved: bool = True, clearly: bool = False) -> Reading:
    return Reading(
        np.array([score]),
        np.array([score if moved else 0.0]),
        np.array([score if clearly else 0.0]),
    )


def test_a_shift_begins_after_three_minutes_or_at_once_and_ends_calm() -> None:
    state = watch(1)
    for minute, on in enumerate([False, False, True]):
        state, _ = step(state, minute, said(1.8), 1.7)
        assert state.on().tolist() == [on]
    for minute in range(3, 3 + 14):
        state, _ = step(state, minute, said(1.3, moved=False), 1.7)
    assert state.on()[0]  # 14 calm minutes
    state, _ = step(state, 17, said(1.5), 1.7)  # between 0.8 h and h: not calm
    for minute in range(18, 18 + 15):
        assert state.on()[0]
        state, _ = step(state, minute, said(1.3), 1.7)
    assert not state.on()[0]
    state, _ = step(state, 40, said(1.8, clearly=True), 1.7)
    assert state.since[0] == 40


def test_nothing_moved_nothing_begins_and_silence_ends() -> None:
    state = watch(1)
    for minute in range(10):
        state, _ = step(state, minute, said(5.0, moved=False), 1.7)
    assert not state.on()[0]
    state, _ = step(state, 10, said(5.0, clearly=True), 1.7)
    unknown = Reading(np.array([np.nan]), np.zeros(1), np.zeros(1))
    for minute in range(11, 70):
        state, _ = step(state, minute, unknown, 1.7)
    assert state.on()[0]
    state, _ = step(state, 70, unknown, 1.7)
    assert state.since[0] == OFF


def test_an_episode_is_counted_once_with_its_peak() -> None:
    state, peaks = watch(1), []
    for minute, score in enumerate([1.2, 1.3, 1.4, 1.5, 1.1, 0.5, 1.2, 1.2, 1.2] + [0.1] * 40):
        state, ended = step(state, minute, said(score), 1.7)
        peaks += ended[ended > 0].tolist()
    assert peaks == [1.3]  # the highest that lasted three minutes


def test_a_week_of_true_and_high_episodes_leaves_the_fleet_its_hearing() -> None:
    true = threshold_of(np.histogram(np.full(16, 4.0), PEAKS)[0], 0.67, 0.25)
    assert 1.3 < true < 2.7  # their median alone would ask for 12
