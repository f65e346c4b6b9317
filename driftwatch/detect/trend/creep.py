"""Whether a target creeps: the trend over its days, and when that is worth a ticket.

A ticket needs a slope whose 95 % interval leaves 0 out, that makes 3 % or more of 14 days in the
bad direction (slower, or longer), and a small Mann-Kendall p: on the few days of a young server,
whose engine wanders by 1 % a day, the interval alone cries too often. docs/trends.md has the rates.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date, timedelta

import numpy as np
import numpy.typing as npt
import polars as pl

from driftwatch.detect.settings import DetectSettings
from driftwatch.detect.trend.equal_lengths import adjusted
from driftwatch.detect.trend.memory import DAYS, HOLD, TRENDS, Array
from driftwatch.detect.trend.slopes import Trend, trends

Floats = npt.NDArray[np.float64]

LEAST_DAYS = 7
LEAST_MINUTES = 240.0  # of a day, with a known speed at equal load
SPAN_DAYS = 14
LEAST_CHANGE = 0.03  # over SPAN_DAYS
# A week of days that wander by 1 % each slopes by 3 % easily: few days must agree better.
MOST_P_VALUE, MOST_P_VALUE_EARLY, EARLY_DAYS = 0.02, 0.01, 14
# Of what equal lengths and load took off a slope, how much may be wrong: on real client traffic
# whose mix drifts, up to a third is (docs/trends.md).
UNEXPLAINED_RATIO = 1 / 3
_EPOCH = date(1970, 1, 1)


def part_of_week(day: int, settings: DetectSettings) -> int:
    """0 for a working day, 1 for a Saturday, a Sunday or a holiday.

    Args:
        day: since 1970-01-01, UTC.
        settings: has the holidays.
    """
    on = _EPOCH + timedelta(days=day)
    return int(on.weekday() >= 5 or on in settings.holidays)


def crept(arrays: dict[str, Array], today: int, settings: DetectSettings) -> Floats:
    """What is said of trends from now on [n, len(HELD)]; the other columns as they were.

    Args:
        arrays: of the memory; the last of the days is the one before ``today``.
        today: since 1970-01-01, UTC.
        settings: holidays.
    """
    day = np.arange(today - DAYS, today, dtype=float)
    season = np.array([part_of_week(int(d), settings) for d in day])
    held = arrays["held"].copy()
    reference = arrays["speed_reference"]
    latest = _latest(reference)
    usable = (arrays["speed_minutes"] >= LEAST_MINUTES) & (reference == latest[:, None])
    worse = known = np.zeros(len(held), dtype=bool)
    for i, name in enumerate(TRENDS):
        level = adjusted(arrays["equal_lengths"][:, :, i], arrays["within_days"][:, i])
        taken = np.abs(np.nan_to_num(trends(level.adjustment, day, season).slope))
        if name == "speed":
            # the load model has the load in it already: only what it may miss is of interest
            values, unexplained = np.where(usable, arrays["ln_speed"], np.nan), taken
        else:
            values, unexplained = level.values, taken * UNEXPLAINED_RATIO
        bad, there = _said(held, name, trends(values, day, season), unexplained)
        worse, known = worse | bad, known | there
    held[:, HOLD["latency_creeps"]] = np.where(known, worse, np.nan)
    return held


def _latest(reference: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """What the speed of the latest day with one was compared with; -1 where there is none."""
    there = reference >= 0
    last = DAYS - 1 - np.argmax(there[:, ::-1], axis=1)
    found: npt.NDArray[np.int64] = np.where(
        there.any(axis=1), reference[np.arange(len(reference)), last], -2
    )
    return found


def _said(
    held: Floats, name: str, trend: Trend, unexplained: Floats
) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
    """Write one trend's columns; whether it is bad enough, and whether it is known.

    Args:
        held: to write into.
        name: of the trend.
        trend: of every target.
        unexplained: by how much the slope may be that of lengths and load, per day.
    """
    bad = -1 if name == "speed" else 1
    known = (trend.days >= LEAST_DAYS) & np.isfinite(trend.slope) & np.isfinite(trend.p_value)
    lower, upper = trend.lower - unexplained, trend.upper + unexplained
    for part, per_day in (("", trend.slope), ("lower_", lower), ("upper_", upper)):
        column = HOLD[f"{name}_slope_14d_{part}ratio"]
        held[:, column] = np.where(known, per_day * SPAN_DAYS, np.nan)
    held[:, HOLD[f"{name}_trend_p_value"]] = np.where(known, trend.p_value, np.nan)
    away = upper < 0 if bad < 0 else lower > 0
    worse = known & away & (bad * trend.slope * SPAN_DAYS >= LEAST_CHANGE)
    most = np.where(trend.days < EARLY_DAYS, MOST_P_VALUE_EARLY, MOST_P_VALUE)
    return worse & (trend.p_value <= most), known


def reasons(arrays: Mapping[str, Array]) -> pl.Series:
    """Why a target's trends are unknown, in words [n]; NULL where all are known."""
    speed = (arrays["speed_minutes"] >= LEAST_MINUTES) & (
        arrays["speed_reference"] == _latest(arrays["speed_reference"])[:, None]
    )
    days = {
        name: (arrays["equal_lengths"][:, :, i, 0] > 0).sum(axis=1) for i, name in enumerate(TRENDS)
    } | {"speed": speed.sum(axis=1)}
    # a number for each way of being unknown: there are few, however many targets
    way = np.zeros(len(speed), dtype=np.int64)
    for name, count in days.items():
        known = np.isfinite(arrays["held"][:, HOLD[f"{name}_slope_14d_ratio"]])
        way = way * _WAYS + np.where(known, _WAYS - 1, count)
    ways, of = np.unique(way, return_inverse=True)
    texts = [_reasons(int(one), tuple(days)) for one in ways]
    return pl.Series("reason", texts, dtype=pl.String).gather(of)


_WAYS = DAYS + 2  # a count of days, or known


def _reasons(way: int, names: tuple[str, ...]) -> str | None:
    said = []
    for name in reversed(names):
        way, count = divmod(way, _WAYS)
        if count < _WAYS - 1:
            said.append(_reason(name, count))
    return "; ".join(reversed(said)) or None


def _reason(name: str, days: int) -> str:
    what = (
        "speed at equal load"
        if name == "speed"
        else f"{name.removeprefix('e2e_')} end-to-end at equal lengths"
    )
    if days < LEAST_DAYS:
        return f"{what}: {days} of {LEAST_DAYS} days"
    return f"{what}: lengths or load of the days lie too far apart"
