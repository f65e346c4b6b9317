"""Non-negative least squares of the relative error, with Huber's weights."""

from __future__ import annotations

import numpy as np
from scipy.optimize import nnls

from driftwatch.detect.speed.load import Floats

_ROUNDS = 8
_HUBER = 1.345  # of a standard deviation: 95 % as good as least squares where errors are normal


def nonnegative_fit(load: Floats, itl: Floats) -> Floats:
    """b ≥ 0 that makes ``1 − load·b / itl`` small: Huber's loss by iterated weights.

    Lawson and Hanson's algorithm (scipy.optimize.nnls) on rows weighted anew in each round
    (P. J. Huber, Robust Estimation of a Location Parameter, 1964).

    Args:
        load: (minute, feature), the first column 1.
        itl: seconds, above 0.
    """
    scale = np.maximum(np.abs(load).max(axis=0), 1e-12)
    rows = load / scale / itl[:, None]
    weights = np.ones(len(itl))
    found = np.zeros(load.shape[1])
    for _ in range(_ROUNDS):
        found, _norm = nnls(rows * weights[:, None], weights)
        error = np.abs(1.0 - rows @ found)
        bound = max(_HUBER * 1.4826 * float(np.median(error)), 1e-9)
        weights = np.sqrt(np.minimum(1.0, bound / np.maximum(error, 1e-12)))
    unscaled: Floats = found / scale
    return unscaled
