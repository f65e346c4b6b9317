"""Which cell gained and which lost most of the share, in words."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import numpy.typing as npt

from driftwatch.detect.distributions.cells import Floats, shares

_LEAST_POINTS = 1.0  # below it the mass is as before, to the point


def moved(counts: Floats, reference: Floats, edges: Floats) -> npt.NDArray[np.object_]:
    """The cells with the largest gain and loss of share, e.g. "+18 points in 1k-2k, -20 in ...".

    Args:
        counts: [n, k].
        reference: [n, k] or [1, k].
        edges: [k].

    Returns:
        [n] texts; None where a side holds nothing.

    >>> e = np.array([200.0, 1000.0, np.inf])
    >>> print(moved(np.array([[10.0, 50.0, 40.0]]), np.array([[30.0, 50.0, 20.0]]), e)[0])
    +20 points in >1k, -20 in ≤200
    """
    change = 100.0 * (shares(counts) - shares(reference))
    known: npt.NDArray[np.bool_] = np.isfinite(change.sum(axis=1))
    change = np.where(known[:, None], change, 0.0)
    rows = np.arange(len(change))
    gained, lost = change.argmax(axis=1), change.argmin(axis=1)
    labels = cell_labels(edges)
    texts = np.full(len(change), None, dtype=object)
    gains, losses = change[rows, gained], change[rows, lost]
    for row in np.flatnonzero(known):
        if gains[row] < _LEAST_POINTS and losses[row] > -_LEAST_POINTS:
            texts[row] = "less than 1 point in every cell"
        else:
            texts[row] = (
                f"+{gains[row]:.0f} {_points(gains[row])} in {labels[gained[row]]}, "
                f"-{-losses[row]:.0f} in {labels[lost[row]]}"
            )
    return texts


def _points(share: float) -> str:
    return "point" if round(share) == 1 else "points"


def cell_labels(edges: Floats) -> list[str]:
    """Names of the cells: "≤200", "200–500", ">5k"."""
    finite = [_short(edge) for edge in edges[:-1]]
    if not finite:
        return ["any"]
    between = [f"{low}–{high}" for low, high in pairwise(finite)]
    return [f"≤{finite[0]}", *between, f">{finite[-1]}"]


def _short(edge: float) -> str:
    if edge >= 1e6:
        return f"{edge / 1e6:g}M"
    return f"{edge / 1e3:g}k" if edge >= 1e3 else f"{edge:g}"
