"""The smallest factor of a pool's lengths that its drift score would show, from its own windows.

Every other hour a pool's window is scored again with its lengths times each of a few factors,
against the contexts that it has; what is told changes at full hours. A factor is detectable where
it, and every larger one, would have shown in 95 of 100 of the last day's windows.
"""

from __future__ import annotations

from dataclasses import replace
from zlib import crc32

import numpy as np

from driftwatch.detect.detectable import rescaling, smallest_factor
from driftwatch.detect.distributions.alignment import MIN_COMMON_EDGES
from driftwatch.detect.distributions.cells import Floats
from driftwatch.detect.lengths.contexts import Past, against_contexts
from driftwatch.detect.lengths.layouts import Bools
from driftwatch.detect.lengths.memory import FACTORS, Memory
from driftwatch.detect.lengths.windows import Window

# fewer windows say nothing of 95 in 100
LEAST_TRIALS = 6
EVERY = 120  # minutes


def due(pools: list[str], minute: int) -> Bools:
    """Which pools are tried in a minute: each every :data:`EVERY` minutes, spread by their names.

    Args:
        pools: names.
        minute: number since 1970.
    """
    return np.array([crc32(name.encode()) % EVERY == minute % EVERY for name in pools], dtype=bool)


def tried(
    memory: Memory,
    window: Window,
    pool: tuple[dict[int, Floats], dict[int, Floats]],
    minute: int,
    past: Past,
    asked: Bools,
    scale: Floats,
) -> Memory:
    """With the factors tried in the windows of one minute.

    Args:
        memory: up to that minute.
        window: of pools, of this one minute.
        pool: sums by number of latest minutes; see
            :func:`driftwatch.detect.lengths.contexts.against_contexts`.
        minute: its number since 1970.
        past: the hours before.
        asked: where a pool is due, and there is a verdict and nothing wrong [pools, signals].
        scale: of the statistic [pools, signals].
    """
    if not asked.any():
        return memory
    shown = np.full(memory.shown.shape[1:], -1, dtype=np.int8)
    for number, factor in enumerate(FACTORS):
        scaled = Window(
            window.minutes,
            _times(window.counts, memory.grid, factor, asked[None]),
            window.sums * factor,
        )
        found, _ = against_contexts(scaled, *pool, minute, asked[None], past, memory.grid)
        with np.errstate(invalid="ignore"):
            above = found.statistic[0] / scale > memory.thresholds.values[1]
        shown[..., number] = np.where(asked, above & found.moved[0], -1)
    fresh = asked.any(axis=1)
    trials = memory.shown.copy()
    trials[1:, fresh] = trials[:-1, fresh]
    trials[0, fresh] = shown[fresh]
    return replace(memory, shown=trials)


def _times(counts: Floats, grid: Floats, factor: float, asked: Bools) -> Floats:
    """Cumulative counts of lengths times a factor, on the same edges."""
    out = counts.copy()
    for place in zip(*np.nonzero(asked), strict=True):
        known = ~np.isnan(counts[place])
        edges = grid[known]
        cells = np.maximum(np.diff(counts[place][known], prepend=0.0), 0.0)
        if not cells.sum() or len(edges) - 1 < MIN_COMMON_EDGES:
            continue
        goes = rescaling(edges, factor, cells)
        if edges[0] <= 1.0:
            # a single token times 1.3 is still one token
            goes[0] = 0.0
            goes[0, np.searchsorted(edges, max(1.0, round(factor)))] = 1.0
        out[place][known] = np.cumsum(cells @ goes)
    return out


def smallest(memory: Memory) -> Floats:
    """The smallest detectable factor [pools, signals]; NaN where none is, or too little is known.

    Of the windows of a day.
    """
    trials = (memory.shown >= 0).sum(axis=0)
    shown = (memory.shown == 1).sum(axis=0) / np.maximum(trials, 1)
    return smallest_factor(np.where(trials >= LEAST_TRIALS, shown, np.nan), FACTORS)
