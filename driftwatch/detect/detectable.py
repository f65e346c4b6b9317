"""The smallest shift that a detector would show, found in a server's own past.

"No drift" means little where only a shift of x3 would be seen. A shift is spliced into windows
that were measured: their lengths times a factor, scored as if they had just come in.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.interpolate import PchipInterpolator

from driftwatch.detect.distributions.cells import LOWEST_TOKENS, Floats, cell_bounds

# A shift counts as detectable if it shows in so many of the windows.
POWER_RATIO = 0.95


def smallest_factor(shown: Floats, factors: Sequence[float]) -> Floats:
    """The smallest factor from which on every one shows.

    A factor that shows while a larger one does not was luck of the buckets: mass that happens to
    lie just below an edge.

    Args:
        shown: [..., f], the share of windows in which each factor showed; NaN is unknown.
        factors: [f], ascending.

    Returns:
        [...]; NaN where even the largest shows in fewer than :data:`POWER_RATIO` of the windows.

    >>> smallest_factor(np.array([0.2, 0.96, 0.9, 0.97, 1.0]), (1.05, 1.1, 1.2, 1.5, 2.0)).item()
    1.5
    """
    with np.errstate(invalid="ignore"):
        enough = shown >= POWER_RATIO
    onward = np.logical_and.accumulate(enough[..., ::-1], axis=-1)[..., ::-1]
    first = np.argmax(onward, axis=-1)
    return np.where(onward.any(axis=-1), np.asarray(factors)[first], np.nan)


def rescaling(
    edges: Floats, ratio: float, lengths: Floats, lowest: float = LOWEST_TOKENS
) -> Floats:
    """Where the mass of each cell goes when every value is multiplied by ``ratio``.

    Inside a cell values are placed as a smooth distribution through all the edges would have them
    (monotone cubic interpolation of the CDF over ln values: Fritsch & Carlson 1980). Spread evenly
    instead, a narrow distribution would seem to cross an edge far too early. What buckets cannot
    show stays unknown: lengths that are all alike cross their edge at once, sooner or later.

    Args:
        edges: [k], upper edges, ``inf`` last.
        ratio: > 0.
        lengths: [k], counts by cell of all that is known of these lengths, some.
        lowest: see :func:`driftwatch.detect.distributions.cells.cell_bounds`; no value falls
            below it.

    Returns:
        [k, k]; row i holds the shares of cell i that come to lie in each cell. Rows add up to 1.

    >>> lengths = np.array([0.0, 50.0, 50.0, 0.0])
    >>> rescaling(np.array([10.0, 20.0, 40.0, np.inf]), 1.5, lengths).round(2)
    array([[0.82, 0.18, 0.  , 0.  ],
           [0.  , 0.27, 0.73, 0.  ],
           [0.  , 0.  , 0.52, 0.48],
           [0.  , 0.  , 0.  , 1.  ]])
    """
    lower, upper = cell_bounds(edges, lowest)
    start, end = np.log(lower), np.log(upper)
    rising = end > start
    cdf = np.cumsum(lengths) / lengths.sum()
    at = np.concatenate([[start[0]], end[rising]])
    # what lies in a cell without width lies at its edge
    smooth = PchipInterpolator(at, np.concatenate([[cdf[~rising].max(initial=0.0)], cdf[rising]]))
    # what is at most at an edge afterwards was at most at edge / ratio before
    before = np.log(np.clip(edges / ratio, lower[0], upper[-1]))
    inside = np.clip(before[None, :], start[:, None], end[:, None])
    held = smooth(end) - smooth(start)
    with np.errstate(invalid="ignore", divide="ignore"):
        shaped = (smooth(inside) - smooth(start)[:, None]) / held[:, None]
        even = (inside - start[:, None]) / (end - start)[:, None]
    below = np.where(held[:, None] > 0, shaped, even)
    below[~rising] = edges[None, :] >= ratio * lower[~rising, None]
    below[:, -1] = 1.0
    found: Floats = np.diff(np.clip(below, 0.0, 1.0), axis=1, prepend=0.0)
    return found
