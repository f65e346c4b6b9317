"""Slow drift in daily values: Theil-Sen slopes with their interval, and the Mann-Kendall test.

Days are compared with days of the same part of the week only (working days, weekends and holidays):
Hirsch, Slack & Smith 1982, "Techniques of trend analysis for monthly water quality data": the slope
is the median of the slopes of all pairs inside a season, S and its variance add up over seasons.
With one season that is Theil-Sen with Sen's interval (Sen 1968, as ``scipy.stats.theilslopes``)
and the Mann-Kendall test with ties (Mann 1945, Kendall 1975; without the correction for
continuity S has the p of ``scipy.stats.kendalltau(method="asymptotic")``).

Days that resemble the day before carry less than they seem to: the variance of S grows by
Hamed & Rao's factor (1998, "A modified Mann-Kendall trend test for autocorrelated data"), from
the ranks of what the slope leaves, and never shrinks.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.special import ndtr, ndtri

Floats = npt.NDArray[np.float64]

# Two-sided, 95 %.
_Z = float(ndtri(0.975))
# A lag counts as correlated beyond this (one-sided 5 %).
_Z_LAG = float(ndtri(0.95))
_MAX_LAG = 7
# Rows that are worked on at a time: 28 days have up to 378 pairs.
_BLOCK = 1024


@dataclass(frozen=True, slots=True)
class Trend:
    """Of every row.

    Attributes:
        slope: per day; NaN where no pair of days is there.
        lower: lower end of the 95 % interval of the slope.
        upper: upper end.
        p_value: Mann-Kendall, two-sided.
        s: Kendall's S, summed over seasons.
        variance: of S, with ties and the factor.
        factor: by how much autocorrelation widened the variance, >= 1.
        days: how many values.
    """

    slope: Floats
    lower: Floats
    upper: Floats
    p_value: Floats
    s: Floats
    variance: Floats
    factor: Floats
    days: Floats


def trends(values: Floats, day: Floats, season: npt.NDArray[np.int64]) -> Trend:
    """Slope and test of each row.

    Args:
        values: [n, days]; NaN is a day that is not known.
        day: [days], rising: the day of each column.
        season: [days]: only pairs of one season are compared.
    """
    early, late = _pairs(season)
    found = [
        _block(values[first : first + _BLOCK], day, season, early, late)
        for first in range(0, len(values), _BLOCK)
    ]
    if not found:
        return Trend(*(np.zeros(0) for _ in range(8)))
    return Trend(*(np.concatenate(parts) for parts in zip(*found, strict=True)))


def _pairs(season: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    early, late = np.triu_indices(len(season), k=1)
    same = season[early] == season[late]
    return early[same], late[same]


def _block(
    values: Floats,
    day: Floats,
    season: npt.NDArray[np.int64],
    early: npt.NDArray[np.intp],
    late: npt.NDArray[np.intp],
) -> tuple[Floats, ...]:
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
    return slope, lower, upper, p_value, s, variance, factor, days


def _ranked_median(ordered: Floats, counts: npt.NDArray[np.int64]) -> Floats:
    """Median of the first ``counts`` values of each sorted row."""
    if ordered.shape[1] == 0:
        return np.full(len(ordered), np.nan)
    rows = np.arange(len(ordered))
    low, high = np.maximum((counts - 1) // 2, 0), np.minimum(counts // 2, ordered.shape[1] - 1)
    middle = (ordered[rows, low] + ordered[rows, high]) / 2
    return np.where(counts > 0, middle, np.nan)


def _variance(values: Floats, season: npt.NDArray[np.int64]) -> Floats:
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


def _factor(values: Floats, day: Floats, season: npt.NDArray[np.int64], slope: Floats) -> Floats:
    """Hamed & Rao's factor, from lags whose correlation is beyond chance, at least 1."""
    left = values - slope[:, None] * day[None, :]
    for one in np.unique(season):
        part = left[:, season == one]
        n = np.isfinite(part).sum(axis=1)
        left[:, season == one] = part - _ranked_median(np.sort(part, axis=1), n)[:, None]
    known = np.isfinite(left)
    n = known.sum(axis=1).astype(float)
    ranks = np.argsort(np.argsort(left, axis=1, kind="stable"), axis=1, kind="stable")
    centred = np.where(known, ranks - (n[:, None] - 1) / 2, 0.0)
    power = (centred**2).sum(axis=1)
    step = int(np.min(np.diff(day))) if len(day) > 1 else 1
    added = np.zeros(len(values))
    with np.errstate(invalid="ignore", divide="ignore"):
        for lag in range(1, _MAX_LAG + 1):
            together = np.flatnonzero(np.isin(day + lag * step, day))
            later = np.searchsorted(day, day[together] + lag * step)
            both = known[:, together] & known[:, later]
            pairs = both.sum(axis=1)
            rho = (centred[:, together] * centred[:, later]).sum(axis=1) / power
            rho = rho * n / np.maximum(pairs, 1)
            counts = (n >= 3 * lag + 4) & (pairs >= 3) & (rho > _Z_LAG / np.sqrt(n))
            weight = (n - lag) * (n - lag - 1) * (n - lag - 2)
            added += np.where(counts, weight * np.minimum(rho, 1.0), 0.0)
        factor = 1 + 2 * added / (n * (n - 1) * (n - 2))
    return np.where(np.isfinite(factor), np.maximum(factor, 1.0), 1.0)
