"""Whether a target creeps: the trend over its days, and when that is worth a ticket.

Theil-Sen slopes with their interval, and the Mann-Kendall test. Days are compared with days of the
same part of the week only (working days, weekends and holidays): Hirsch, Slack & Smith 1982,
"Techniques of trend analysis for monthly water quality data": the slope is the median of the slopes
of all pairs inside a season, S and its variance add up over seasons. With one season that is
Theil-Sen with Sen's interval (Sen 1968, as ``scipy.stats.theilslopes``) and the Mann-Kendall test
with ties (without the correction for continuity ``scipy.stats.kendalltau(method="asymptotic")``).
Days that resemble the day before carry less than they seem to: the variance of S grows by
Hamed & Rao's factor (1998, "A modified Mann-Kendall trend test for autocorrelated data").

A ticket needs a slope whose 95 % interval leaves 0 out, that makes 3 % or more of 14 days in the
bad direction (slower, or longer), and a small Mann-Kendall p: on the few days of a young server,
whose engine wanders by 1 % a day, the interval alone cries too often.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, timedelta

import numpy as np
from scipy.special import ndtr, ndtri

from driftwatch.arrays import Flags, Floats, Integers, Texts
from driftwatch.detect.memory import Array
from driftwatch.detect.settings import DetectSettings
from driftwatch.detect.trend.equal_lengths import adjusted
from driftwatch.detect.trend.memory import DAYS, HOLD, TRENDS

# Two-sided, 95 %.
_Z = float(ndtri(0.975))
# A lag counts as correlated beyond this (one-sided 5 %).
_Z_LAG = float(ndtri(0.95))
_MAX_LAG = 7


@dataclass(frozen=True, slots=True)
class Trend:
    """Of every row."""

    slope: Floats  # per day; NaN where no pair of days is there
    lower: Floats  # lower end of the 95 % interval of the slope
    upper: Floats  # upper end
    p_value: Floats  # Mann-Kendall, two-sided
    s: Floats  # Kendall's S, summed over seasons
    variance: Floats  # of S, with ties and the factor
    factor: Floats  # by how much autocorrelation widened the variance, >= 1
    days: Floats  # how many values


def trends(values: Floats, day: Floats, season: Integers) -> Trend:
    """Slope and test of each row [n, days]; NaN is a day that is not known.

    ``day``: rising; ``season``: only pairs of days of one season are compared.
    """
    early, late = np.triu_indices(len(season), k=1)
    same = season[early] == season[late]
    early, late = early[same], late[same]
    rise = values[:, late] - values[:, early]
    slopes = np.sort(rise / (day[late] - day[early]), axis=1)  # NaN last
    pairs = np.isfinite(slopes).sum(axis=1)
    s = np.nansum(np.sign(rise), axis=1)
    variance = _variance(values, season)
    slope = _ranked_median(slopes, pairs)
    factor = _factor(values, day, season, slope)
    variance = variance * factor
    half = _Z * np.sqrt(variance)
    # Sen's ranks, rounded and bounded as scipy.stats.theilslopes does
    last = np.maximum(pairs - 1, 0)
    high = np.minimum(np.round((pairs + half) / 2).astype(np.int64), last)
    low = np.clip(np.round((pairs - half) / 2).astype(np.int64) - 1, 0, last)
    rows = np.arange(len(values))
    none = pairs == 0
    with np.errstate(invalid="ignore", divide="ignore"):
        # one step towards 0 for continuity (Gilbert 1987, 16.4.2)
        z = (s - np.sign(s)) / np.sqrt(variance)
    # where all days are equal there is no trend, and nothing to doubt
    p_value = 2 * ndtr(-np.abs(np.where(variance > 0, z, np.where(none, np.nan, 0.0))))
    if slopes.shape[1] == 0:
        unknown = np.full(len(values), np.nan)
        lower, upper = unknown, unknown
    else:
        lower = np.where(none, np.nan, slopes[rows, low])
        upper = np.where(none, np.nan, slopes[rows, high])
    days = np.isfinite(values).sum(axis=1).astype(float)
    return Trend(slope, lower, upper, p_value, s, variance, factor, days)


def _ranked_median(ordered: Floats, counts: Integers) -> Floats:
    """Median of the first ``counts`` values of each sorted row."""
    if ordered.shape[1] == 0:
        return np.full(len(ordered), np.nan)
    rows = np.arange(len(ordered))
    low, high = np.maximum((counts - 1) // 2, 0), np.minimum(counts // 2, ordered.shape[1] - 1)
    middle = (ordered[rows, low] + ordered[rows, high]) / 2
    return np.where(counts > 0, middle, np.nan)


def _variance(values: Floats, season: Integers) -> Floats:
    """Variance of S of independent days: Σ n(n-1)(2n+5)/18, less what ties take, over seasons."""
    total = np.zeros(len(values))
    for one in np.unique(season):
        part = values[:, season == one]
        n = np.isfinite(part).sum(axis=1)
        # of each value the size of its tie, so that a tie of t adds t(t-1)(2t+5)
        tied = (part[:, :, None] == part[:, None, :]).sum(axis=2)
        lost = np.where(tied > 1, (tied - 1) * (2 * tied + 5), 0).sum(axis=1)
        total += (n * (n - 1) * (2 * n + 5) - lost) / 18
    return total


def _factor(values: Floats, day: Floats, season: Integers, slope: Floats) -> Floats:
    """Hamed & Rao's factor, from lags whose correlation is beyond chance, at least 1."""
    residual = values - slope[:, None] * day[None, :]
    for one in np.unique(season):
        part = residual[:, season == one]
        n = np.isfinite(part).sum(axis=1)
        residual[:, season == one] = part - _ranked_median(np.sort(part, axis=1), n)[:, None]
    is_known = np.isfinite(residual)
    n = is_known.sum(axis=1).astype(float)
    ranks = np.argsort(np.argsort(residual, axis=1, kind="stable"), axis=1, kind="stable")
    centred = np.where(is_known, ranks - (n[:, None] - 1) / 2, 0.0)
    power = (centred**2).sum(axis=1)
    step = int(np.min(np.diff(day))) if len(day) > 1 else 1
    added = np.zeros(len(values))
    with np.errstate(invalid="ignore", divide="ignore"):
        for lag in range(1, _MAX_LAG + 1):
            together = np.flatnonzero(np.isin(day + lag * step, day))
            later = np.searchsorted(day, day[together] + lag * step)
            both = is_known[:, together] & is_known[:, later]
            pairs = both.sum(axis=1)
            rho = (centred[:, together] * centred[:, later]).sum(axis=1) / power
            rho = rho * n / np.maximum(pairs, 1)
            counts = (n >= 3 * lag + 4) & (pairs >= 3) & (rho > _Z_LAG / np.sqrt(n))
            weight = (n - lag) * (n - lag - 1) * (n - lag - 2)
            added += np.where(counts, weight * np.minimum(rho, 1.0), 0.0)
        factor = 1 + 2 * added / (n * (n - 1) * (n - 2))
    return np.where(np.isfinite(factor), np.maximum(factor, 1.0), 1.0)


LEAST_DAYS = 7
LEAST_MINUTES = 240.0  # of a day, with a known speed at equal load
SPAN_DAYS = 14
LEAST_CHANGE = 0.03  # over SPAN_DAYS
# A week of days that wander by 1 % each slopes by 3 % easily: few days must agree better.
MOST_P_VALUE, MOST_P_VALUE_EARLY, EARLY_DAYS = 0.02, 0.01, 14
# Of what equal lengths and load took off a slope, how much may be wrong: on real client traffic
# whose mix drifts, up to a third is (docs/methods/trends.md).
UNEXPLAINED_RATIO = 1 / 3
_EPOCH = date(1970, 1, 1)


def part_of_week(day: int, settings: DetectSettings) -> int:
    """0 for a working day (since 1970-01-01, UTC), 1 for a Saturday, a Sunday or a holiday."""
    on = _EPOCH + timedelta(days=day)
    return int(on.weekday() >= 5 or on in settings.holidays)


def trend_columns(arrays: dict[str, Array], today: int, settings: DetectSettings) -> Floats:
    """The held columns [n, len(HOURLY_COLUMNS)] with the trends up to the day before ``today``."""
    day = np.arange(today - DAYS, today, dtype=float)
    season = np.array([part_of_week(int(d), settings) for d in day])
    hourly = arrays["held"].copy()
    reference = arrays["speed_reference"]
    latest = _latest(reference)
    usable = (arrays["speed_minutes"] >= LEAST_MINUTES) & (reference == latest[:, None])
    worse = is_known = np.zeros(len(hourly), dtype=bool)
    for i, name in enumerate(TRENDS):
        level = adjusted(arrays["equal_lengths"][:, :, i], arrays["within_days"][:, i])
        removed = np.abs(np.nan_to_num(trends(level.adjustment, day, season).slope))
        if name == "speed":
            # the load model has the load in it already: only what it may miss is of interest
            values, unexplained = np.where(usable, arrays["ln_speed"], np.nan), removed
        else:
            values, unexplained = level.values, removed * UNEXPLAINED_RATIO
        bad, there = _write(hourly, name, trends(values, day, season), unexplained)
        worse, is_known = worse | bad, is_known | there
    hourly[:, HOLD["latency_creeps"]] = np.where(is_known, worse, np.nan)
    return hourly


def _latest(reference: Integers) -> Integers:
    """What the speed of the latest day with one was compared with; -1 where there is none."""
    there = reference >= 0
    last = DAYS - 1 - np.argmax(there[:, ::-1], axis=1)
    latest: Integers = np.where(there.any(axis=1), reference[np.arange(len(reference)), last], -2)
    return latest


def _write(hourly: Floats, name: str, trend: Trend, unexplained: Floats) -> tuple[Flags, Flags]:
    """Write one trend's columns (``unexplained``: per day); bad enough, known."""
    bad = -1 if name == "speed" else 1
    is_known = (trend.days >= LEAST_DAYS) & np.isfinite(trend.slope) & np.isfinite(trend.p_value)
    lower, upper = trend.lower - unexplained, trend.upper + unexplained
    for part, per_day in (("", trend.slope), ("lower_", lower), ("upper_", upper)):
        column = HOLD[f"{name}_slope_14d_{part}ratio"]
        hourly[:, column] = np.where(is_known, per_day * SPAN_DAYS, np.nan)
    away = upper < 0 if bad < 0 else lower > 0
    worse = is_known & away & (bad * trend.slope * SPAN_DAYS >= LEAST_CHANGE)
    most = np.where(trend.days < EARLY_DAYS, MOST_P_VALUE_EARLY, MOST_P_VALUE)
    return worse & (trend.p_value <= most), is_known


def reasons(arrays: Mapping[str, Array]) -> Texts:
    """Why a target's trends are unknown, in words [n]; None where all are known."""
    speed = (arrays["speed_minutes"] >= LEAST_MINUTES) & (
        arrays["speed_reference"] == _latest(arrays["speed_reference"])[:, None]
    )
    days = {
        name: (arrays["equal_lengths"][:, :, i, 0] > 0).sum(axis=1) for i, name in enumerate(TRENDS)
    } | {"speed": speed.sum(axis=1)}
    # a number for each way of being unknown: there are few, however many targets
    way = np.zeros(len(speed), dtype=np.int64)
    for name, count in days.items():
        is_known = np.isfinite(arrays["held"][:, HOLD[f"{name}_slope_14d_ratio"]])
        way = way * _WAYS + np.where(is_known, _WAYS - 1, count)
    ways, of = np.unique(way, return_inverse=True)
    texts: Texts = np.array([_reasons(int(one), tuple(days)) for one in ways], dtype=object)
    return texts[of]


_WAYS = DAYS + 2  # a count of days, or known


def _reasons(way: int, names: tuple[str, ...]) -> str | None:
    texts = []
    for name in reversed(names):
        way, count = divmod(way, _WAYS)
        if count < _WAYS - 1:
            texts.append(_reason(name, count))
    return "; ".join(reversed(texts)) or None


def _reason(name: str, days: int) -> str:
    what = (
        "speed at equal load"
        if name == "speed"
        else f"{name.removeprefix('e2e_')} end-to-end at equal lengths"
    )
    if days < LEAST_DAYS:
        return f"{what}: {days} of {LEAST_DAYS} days"
    return f"{what}: lengths or load of the days lie too far apart"
