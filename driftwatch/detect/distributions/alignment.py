"""Two layouts of buckets made one, or a refusal: a change of layout is no change of traffic.

``--custom-histogram-buckets`` and ``max_model_len`` change vLLM's edges. Counts are added up
between the edges that both layouts have; nothing is guessed inside a cell.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from driftwatch.detect.distributions.cells import Floats

# Three cells say long, middle, short; fewer would call a drift of lengths "no drift".
MIN_COMMON_EDGES = 3
# Most of the mass must lie in cells that are as fine as one of the two layouts.
MAX_MERGED_RATIO = 0.5

TOO_FEW_IN_COMMON = "bucket edges have too few in common"


@dataclass(frozen=True, slots=True)
class Layout:
    """What two layouts have in common.

    Attributes:
        edges: the common upper edges, ``inf`` last.
        first: cell of the common layout that each cell of the first layout goes to.
        second: the same for the second.
        merged: which common cells are wider than a cell of *either* layout: where both showed
            more than can be compared.
    """

    edges: Floats
    first: npt.NDArray[np.intp]
    second: npt.NDArray[np.intp]
    merged: npt.NDArray[np.bool_]


def common_layout(first: Floats, second: Floats) -> Layout | None:
    """The edges of both, or None where fewer than :data:`MIN_COMMON_EDGES` finite ones are.

    Args:
        first: upper edges [k], ascending, ``inf`` last.
        second: the other layout's.
    """
    edges = np.intersect1d(first, second)
    if len(edges) - 1 < MIN_COMMON_EDGES or not np.isinf(edges[-1]):
        return None
    of_first, of_second = np.searchsorted(edges, first), np.searchsorted(edges, second)
    cells = len(edges)
    several = [np.bincount(of, minlength=cells) > 1 for of in (of_first, of_second)]
    return Layout(edges, of_first, of_second, several[0] & several[1])


def merged(counts: Floats, to: npt.NDArray[np.intp], cells: int) -> Floats:
    """Counts [n, k] → [n, cells], each cell added to the one it goes to."""
    found = np.zeros((len(counts), cells))
    np.add.at(found.T, to, counts.T)
    return found


def aligned(
    counts: Floats, edges: Floats, reference: Floats, reference_edges: Floats
) -> tuple[Floats, Floats, Floats] | None:
    """Both sides on their common edges.

    Args:
        counts: [n, k].
        edges: [k].
        reference: [n, j] or [1, j].
        reference_edges: [j].

    Returns:
        counts, reference, edges; rows with more than :data:`MAX_MERGED_RATIO` of either side's
        mass in merged cells are NaN. None where too few edges are common: the reason to show is
        :data:`TOO_FEW_IN_COMMON`.
    """
    if np.array_equal(edges, reference_edges):
        return counts, reference, edges
    layout = common_layout(edges, reference_edges)
    if layout is None:
        return None
    cells = len(layout.edges)
    own = merged(counts, layout.first, cells)
    other = merged(reference, layout.second, cells)
    for side in (own, other):
        with np.errstate(invalid="ignore"):
            lost = side[:, layout.merged].sum(axis=1) > MAX_MERGED_RATIO * side.sum(axis=1)
        side[lost] = np.nan
    return own, other, layout.edges
