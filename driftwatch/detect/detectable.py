"""The smallest shift that a detector would show, found in a server's own past.

"No drift" means little where only a shift of x3 would be seen. A shift is spliced into windows
that were measured: their lengths times f, scored as if they had just come in.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

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
        window is left.
    """
    there = history.sum(axis=1) > 0
    windows = history[there]
    if not len(windows):
        return math.nan
    against = context if len(context) == 1 else context[there]
    against = np.broadcast_to(against, windows.shape)
    shifted = np.concatenate([windows @ rescaling(edges, f) for f in ratios])
    scores = score(shifted, np.tile(against, (len(ratios), 1)), edges)
    shown = (scores > threshold).reshape(len(ratios), len(windows)).mean(axis=1)
    enough = shown >= POWER_RATIO
    # from the largest down to the first that is not enough
    missed = np.flatnonzero(~enough)
    first = int(missed[-1]) + 1 if len(missed) else 0
    return float(ratios[first]) if first < len(ratios) else math.nan


def rescaling(edges: Floats, ratio: float, lowest: float = LOWEST_TOKENS) -> Floats:
    """Where the mass of each cell goes when every value is multiplied by ``ratio``.

    Args:
        edges: [k], upper edges, ``inf`` last.
        ratio: > 0.
        lowest: see :func:`driftwatch.detect.distributions.cells.cell_bounds`; no value falls
            below it.

    Returns:
        [k, k]; row i holds the shares of cell i that come to lie in each cell, values spread
        evenly inside a cell as in ``histogram_quantile``. Rows add up to 1.

    >>> rescaling(np.array([10.0, 20.0, np.inf]), 1.5).round(2)
    array([[0.63, 0.37, 0.  ],
           [0.  , 0.33, 0.67],
           [0.  , 0.  , 1.  ]])
    """
    lower, upper = cell_bounds(edges, lowest)
    low, high = lower * ratio, upper * ratio
    span = high - low
    # share of each cell at or below each edge: a ramp, or a step where the cell has no width
    with np.errstate(invalid="ignore", divide="ignore"):
        below = (edges[None, :] - low[:, None]) / span[:, None]
    step = (edges[None, :] >= low[:, None]).astype(float)
    below = np.where(span[:, None] > 0, np.clip(below, 0.0, 1.0), step)
    below[:, -1] = 1.0
    found: Floats = np.diff(below, axis=1, prepend=0.0)
    return found
