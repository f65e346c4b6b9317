"""End-to-end time at equal lengths and equal load: an analysis of covariance over hours.

A day's p50 moves with what was asked for (prompt and generation lengths) and with how full the
batch was. Within a day those move too, while the engine is the same: so the coefficients come from
the differences between the hours of a day only (the within-groups, or fixed-effects, estimator:
Frisch & Waugh 1933; Wooldridge, "Econometric analysis of cross section and panel data", 10.5), and
what is left of a day is its mean at the mean lengths and load of all days. A drift from day to day
cannot leak into the coefficients, and a demand that rises cannot look like a drift.

Per hour and quantile q: y = ln e2e_q, x = (ln mean prompt tokens, ln generation tokens_q,
ln requests per forward pass). An hour counts that finished enough requests, of whose end-to-end
time at most 5 % was spent waiting: a queue is no creep of the engine.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from driftwatch.detect.trend.memory import COVARIATES, DAYS, HOURLY, QUANTILES, STATISTICS

Floats = npt.NDArray[np.float64]

# Of an hour, so that its p50 and its p99 are somebody's: 100, and three beyond the p99.
LEAST_FINISHED = (100.0, 300.0)
MOST_WAIT_RATIO = 0.05
# Of a day: hours that say how y moves with x.
LEAST_HOURS = 6
# Pulls coefficients that hardly any hour speaks of towards 0: a covariate that moves by less than
# 3 % (sd) within days explains nothing that a drift of 3 % would be mistaken for.
_RIDGE = 0.03**2
# By how many of its own within-day standard deviations a day's mean may lie off all days': beyond
# it the line through the hours is only guessed at.
_FURTHEST = 2.0
# Hours next to each other err alike (the engine's own wander lasts about as long): three hours
# tell as much as one would alone.
_REPEATED = 3.0

_X = slice(2, 2 + COVARIATES)
_XX = slice(2 + COVARIATES, 2 + COVARIATES + COVARIATES**2)
_XY = slice(2 + COVARIATES + COVARIATES**2, 2 + 2 * COVARIATES + COVARIATES**2)


def hourly(y: Floats, x: Floats) -> Floats:
    """One hour's share of the sums over a day's hours [n, HOURLY]; 0 where anything is unknown.

    Args:
        y: [n].
        x: [n, COVARIATES].
    """
    known = np.isfinite(y) & np.isfinite(x).all(axis=1)
    y, x = np.where(known, y, 0.0), np.where(known[:, None], x, 0.0)
    found = np.zeros((len(y), HOURLY))
    found[:, 0], found[:, 1], found[:, _X] = known, y, x
    found[:, _XX] = (x[:, :, None] * x[:, None, :]).reshape(len(y), -1)
    found[:, _XY] = x * y[:, None]
    return found


def daily(sums: Floats) -> Floats:
    """Sums over a day's hours → count, means, and products about the means [..., STATISTICS].

    A day with fewer than :data:`LEAST_HOURS` hours is 0 throughout.
    """
    n = sums[..., 0]
    enough = n >= LEAST_HOURS
    count = np.where(enough, n, 1.0)
    y, x = sums[..., 1] / count, sums[..., _X] / count[..., None]
    found = np.zeros((*sums.shape[:-1], STATISTICS))
    found[..., 0], found[..., 1], found[..., _X] = n, y, x
    outer = (x[..., :, None] * x[..., None, :]).reshape(*x.shape[:-1], -1)
    found[..., _XX] = sums[..., _XX] - n[..., None] * outer
    found[..., _XY] = sums[..., _XY] - n[..., None] * x * y[..., None]
    found[~enough] = 0.0
    return found


@dataclass(frozen=True, slots=True)
class Adjusted:
    """Days of one quantile, at equal lengths and load.

    Attributes:
        values: [n, days] ln of the quantile, NaN where the day is unknown or cannot be compared.
        apart: [n] whether some days' lengths or load lie too far off to be compared.
        slope_error: [n] standard error that the coefficients add to a slope over these days, per
            day.
    """

    values: Floats
    apart: npt.NDArray[np.bool_]
    slope_error: Floats


def adjusted(statistics: Floats, day: Floats) -> Adjusted:
    """Day effects of the covariance analysis.

    Args:
        statistics: [n, DAYS, STATISTICS] of :func:`daily`, one quantile's.
        day: [DAYS], rising.
    """
    count = statistics[..., 0].astype(float)
    known = count > 0
    y = statistics[..., 1].astype(float)
    x = statistics[..., _X].astype(float)
    weight = known.astype(float)
    of_days = np.maximum(weight.sum(axis=1), 1.0)
    mean = (x * weight[..., None]).sum(axis=1) / of_days[:, None]
    shape = (len(statistics), COVARIATES, COVARIATES)
    products = statistics[..., _XX].astype(float).sum(axis=1).reshape(shape)
    hours = np.maximum(count.sum(axis=1), 1.0)
    # the ridge counts as one hour in ten that moved by 3 %
    eye = np.eye(COVARIATES)[None] * (_RIDGE * hours * 0.1)[:, None, None]
    inverse = np.linalg.inv(products + eye)
    slopes = inverse @ statistics[..., _XY].astype(float).sum(axis=1)[..., None]
    off = x - mean[:, None, :]
    values = y - (off @ slopes)[..., 0]
    within = np.sqrt(products[:, range(COVARIATES), range(COVARIATES)] / hours[:, None])
    far = (np.abs(off) > np.maximum(_FURTHEST * within, 0.05)[:, None, :]).any(axis=2) & known
    values = np.where(known & ~far, values, np.nan)
    usable = np.isfinite(values)
    return Adjusted(values, (far).sum(axis=1) > 0, _slope_error(usable, off, inverse, day, values))


def _slope_error(
    usable: npt.NDArray[np.bool_], off: Floats, inverse: Floats, day: Floats, values: Floats
) -> Floats:
    """What uncertain coefficients add to the slope: that of the covariates' own trend."""
    n = np.maximum(usable.sum(axis=1), 1)
    at = np.where(usable, day[None, :], 0.0)
    middle = at.sum(axis=1) / n
    centred = np.where(usable, day[None, :] - middle[:, None], 0.0)
    spread = np.maximum((centred**2).sum(axis=1), 1e-12)
    rise = (centred[..., None] * np.where(usable[..., None], off, 0.0)).sum(axis=1)
    rise = rise / spread[:, None]
    residual = np.where(usable, values - np.nanmedian(_or_zero(values), axis=1)[:, None], np.nan)
    # a day's effect errs as its hours do, over the square root of how many tell something
    variance = np.nanmedian(_or_zero(residual) ** 2, axis=1) / 0.455 * (24 / _REPEATED)
    quadratic = (rise[:, None, :] @ inverse @ rise[:, :, None])[:, 0, 0]
    found: Floats = np.sqrt(np.maximum(quadratic * variance * _REPEATED, 0.0))
    return found


def _or_zero(values: Floats) -> Floats:
    """Rows without any value as zeros, so that medians need no warning."""
    return np.where(np.isfinite(values).any(axis=1, keepdims=True), values, 0.0)


__all__ = ["DAYS", "LEAST_FINISHED", "MOST_WAIT_RATIO", "QUANTILES", "adjusted", "daily", "hourly"]
