"""A histogram as rows of cell counts: the conventions that every statistic here shares.

``counts`` is a matrix [n, k]: n histograms, k cells, not cumulative. ``edges`` [k] holds the upper
edges of the cells, ascending, ``inf`` last. A row without counts is unknown: NaN comes out of it.
A cell reaches from the edge before it (exclusive) to its own (inclusive), as Prometheus's ``le``.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

# Where lengths begin: no prompt and no generation has less than one token. vLLM's first edge is
# 1, so its first cell holds lengths of exactly one token and has no width.
LOWEST_TOKENS = 1.0
# Where the open cell is taken to end: vLLM's token edges go 1, 2, 5, 10, ... up to max_model_len
# (v1/metrics/buckets.py), so the edge that is no longer there would be at most 2.5 times the last
# one, and no length reaches it.
OPEN_CELL_RATIO = 2.5
# Increases that were shared out over windows leave rounding errors in cells that hold nothing.
_ROUNDING = 1e-9


def counts_of(cumulative: Floats) -> Floats:
    """Cumulative counts by edge → counts by cell.

    Args:
        cumulative: [n, k].

    Returns:
        [n, k]. A row that falls somewhere, is not finite or holds nothing becomes NaN: it is no
        histogram.
    """
    counts = np.diff(cumulative, axis=1, prepend=0.0)
    total = cumulative[:, -1:]
    with np.errstate(invalid="ignore"):
        usable = (counts >= -_ROUNDING * total).all(axis=1) & (total[:, 0] > 0)
    usable &= np.isfinite(total[:, 0])
    counts = np.maximum(counts, 0.0)
    counts[~usable] = np.nan
    return counts


def shares(counts: Floats) -> Floats:
    """Counts → shares of their row [n, k]; NaN where a row holds nothing."""
    total = counts.sum(axis=1, keepdims=True)
    with np.errstate(invalid="ignore", divide="ignore"):
        found: Floats = counts / np.where(total > 0, total, np.nan)
    return found


def cell_bounds(edges: Floats, lowest: float = LOWEST_TOKENS) -> tuple[Floats, Floats]:
    """Lower and upper edge of every cell [k], both finite.

    Args:
        edges: upper edges, ``inf`` last (or a single ``inf``: one cell from ``lowest``).
        lowest: the smallest value there can be, > 0; the first cell begins there. A cell up to an
            edge at or below it has no width, and one up to 0 or less lies at the first edge above.
    """
    finite = edges[:-1]
    positive = finite[finite > 0]
    start = min(lowest, positive[0]) if len(positive) else lowest
    finite = np.maximum(finite, start)
    last = finite[-1] if len(finite) else start
    return (
        np.concatenate([[start], finite]),
        np.concatenate([finite, [last * OPEN_CELL_RATIO]]),
    )


def ln_widths(edges: Floats, lowest: float = LOWEST_TOKENS) -> Floats:
    """Width of every cell in ln units [k]; see :func:`cell_bounds`."""
    lower, upper = cell_bounds(edges, lowest)
    widths: Floats = np.log(upper) - np.log(lower)
    return widths
