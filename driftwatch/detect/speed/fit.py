"""How a step-time model is fitted, and for which kinds of work it then answers.

Fit: non-negative least squares of the relative error, with Huber's weights and a level per block.
A healthy engine's speed wanders over hours, and so does the load: over a few hours an ordinary
regression takes one for the other. Within ten minutes the speed hardly moves and the load does. So
it is a model with a random level per block of ten minutes: generalised least squares by
quasi-demeaning (Fuller and Battese, Transformations for Estimation of Linear Models with
Nested-Error Structure, 1973).

Composition: how many requests, KV tokens and prefill tokens a pass has may leave the baseline's
range by far (a slow engine fills its batch), and the model must still answer. What must not change
is the *kind* of work. Where a token comes with ten times the prefill that any token of the baseline
came with, or every other token is a first one, passes that only prefill are missing from the page
and r is wrong by tens of percent. No arrival rate and no slow engine does that: prefill per
generated token and the share of first tokens are the requests' own.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
from scipy.optimize import nnls

from driftwatch.arrays import Codes, Flags, Floats, Integers
from driftwatch.detect.speed.load import (
    COMPLETE,
    FIRST,
    IDLER,
    ITL,
    OVERLAP,
    PREFILL,
    PREFILLED,
    QUEUED,
    REQUESTS,
    SHORTER,
    STANDING,
    UNFILLED,
)

_ROUNDS = 8
_HUBER = 1.345  # of a standard deviation: 95 % as good as least squares where errors are normal
# sd of the level of a block. An assumption, not estimated: estimated with the model it runs away,
# for what the model explains badly looks like levels, and levels take it from the model.
WANDER_SD = 0.035
_MOST_OF_LEVEL = 0.97


def nonnegative_fit(load: Floats, itl: Floats, blocks: Integers) -> Floats:
    """b ≥ 0 that makes ``1 − load·b / itl`` small, but for a level per block of minutes.

    Lawson and Hanson's algorithm (scipy.optimize.nnls) on rows weighted anew in each round (Huber
    1964). ``load``: (minute, feature), the first column 1. The median of ``load·b / itl`` is 1.
    """
    scale = np.maximum(np.abs(load).max(axis=0), 1e-12)
    rows = load / scale / itl[:, None]
    of = np.unique(blocks, return_inverse=True)[1]
    counts = np.bincount(of)
    weights = np.ones(len(itl))
    share = np.full(len(counts), 0.5)
    coefficients = np.zeros(load.shape[1])
    for _ in range(_ROUNDS):
        mass = np.maximum(np.bincount(of, weights**2), 1e-12)
        means = np.stack([np.bincount(of, row * weights**2) / mass for row in rows.T], axis=1)
        inside = (rows - share[of, None] * means[of]) * weights[:, None]
        coefficients, _norm = nnls(inside, (1.0 - share[of]) * weights)
        fitted = rows @ coefficients
        middle = float(np.median(fitted))
        if middle <= 0.0:  # nothing varies within the blocks
            break
        coefficients = coefficients / middle
        error = 1.0 - fitted / middle
        within = np.abs(error - (np.bincount(of, error * weights**2) / mass)[of])
        noise = max(1.4826 * float(np.median(within)), 1e-9)
        share = np.minimum(
            1.0 - np.sqrt(noise**2 / (noise**2 + counts * WANDER_SD**2)), _MOST_OF_LEVEL
        )
        weights = np.sqrt(np.minimum(1.0, _HUBER * noise / np.maximum(within, 1e-12)))
    unscaled: Floats = coefficients / scale
    return unscaled


# Of each part of a composition the reason where it is beyond the baseline.
_REASONS = np.array([PREFILLED, SHORTER, IDLER], dtype=np.int8)
Ranges = tuple[float, float, float]
EVERYTHING: Ranges = (math.inf, math.inf, math.inf)
_QUANTILE = 0.99
_STRATA = 8
_PAGES = math.log(0.85)  # the smallest loss that pages

# Calibrated on 19 simulated services (their traffic, engines and settings drawn at random), minutes
# in which nothing was slow: inside the range 5 % of them had ln r below -0.09, up to one doubling
# beyond it -0.14, up to two -0.23, up to three -0.32, further out -0.59.
SLACK_PER_DOUBLING = 0.10
MOST_DOUBLINGS = 1.0
# Of the wait beyond a pass. Calibrated on 47 pools of mixed fleets, healthy minutes: 5 % have ln r
# below -0.08 where requests wait less than a pass, -0.11 up to two, -0.16 up to four, -0.26 up to
# eight; in one server of ten below -0.15, -0.24, -0.35 and -0.40.
BUNCHED_PER_DOUBLING = 0.20


def composition(values: npt.NDArray[np.floating]) -> Floats:
    """Prefill per generated token, share of first tokens, seconds per busy second: (..., 3)."""
    wide = np.asarray(values, dtype=np.float64)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.stack(
            (
                wide[..., PREFILL] / wide[..., REQUESTS],
                wide[..., FIRST],
                1.0 / wide[..., OVERLAP],
            ),
            axis=-1,
        )


def ranges_of(values: npt.NDArray[np.floating], ln_speed: Floats) -> Ranges:
    """Up to where a fit knows the speed of such work, each part by itself: the 99 % quantile.

    It ends before eighths of which one minute in five reads as a loss that pages: there the fit
    cannot tell its own minutes from slow ones. ``ln_speed``: of these minutes under the fit.
    """
    prefill, first, idle = (_range_of(part, ln_speed) for part in composition(values).T)
    return prefill, first, idle


def _range_of(part: Floats, ln_speed: Floats) -> float:
    is_finite = np.isfinite(part)
    part, ln_speed = part[is_finite], ln_speed[is_finite]
    if not len(part):
        return math.inf
    shares = np.linspace(0.0, 1.0, _STRATA + 1)[1:]
    edges = np.unique(np.quantile(part, shares, method="inverted_cdf"))
    last = len(edges) - 1
    for upper in range(last, -1, -1):
        stratum = part <= edges[upper]
        if upper > 0:
            stratum &= part > edges[upper - 1]
        if np.quantile(ln_speed[stratum], 0.2) >= _PAGES:
            break
    else:
        upper = last  # the least of it reads so too: noise, whatever the work
    if upper == last:
        return float(np.quantile(part, _QUANTILE))
    # nothing beyond it is known
    return float(edges[upper]) * math.exp2(-MOST_DOUBLINGS)


def inside(values: npt.NDArray[np.floating], ranges: Ranges) -> Flags:
    """Which minutes (minute, 12) are of work whose speed is known."""
    why = novelty(values[None], np.array([ranges]))[1][0]
    is_inside: Flags = why == COMPLETE
    return is_inside


def novelty(values: npt.NDArray[np.floating], ranges: Floats) -> tuple[Floats, Codes]:
    """How far the composition of minutes (target, minute, 12) is beyond ``ranges`` (target, 3).

    Returns: by how much ln r may be wrong for it, and why r is unknown, index into WHY_NOT.
    """
    most = np.where(ranges > 0, ranges, math.inf)
    with np.errstate(invalid="ignore", divide="ignore"):
        doublings = np.maximum(np.log2(composition(values) / most[:, None, :]), 0.0)
    doublings = np.nan_to_num(doublings)
    which = doublings.argmax(axis=-1)
    far = doublings.max(axis=-1)
    slack: Floats = np.log1p(SLACK_PER_DOUBLING * far)
    return slack, np.where(far > MOST_DOUBLINGS, _REASONS[which], np.int8(COMPLETE))


def bunched(
    values: npt.NDArray[np.floating],
    prefill_seconds: Floats | float = 0.0,
    ln_speed: Floats | float = 0.0,
) -> Floats:
    """By how much ln r may be too low where requests come together, in ln.

    Where a request waits for several passes, prompts are computed side by side in few long ones; in
    a standing queue all are alike again. Where passes do not fill the minute the others only
    prefilled. ``prefill_seconds``: of the model, per token; 0 leaves such passes out.
    """
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        doublings = np.log2(np.maximum(values[..., QUEUED], 1.0))
        prefill_share = prefill_seconds * values[..., PREFILL] / values[..., ITL]
        unseen = np.log1p(
            prefill_share * np.maximum(1.0 - values[..., OVERLAP], 0.0) / np.exp(ln_speed)
        )
    unseen = np.where(values[..., STANDING] == UNFILLED, np.nan_to_num(unseen), 0.0)
    alike = values[..., STANDING] == 1.0
    waits = np.log1p(BUNCHED_PER_DOUBLING * np.where(alike, 0.0, np.nan_to_num(doublings)))
    slack: Floats = waits + unseen
    return slack
