"""Creep: the slope of a server's daily speed at equal load.

A day is the median of its hours' medians of ln r; all days are compared with one model. The slope
is Theil and Sen's (Sen 1968) with its interval, the test Kendall's (Mann 1945), both scipy's.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date

import numpy as np
from scipy.stats import kendalltau, theilslopes

from driftwatch.detect.references import Day, DayLengths, Trend

KEPT_DAYS, SPAN_DAYS = 28, 14
LEAST_DAYS, LEAST_HOURS = 7, 4  # of a day, with a known speed
LEAST_CHANGE = 0.03  # over SPAN_DAYS
# Seven days that wander by 1 % each easily give a slope of 3 %: few days must agree better.
MOST_P_VALUE, MOST_P_VALUE_EARLY, EARLY_DAYS = 0.02, 0.01, 14
# 24 h against the baseline: a ratio this far off on RETUNE_DAYS days running is a stale tune, where
# a batch limit costs on each of them. Without that, 5 of 29 pools of changing clients had a ticket.
RETUNE_RATIO, RETUNE_DAYS, RETUNE_HOURS, RETUNE_REQUESTS = 1.3, 2, 20, 100
RETUNE_LIMITED_MINUTES = 10


def with_day(trend: Trend, day: Day) -> Trend:
    """The trend with one more complete day."""
    days = [one for one in trend.days if one[0] < day.day]
    if len(day.speeds) >= LEAST_HOURS:
        days.append((day.day, float(np.median(day.speeds)), day.compared_with))
    days = days[-KEPT_DAYS:]
    alike = [(at, value) for at, value, model in days if model == days[-1][2]] if days else []
    if len(alike) < LEAST_DAYS:
        return Trend(days=tuple(days))
    slope, lower, upper, creeps = _slope(alike)
    return Trend(days=tuple(days), slope=slope, lower=lower, upper=upper, creeps=creeps)


def _slope(days: Sequence[tuple[date, float]]) -> tuple[float, float, float, bool]:
    """Slope over SPAN_DAYS with the ends of its interval, and whether it is a loss."""
    at = np.array([day.toordinal() for day, _ in days], dtype=np.float64)
    values = np.array([value for _, value in days])
    slope, _, lower, upper = (SPAN_DAYS * x for x in theilslopes(values, at, 0.95))
    p_value = float(kendalltau(at, values).pvalue)
    most = MOST_P_VALUE if len(days) >= EARLY_DAYS else MOST_P_VALUE_EARLY
    creeps = upper < 0 and slope <= -LEAST_CHANGE and p_value <= most
    return float(slope), float(lower), float(upper), bool(creeps)


def with_lengths(
    before: DayLengths, day: Day, means: tuple[float | None, float | None], *, whole: bool
) -> DayLengths:
    """The lengths of a complete day against the means of the baseline.

    ``whole``: whether the baseline covers a whole day.
    """
    ratios: list[float | None] = []
    for number, mean in enumerate(means):
        total, count = day.lengths[2 * number : 2 * number + 2]
        known = mean and count >= RETUNE_REQUESTS and day.hours >= RETUNE_HOURS
        ratios.append(total / count / mean if known and mean else None)
    prompts, generations = ratios
    seen = [ratio for ratio in ratios if ratio is not None and ratio > 0]
    if not seen or not whole:
        return DayLengths(prompt_tokens_ratio=prompts, generation_tokens_ratio=generations)
    moved = any(not 1 / RETUNE_RATIO < ratio < RETUNE_RATIO for ratio in seen)
    costs = day.limited_minutes >= RETUNE_LIMITED_MINUTES
    days = before.days + 1 if moved and costs else 0
    return DayLengths(
        prompt_tokens_ratio=prompts,
        generation_tokens_ratio=generations,
        moved=days >= RETUNE_DAYS,
        days=days,
    )
