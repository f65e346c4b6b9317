"""End-to-end time at equal lengths and equal load: an analysis of covariance over hours.

A day's p50 moves with what was asked for (prompt and generation lengths) and with how full the
batch was. Within a day those move too, while the engine is the same: so the coefficients come from
the differences between the hours of a day only (the within-groups, or fixed-effects, estimator:
Frisch & Waugh 1933; Wooldridge, "Econometric analysis of cross section and panel data", 10.5), and
what is left of a day is its mean at the mean lengths and load of all days. A drift from day to day
cannot leak into the coefficients, and a demand that rises does not look like a drift.

Per hour and quantile q: y = ln e2e_q, x = (ln prompt tokens, mean and q; ln generation tokens, mean
and q; ln requests per forward pass). An hour counts that finished enough requests, of whose
end-to-end time at most 5 % was spent waiting: a queue is no creep of the engine. Of the speed at
equal load (y = mean ln speed of the hour) the analysis only says how much of a slope may be what
the load model misses at other lengths and loads.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import ndtri

from driftwatch.arrays import Floats
from driftwatch.detect.trend.memory import COVARIATES

# Of an hour, so that its p50 and its p99 are somebody's: 100, and three beyond the p99.
LEAST_FINISHED = {"e2e_p50": 100.0, "e2e_p99": 300.0}
LEAST_SPEED_MINUTES = 30.0  # of an hour
MOST_WAIT_RATIO = 0.05
# Of a day: hours that say how y moves with x.
LEAST_HOURS = 6
# What the days before count for the coefficients, a day on: 20 days' worth in all.
REMEMBERED = 0.95
# Pulls coefficients that hardly any hour speaks of towards 0, as one hour in ten that moved by 3 %
# would: what moves less within days explains nothing that a drift of 3 % is mistaken for.
_RIDGE = 0.1 * 0.03**2
# How far a day's mean may lie from all days', in standard deviations within days, or in ln units:
# beyond both the line through the hours is only guessed at.
_FURTHEST, _NEAR = 3.0, 0.15

_X = slice(2, 2 + COVARIATES)
_XX = slice(2 + COVARIATES, 2 + COVARIATES + COVARIATES**2)
_XY = slice(2 + COVARIATES + COVARIATES**2, 2 + 2 * COVARIATES + COVARIATES**2)


def ln_quantile(cells: Floats, edges: Floats, q: float) -> Floats:
    """ln of the ``q`` quantile of each cumulative histogram [n, k]; NaN where unknown.

    Between two edges the normal score of the share is linear in ln of the value: exact for what is
    log-normal, where PromQL's straight line jumps as a quantile crosses a cell.
    """
    total = cells[:, -1:]
    with np.errstate(invalid="ignore", divide="ignore"):
        # an empty tail may hold what would have been the next quarter of a request
        tail = 0.25 / total
        share = np.clip(cells / total, tail, 1 - tail)
        cell = np.argmax(share >= q, axis=1)
        rows = np.arange(len(cells))
        before = np.maximum(cell - 1, 0)
        low, high = ndtri(share[rows, before]), ndtri(share[rows, cell])
        ln_edges = np.log(edges)
        part = (ndtri(q) - low) / (high - low)
        inside = ln_edges[before] + part * (ln_edges[cell] - ln_edges[before])
        first = np.log(edges[0] * q * total[:, 0] / cells[:, 0])
        quantiles = np.where(cell == 0, first, inside)
    is_known = (total[:, 0] > 0) & (cell < len(edges) - 1) & np.isfinite(quantiles)
    return np.where(is_known, quantiles, np.nan)


def hourly(y: Floats, x: Floats) -> Floats:
    """One hour's share of the sums over a day's hours [n, HOURLY]; 0 where anything is unknown.

    ``y``: [n]; ``x``: [n, COVARIATES].
    """
    is_known = np.isfinite(y) & np.isfinite(x).all(axis=1)
    y, x = np.where(is_known, y, 0.0), np.where(is_known[:, None], x, 0.0)
    products = (x[:, :, None] * x[:, None, :]).reshape(len(y), -1)
    return np.hstack([is_known[:, None].astype(float), y[:, None], x, products, x * y[:, None]])


def daily(sums: Floats) -> tuple[Floats, Floats]:
    """Sums over a day's hours [..., HOURLY] → hours, mean y, mean x; and hours, products of x, x
    and with y about the day's means. 0 throughout of fewer than :data:`LEAST_HOURS` hours.
    """
    enough = sums[..., 0] >= LEAST_HOURS
    n = np.where(enough, sums[..., 0], 1.0)[..., None]
    y, x = sums[..., 1:2] / n, sums[..., _X] / n
    squares = sums[..., _XX] - n * (x[..., :, None] * x[..., None, :]).reshape(*x.shape[:-1], -1)
    of_day = np.concatenate([n, y, x], axis=-1)
    within = np.concatenate([n, squares, sums[..., _XY] - n * x * y], axis=-1)
    return np.where(enough[..., None], of_day, 0.0), np.where(enough[..., None], within, 0.0)


@dataclass(frozen=True, slots=True)
class Adjusted:
    """Days of one trend, at equal lengths and load."""

    values: Floats  # [n, days] what is left, NaN where the day is unknown or lies too far off
    # [n, days] what was taken off to make them equal, NaN where the day is unknown
    adjustment: Floats


def adjusted(days: Floats, within: Floats) -> Adjusted:
    """Day effects of the covariance analysis, of what :func:`daily` gave; ``within`` added up."""
    is_known = days[..., 0] > 0
    y, x = days[..., 1].astype(float), days[..., 2:].astype(float)
    of_days = np.maximum(is_known.sum(axis=1), 1)[:, None]
    off = x - ((x * is_known[..., None]).sum(axis=1) / of_days)[:, None, :]
    hours = np.maximum(within[:, 0], 1.0)
    products = within[:, 1 : 1 + COVARIATES**2].reshape(-1, COVARIATES, COVARIATES)
    ridge = np.eye(COVARIATES)[None] * (_RIDGE * hours)[:, None, None]
    with_y = within[:, 1 + COVARIATES**2 :, None]
    coefficients = np.linalg.solve(products + ridge, with_y)
    adjustment = (off @ coefficients)[..., 0]
    # what never moves leaves rounding errors, of either sign
    squares = np.maximum(products[:, range(COVARIATES), range(COVARIATES)], 0.0)
    spread = np.sqrt(squares / hours[:, None])
    furthest = np.maximum(_FURTHEST * spread, _NEAR)
    usable = is_known & (np.abs(off) <= furthest[:, None, :]).all(axis=2)
    return Adjusted(
        np.where(usable, y - adjustment, np.nan), np.where(is_known, adjustment, np.nan)
    )
