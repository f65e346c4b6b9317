"""Non-negative least squares of the relative error, with Huber's weights and a level per block.

A healthy engine's speed wanders over hours, and so does the load: over a few hours an ordinary
regression takes one for the other, and its law is wrong by 30 % at the load of another time of day
(measured in docs/speed.md). Within ten minutes the speed hardly moves and the load does. So the law
is fitted as a model with a random level per block of ten minutes: generalised least squares by
quasi-demeaning (Fuller and Battese, Transformations for Estimation of Linear Models with
Nested-Error Structure, 1973).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from scipy.optimize import nnls

from driftwatch.detect.speed.load import Floats

_ROUNDS = 8
_HUBER = 1.345  # of a standard deviation: 95 % as good as least squares where errors are normal
# sd of the level of a block. An assumption, not estimated: estimated together with the law it runs
# away, for what the law explains badly looks like levels, and levels take it from the law.
WANDER_SD = 0.035
_MOST_OF_LEVEL = 0.97


def nonnegative_fit(load: Floats, itl: Floats, blocks: npt.NDArray[np.int64]) -> Floats:
    """b ≥ 0 that makes ``1 − load·b / itl`` small, but for a level per block.

    Lawson and Hanson's algorithm (scipy.optimize.nnls) on rows weighted anew in each round (P. J.
    Huber, Robust Estimation of a Location Parameter, 1964). The median of ``load·b / itl`` is 1.

    Args:
        load: (minute, feature), the first column 1.
        itl: seconds, above 0.
        blocks: which minutes share a level.
    """
    scale = np.maximum(np.abs(load).max(axis=0), 1e-12)
    rows = load / scale / itl[:, None]
    of = np.unique(blocks, return_inverse=True)[1]
    counts = np.bincount(of)
    weights = np.ones(len(itl))
    share = np.full(len(counts), 0.5)
    found = np.zeros(load.shape[1])
    for _ in range(_ROUNDS):
        mass = np.maximum(np.bincount(of, weights**2), 1e-12)
        means = np.stack([np.bincount(of, row * weights**2) / mass for row in rows.T], axis=1)
        inside = (rows - share[of, None] * means[of]) * weights[:, None]
        found, _norm = nnls(inside, (1.0 - share[of]) * weights)
        fitted = rows @ found
        middle = float(np.median(fitted))
        if middle <= 0.0:  # nothing varies within the blocks
            break
        found = found / middle
        error = 1.0 - fitted / middle
        within = np.abs(error - (np.bincount(of, error * weights**2) / mass)[of])
        noise = max(1.4826 * float(np.median(within)), 1e-9)
        share = np.minimum(
            1.0 - np.sqrt(noise**2 / (noise**2 + counts * WANDER_SD**2)), _MOST_OF_LEVEL
        )
        weights = np.sqrt(np.minimum(1.0, _HUBER * noise / np.maximum(within, 1e-12)))
    unscaled: Floats = found / scale
    return unscaled
