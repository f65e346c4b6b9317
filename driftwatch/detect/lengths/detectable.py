"""The smallest factor of a pool's lengths that its drift score would show, from its own windows.

Every other hour the latest window is scored again with its lengths times each of a few factors,
against the contexts that it has. A factor is detectable where it, and every larger one, would
have shown in 95 of 100 of the last day's windows.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from driftwatch.detect.detectable import rescaling, smallest_factor
from driftwatch.detect.distributions.cells import Floats
from driftwatch.detect.lengths.contexts import Past, against_contexts
from driftwatch.detect.lengths.layouts import Bools, cells_of
from driftwatch.detect.lengths.memory import FACTORS, Memory
from driftwatch.detect.lengths.windows import Window

# fewer windows say nothing of 95 in 100
LEAST_TRIALS = 6
# pools tried at a time; more take turns
AT_ONCE = 50


def tried(
    memory: Memory,
    window: Window,
    pool: tuple[dict[int, Floats], dict[int, Floats]],
    past: Past,
    quiet: Bools,
    scale: Floats,
) -> Memory:
    """With the factors tried in the windows of the latest minute.

    Args:
        memory: up to that minute.
        window: of pools.
        pool: sums by number of latest minutes; see
            :func:`driftwatch.detect.lengths.contexts.against_contexts`.
        past: the hours before.
        quiet: where there is a verdict and nothing wrong [pools, signals].
        scale: of the statistic [pools, signals].
    """
    if memory.minute // 60 % 2:
        return memory
    turns = -(-len(memory.pools) // AT_ONCE)
    turn = np.arange(len(memory.pools)) % max(1, turns) == (memory.minute // 120) % max(1, turns)
    quiet = quiet & turn[:, None]
    if not quiet.any():
        return memory
    last = {w: c[-1:] for w, c in pool[0].items()}, {w: s[-1:] for w, s in pool[1].items()}
    latest = Window(window.minutes[-1:], window.counts[-1:], window.sums[-1:])
    shown = np.full(memory.shown.shape[1:], -1, dtype=np.int8)
    for number, factor in enumerate(FACTORS):
        scaled = Window(
            latest.minutes,
            _times(latest.counts, memory.grid, factor, quiet[None]),
            latest.sums * factor,
        )
        found = against_contexts(scaled, *last, memory.minute, quiet[None], past, memory.grid)
        with np.errstate(invalid="ignore"):
            above = found.statistic[0] / scale > memory.thresholds.values[1]
        shown[..., number] = np.where(quiet, above & found.moved[0], -1)
    fresh = quiet.any(axis=1)
    trials = memory.shown.copy()
    trials[1:, fresh] = trials[:-1, fresh]
    trials[0, fresh] = shown[fresh]
    return replace(memory, shown=trials)


def _times(counts: Floats, grid: Floats, factor: float, asked: Bools) -> Floats:
    """Cumulative counts of lengths times a factor, on the same edges."""
    out = counts.copy()
    for place in zip(*np.nonzero(asked), strict=True):
        told = cells_of(counts[place], grid)
        if told is None or not told[0].sum():
            continue
        cells, edges = told
        out[place][~np.isnan(counts[place])] = np.cumsum(cells @ rescaling(edges, factor, cells))
    return out


def smallest(memory: Memory) -> Floats:
    """The smallest detectable factor [pools, signals]; NaN where none is, or too little is known.

    Of the windows of a day; changed every other hour.
    """
    trials = (memory.shown >= 0).sum(axis=0)
    shown = (memory.shown == 1).sum(axis=0) / np.maximum(trials, 1)
    return smallest_factor(np.where(trials >= LEAST_TRIALS, shown, np.nan), FACTORS)
