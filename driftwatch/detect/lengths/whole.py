"""Whether all of a distribution moved, or one part of it.

A burst of one client is as far from the twins as a server whose lengths all changed, but it moves
one part of the distribution. Where all parts moved the same way, less is needed to tell of it. On
ServeGen's days 1-7 (10 servers, 2.9 requests a second each, 4.7 server-months; JS x sqrt(n) of ten
minutes above 5.6) 40 episodes were of any kind and 3 of this one, which lengths x1.3 pass as often.
"""

from __future__ import annotations

import math

import numpy as np

from driftwatch.detect.distributions.cells import Floats, cell_bounds, shares
from driftwatch.detect.lengths.layouts import Bools, known_alike

_PARTS: Floats = np.array([0.2, 0.35, 0.5, 0.65, 0.8])
# What each part must have moved by, where ten minutes are compared.
WHOLE = math.log(1.1)
# What a score counts for where one part of the distribution moved.
PART = 0.7


def weights(whole: Bools) -> Floats:
    """What scores count for, by whether all of the distribution moved."""
    found: Floats = np.where(whole, 1.0, PART)
    return found


def whole_moved(counts: Floats, twins: Floats, grid: Floats, least: float) -> Bools:
    """Whether every part of a distribution has moved, all the same way.

    Args:
        counts: cumulative [n, edges]; NaN where an edge is not known.
        twins: the same.
        grid: [edges].
        least: by how much, in ln.
    """
    found = np.zeros(len(counts), dtype=bool)
    for rows, common in known_alike(~(np.isnan(counts) | np.isnan(twins))):
        edges = grid[common]
        if len(edges) < 2:
            continue
        moved = _ln_quantiles(counts[np.ix_(rows, common)], edges)
        moved -= _ln_quantiles(twins[np.ix_(rows, common)], edges)
        # a side without requests has no quantiles
        moved[(counts[rows, -1] <= 0) | (twins[rows, -1] <= 0)] = 0.0
        found[rows] = (moved >= least).all(axis=1) | (moved <= -least).all(axis=1)
    return found


def _ln_quantiles(cumulative: Floats, edges: Floats) -> Floats:
    """ln of the quantiles at :data:`_PARTS` [n, parts], linear in ln inside a cell."""
    below = np.cumsum(shares(np.maximum(np.diff(cumulative, axis=1, prepend=0.0), 0.0)), axis=1)
    lower, upper = (np.log(x) for x in cell_bounds(edges))
    cell = np.minimum((below[:, None, :] < _PARTS[:, None]).sum(axis=2), len(edges) - 1)
    until = np.take_along_axis(below, cell, axis=1)
    since = np.where(cell > 0, np.take_along_axis(below, np.maximum(cell - 1, 0), axis=1), 0.0)
    with np.errstate(invalid="ignore", divide="ignore"):
        inside = np.clip(np.nan_to_num((_PARTS - since) / (until - since)), 0.0, 1.0)
    found: Floats = lower[cell] + inside * (upper - lower)[cell]
    return found
