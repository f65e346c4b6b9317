"""How far two histograms of lengths are apart, from bucket counts alone: what people are shown.

A cell reaches from the edge before it (exclusive) to its own (inclusive), as Prometheus's ``le``.
Histograms of other edges than the baseline's are not compared: a layout changes with a release or
a flag, and the means still say whether lengths moved.
"""

from __future__ import annotations

import numpy as np
import polars as pl
from scipy.spatial.distance import jensenshannon

from driftwatch.arrays import Floats
from driftwatch.signals.histograms import by_layout, matrix_of

# No prompt and no generation has less than one token: vLLM's first edge is 1, and its cell has no
# width.
LOWEST_TOKENS = 1.0
# Where the open cell is taken to end: vLLM's token edges go 1, 2, 5, 10, ... up to max_model_len
# (v1/metrics/buckets.py), so the edge that is no longer there would be at most 2.5 times the last
# one, and no length reaches it.
OPEN_CELL_RATIO = 2.5
OTHER_EDGES = "bucket edges are others than the baseline's"
# Increases that were shared out over windows leave rounding errors in cells that hold nothing.
_ROUNDING = 1e-9

STATISTICS: dict[str, type[pl.DataType]] = {"js_distance": pl.Float64, "w1_ratio": pl.Float64}


def compared(
    buckets: pl.Series,
    edges: pl.Series,
    reference_buckets: pl.Series,
    reference_edges: pl.Series,
    at_least: float = 0.0,
) -> pl.DataFrame:
    """:data:`STATISTICS` of two columns of histograms (cumulative, ``le`` edges), row for row.

    NULL where a side is no histogram or holds fewer than ``at_least``, or the edges differ.
    """
    found = np.full((len(buckets), 2), np.nan)
    alike = (edges == reference_edges) & (reference_buckets.list.len() == edges.list.len())
    rows = np.flatnonzero(alike.fill_null(value=False).to_numpy())
    for group, le, cumulative in by_layout(buckets.gather(rows), edges.gather(rows)):
        if len(le) < 2 or not np.isinf(le[-1]) or not (np.diff(le) > 0).all():
            continue  # a single cell says how many and nothing of where; the rest is no layout
        at = rows[group]
        before = matrix_of(reference_buckets, at, len(le))
        found[at] = distances(_shares(cumulative, at_least), _shares(before, at_least), le)
    return pl.DataFrame(found, schema=STATISTICS).fill_nan(None)


def _shares(cumulative: Floats, at_least: float) -> Floats:
    """Cumulative counts → shares by cell [n, k]; NaN where a row is no histogram or holds less."""
    total = cumulative[:, -1:]
    counts = np.diff(cumulative, axis=1, prepend=0.0)
    usable = (counts >= -_ROUNDING * total).all(axis=1) & (total[:, 0] > 0)
    usable &= np.isfinite(total[:, 0]) & (total[:, 0] >= at_least)
    shares: Floats = np.maximum(counts, 0.0) / np.where(usable, total[:, 0], np.nan)[:, None]
    return shares


def distances(p: Floats, q: Floats, edges: Floats) -> Floats:
    """Jensen-Shannon distance (base 2), and exp of the Wasserstein-1 distance of ln values, [n, 2].

    W1 spreads values evenly in ln over their cells; ``p``, ``q``: shares [n, k].

    >>> p, edges = np.array([[1.0, 0.0], [0.5, 0.5]]), np.array([10.0, np.inf])
    >>> distances(p, np.array([[0.0, 1.0]] * 2), edges)[:, 0].round(3)
    array([1.   , 0.558])
    """
    start = min(LOWEST_TOKENS, edges[edges > 0][0])
    finite = np.maximum(edges[:-1], start)
    widths = np.diff(np.log([start, *finite, finite[-1] * OPEN_CELL_RATIO]))
    # the difference of both CDFs is a straight line in a cell; where it crosses zero it is less
    after = np.cumsum(p - q, axis=1)
    before = np.concatenate([np.zeros((len(after), 1)), after[:, :-1]], axis=1)
    size = np.abs(before) + np.abs(after)
    crossing = np.minimum(before * after, 0.0) / np.maximum(size, 1e-300)
    w1 = ((0.5 * size + crossing) * widths).sum(axis=1)
    found: Floats = np.stack([jensenshannon(p, q, base=2, axis=1), np.exp(w1)], axis=1)
    return found
