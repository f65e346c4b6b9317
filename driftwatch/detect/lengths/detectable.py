"""The smallest factor of a pool's lengths that its drift score would show, from its own windows.

"No drift" means little where only a shift of x3 would be seen. Every other hour a pool's window is
scored again with its lengths times each of a few factors, against the contexts that it has; the
verdict changes at full hours. A factor is detectable where it, and every larger one, would have
shown in 95 of 100 of the last day's windows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from zlib import crc32

import numpy as np
from scipy.interpolate import PchipInterpolator

from driftwatch.arrays import Flags, Floats
from driftwatch.detect.distributions import MIN_COMMON_EDGES, cell_bounds
from driftwatch.detect.lengths.contexts import Past, against_contexts
from driftwatch.detect.lengths.layouts import Window
from driftwatch.detect.lengths.memory import FACTORS, Memory

# A shift counts as detectable if it shows in so many of the windows.
POWER_RATIO = 0.95
# Tokens up to which every length is placed by itself.
_EVERY = 128


def smallest_factor(visible: Floats, factors: Sequence[float]) -> Floats:
    """The smallest of ascending ``factors`` [f] from which on every one shows; NaN where none does.

    ``visible``: [..., f], the share of windows in which each factor showed; NaN is unknown.

    >>> smallest_factor(np.array([0.2, 0.96, 0.9, 0.97, 1.0]), (1.05, 1.1, 1.2, 1.5, 2.0)).item()
    1.5
    """
    with np.errstate(invalid="ignore"):
        enough = visible >= POWER_RATIO
    onward = np.logical_and.accumulate(enough[..., ::-1], axis=-1)[..., ::-1]
    first = np.argmax(onward, axis=-1)
    return np.where(onward.any(axis=-1), np.asarray(factors)[first], np.nan)


def rescaling(edges: Floats, ratio: float, lengths: Floats) -> Floats:
    """Where the mass of each cell goes when every length is multiplied and rounded to a token.

    Inside a cell lengths lie as a smooth distribution through all the edges would have them
    (monotone cubic interpolation over ln tokens: Fritsch & Carlson 1980). ``edges``: [k],
    ``inf`` last; ``lengths``: [k], counts by cell. Returns [k, k], the shares of cell i by cell.

    >>> lengths = np.array([0.0, 50.0, 50.0, 0.0])
    >>> rescaling(np.array([10.0, 20.0, 40.0, np.inf]), 1.5, lengths).round(1)
    array([[0.9, 0.1, 0. , 0. ],
           [0. , 0.2, 0.8, 0. ],
           [0. , 0. , 0.5, 0.5],
           [0. , 0. , 0. , 1. ]])
    """
    last = _lengths_up_to(edges)
    before = np.concatenate([[0.0], last[:-1]])
    middle = (before + 1 + last) / 2
    at, to = np.searchsorted(edges, last), np.searchsorted(edges, np.rint(middle * ratio))
    # a whole number stands for half a token on either side of it
    cumulative = np.concatenate([[0.0], np.cumsum(lengths) / lengths.sum()])
    ends = np.concatenate([[0.0], np.minimum(np.floor(edges), last[-1])])
    ends, first = np.unique(np.maximum(ends, 0.0), return_index=True)
    # of edges between the same whole numbers the last one's sum counts
    cumulative = cumulative[np.append(first[1:] - 1, len(cumulative) - 1)]
    smooth = PchipInterpolator(np.log(ends + 0.5), cumulative)
    weight = smooth(np.log(last + 0.5)) - smooth(np.log(before + 0.5))
    cells = len(edges)
    mass = np.bincount(at, weight, minlength=cells)
    # an empty cell's lengths are placed evenly in ln tokens
    even = np.log(last + 0.5) - np.log(before + 0.5)
    weight = np.where(mass[at] > 0, weight, even)
    goes: Floats = np.zeros((cells, cells))
    np.add.at(goes, (at, to), weight)
    mass = goes.sum(axis=1)
    goes[mass <= 0] = np.eye(cells)[mass <= 0]  # no whole number lies in such a cell
    goes /= goes.sum(axis=1, keepdims=True)
    return goes


def _lengths_up_to(edges: Floats) -> Floats:
    """Whole tokens to the end of the open cell: small ones, then steps of 1 %, and the edges."""
    _, upper = cell_bounds(edges)
    end = max(float(upper[-1]), 2.0 * _EVERY)
    steps = math.ceil(math.log(end / _EVERY) / 0.01)
    lengths = np.concatenate(
        [np.arange(1, _EVERY + 1), np.geomspace(_EVERY, end, steps), edges[:-1]], dtype=float
    )
    lengths = np.unique(np.floor(lengths))
    return lengths[lengths >= 1]


# fewer windows say nothing of 95 in 100
LEAST_TRIALS = 6
EVERY = 120  # minutes


def due(pools: list[str], minute: int) -> Flags:
    """Which pools are tried in a minute: each every :data:`EVERY` minutes, spread by their names.

    ``pools``: names; ``minute``: number since 1970.
    """
    return np.array([crc32(name.encode()) % EVERY == minute % EVERY for name in pools], dtype=bool)


def with_trials(
    memory: Memory,
    window: Window,
    pool: tuple[dict[int, Floats], dict[int, Floats]],
    minute: int,
    past: Past,
    due: Flags,
    scale: Floats,
) -> Memory:
    """With the factors tried in the windows of one minute.

    ``pool``: as of against_contexts; ``due``: pools and signals with a verdict and nothing wrong.
    """
    if not due.any():
        return memory
    visible = np.full(memory.pools["shown"].shape[1:], -1, dtype=np.int8)
    for number, factor in enumerate(FACTORS):
        scaled = Window(
            window.minutes,
            _times(window.counts, memory.grid, factor, due[None]),
            window.sums * factor,
        )
        verdicts, _ = against_contexts(scaled, *pool, minute, due[None], past, memory.grid)
        with np.errstate(invalid="ignore"):
            above = verdicts.statistic[0] / scale > memory.thresholds.values[1]
        visible[..., number] = np.where(due, above & verdicts.moved[0], -1)
    fresh = due.any(axis=1)
    trials = memory.pools["shown"].copy()
    trials[1:, fresh] = trials[:-1, fresh]
    trials[0, fresh] = visible[fresh]
    return memory.of_pools(shown=trials)


def _times(counts: Floats, grid: Floats, factor: float, wanted: Flags) -> Floats:
    """Cumulative counts of lengths times a factor, on the same edges."""
    out = counts.copy()
    for place in zip(*np.nonzero(wanted), strict=True):
        has_count = ~np.isnan(counts[place])
        edges = grid[has_count]
        cells = np.maximum(np.diff(counts[place][has_count], prepend=0.0), 0.0)
        if not cells.sum() or len(edges) - 1 < MIN_COMMON_EDGES:
            continue
        goes = rescaling(edges, factor, cells)
        if edges[0] <= 1.0:
            # a single token times 1.3 is still one token
            goes[0] = 0.0
            goes[0, np.searchsorted(edges, max(1.0, round(factor)))] = 1.0
        out[place][has_count] = np.cumsum(cells @ goes)
    return out


def smallest(memory: Memory) -> Floats:
    """The smallest detectable factor [pools, signals]; NaN where none is, or too little is known.

    Of the windows of a day.
    """
    trials = (memory.pools["shown"] >= 0).sum(axis=0)
    visible = (memory.pools["shown"] == 1).sum(axis=0) / np.maximum(trials, 1)
    return smallest_factor(np.where(trials >= LEAST_TRIALS, visible, np.nan), FACTORS)
