"""Slow drifts over days, and lengths of whole days."""

from __future__ import annotations

from datetime import date, timedelta

import numpy as np
import pytest
from detector_cases import minutes_of, play

from driftwatch.detect.references import Day, DayLengths, Trend
from driftwatch.detect.trend import with_day, with_lengths
from driftwatch.model import TargetKey

FIRST = date(2026, 3, 2)


def trend_of(medians: list[float], models: list[str] | None = None) -> Trend:
    trend = Trend()
    for number, median in enumerate(medians):
        model = models[number] if models else "m"
        day = Day(day=FIRST + timedelta(days=number), speeds=(median,) * 6, compared_with=model)
        trend = with_day(trend, day)
    return trend


def noise(days: int) -> np.ndarray:  # type: ignore[type-arg]
    return np.random.default_rng(3).normal(0, 0.004, days)


def test_a_loss_of_5_percent_in_two_weeks_creeps() -> None:
    trend = trend_of([*(-0.05 / 14 * np.arange(14) + noise(14))])
    assert trend.creeps
    assert trend.slope == pytest.approx(-0.05, abs=0.015)
    assert trend.lower is not None and trend.upper is not None
    assert trend.lower < trend.slope < trend.upper < 0


def test_days_that_wander_or_rise_do_not_creep() -> None:
    assert trend_of([*noise(20)]).creeps is False
    assert trend_of([*(0.05 / 14 * np.arange(14) + noise(14))]).creeps is False
    assert trend_of([*(-0.015 / 14 * np.arange(14) + noise(14) / 4)]).creeps is False


def test_fewer_than_seven_days_of_one_model_say_nothing() -> None:
    trend = trend_of([-0.01 * k for k in range(9)], ["old"] * 5 + ["new"] * 4)
    assert trend.creeps is None
    assert trend.slope is None


def test_a_day_of_few_hours_is_none() -> None:
    trend = with_day(Trend(), Day(day=FIRST, speeds=(0.0,) * 3, compared_with="m"))
    assert trend.days == ()


def test_lengths_moved_on_two_days_running() -> None:
    lengths = (60_000.0, 100.0, 20_000.0, 100.0)
    day = Day(day=FIRST, lengths=lengths, hours=24, limited_minutes=10)
    first = with_lengths(DayLengths(), day, (400.0, 200.0), whole=True)
    assert first.moved is False
    second = with_lengths(first, day, (400.0, 200.0), whole=True)
    assert second.moved is True
    assert second.prompt_tokens_ratio == pytest.approx(1.5)
    assert with_lengths(second, day, (600.0, 200.0), whole=True).moved is False
    assert with_lengths(first, day, (400.0, 200.0), whole=False).moved is None
    idle = day.model_copy(update={"limited_minutes": 9})
    assert with_lengths(first, idle, (400.0, 200.0), whole=True).moved is False


def test_days_come_from_the_hours() -> None:
    _, detection = play(minutes_of(1500, ("a:8000",)))
    trend = detection.references.trend("chat", TargetKey("a:8000", "0"))
    ((day, median, model),) = trend.days
    assert day == FIRST
    assert abs(median) < 0.03
    assert model == "provisional"
