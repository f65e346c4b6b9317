"""The smallest shift that a detector would show, found in a server's own past.

"No drift" means little where only a shift of x3 would be seen. A shift is spliced into windows
that were measured: their lengths times f, scored as if they had just come in.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
from scipy.interpolate import PchipInterpolator

from driftwatch.detect.distributions.cells import LOWEST_TOKENS, Floats, cell_bounds

# counts [n, k], context [n, k], edges [k] → score [n], NaN where there is no verdict
Score = Callable[[Floats, Floats, Floats], Floats]

# What is asked for: fine where it matters, no further than x3, where nobody needs a statistic.
RATIOS: tuple[float, ...] = (
    *(round(1 + 0.05 * i, 2) for i in range(1, 21)),
    *(round(2 + 0.1 * i, 1) for i in range(1, 11)),
)
# A shift counts as detectable if it shows in so many of the windows.
POWER_RATIO = 0.95


def smallest_detectable_ratio(
    history: Floats,
    context: Floats,
    edges: Floats,
    threshold: float,
    score: Score,
    ratios: Sequence[float] = RATIOS,
) -> float:
    """The smallest f from which on lengths times f would score above the threshold.

    Args:
        history: [w, k], counts by cell of past windows with nothing wrong; windows without counts
            are left out.
        context: [w, k], what each window is compared with, or [1, k].
        edges: [k], upper edges in tokens, ``inf`` last.
        threshold: scores above it are shown.
        score: of windows against their contexts; a window without a verdict shows nothing.
        ratios: which f are tried, ascending, > 1.

    Returns:
        The smallest of ``ratios`` at which, as at every larger one, at least
        :data:`POWER_RATIO` of the windows score above the threshold; NaN where none does or no
        window is left. An estimate: where lengths lie inside the cells is not known (see
        :func:`rescaling`).
    """
    there = history.sum(axis=1) > 0
    windows = history[there]
    if not len(windows):
        return math.nan
    lengths = windows.sum(axis=0)
    against = context if len(context) == 1 else context[there]
    against = np.broadcast_to(against, windows.shape)
    shifted = np.concatenate([windows @ rescaling(edges, f, lengths) for f in ratios])
    scores = score(shifted, np.tile(against, (len(ratios), 1)), edges)
    shown = (scores > threshold).reshape(len(ratios), len(windows)).mean(axis=1)
    enough = shown >= POWER_RATIO
    # from the largest down to the first that is not enough
    missed = np.flatnonzero(~enough)
    first = int(missed[-1]) + 1 if len(missed) else 0
    return float(ratios[first]) if first < len(ratios) else math.nan


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
