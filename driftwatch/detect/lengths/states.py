"""States through a block of minutes, and what is learnt of usual distances on the way.

Minute by minute: whether a minute may be learnt from depends on the states before it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from driftwatch.arrays import Flags, Floats, Integers, Singles
from driftwatch.detect.lengths.episodes import CALM, reading, step
from driftwatch.detect.lengths.memory import DELAY_OF_POOL, Memory
from driftwatch.detect.lengths.peers import Compared, leading, weights
from driftwatch.detect.null import Null

DAY = 1440
States = tuple[Floats, Floats]  # on, over: [minutes, units], NaN = unknown


@dataclass(frozen=True, slots=True)
class Block:
    """Minutes of all targets, [minutes, targets, ...]; what is not there is not known."""

    first: int  # number (since 1970) of the first minute
    counts: Singles  # cumulative [.., signals, edges]
    sums: Floats  # of tokens [.., signals]
    is_known: Flags  # which say anything [.., signals]
    restarted: Flags  # a restart or a change of knobs
    clean: Flags  # usual enough to learn from
    slow: Flags  # slower than the peers


def target_states(
    memory: Memory,
    block: Block,
    peers: Compared,
    scores: Floats,
    calibrated: Flags,
    members: Floats,
    quick: Floats,
) -> tuple[Memory, States]:
    """States of targets through the block, and what is learnt of their usual distances.

    ``scores``: of ``peers``; ``calibrated``: whose scales are not shipped [targets]; ``members``:
    targets heard of, [minutes, pools]; ``quick``: five-minute scores [minutes, targets].
    """
    size, units, _ = scores.shape
    state, thresholds, past = memory.uneven, memory.thresholds, memory.peers
    delayed, of_pool = memory.targets["held"], memory.targets["of_pool"]
    on, over = np.full((size, units), np.nan), np.full((size, units), np.nan)
    for b in range(size):
        highest = _highest(scores[b])
        may = leading(highest, of_pool, len(memory.pools)) & ~block.slow[b]
        now = reading(scores[b], peers.moved[b], peers.clearly[b], may, weights(peers.whole[b]))
        # not against ten minutes in which all is as usual
        sudden = np.where((highest > 1.0) & ~block.slow[b], quick[b], 0.0)
        now = replace(now, at_once=np.maximum(now.at_once, sudden))
        state, ended = step(state, block.first + b, now, thresholds.values[0])
        flagged = state.on()
        crowd = np.zeros(len(memory.pools) + 1)
        np.add.at(crowd, of_pool, flagged)
        # where half of a pool differs from its peers, routing is sticky: peers say nothing there
        sticky = np.append(2 * crowd[:-1] >= members[b], False) & (crowd > 1)
        is_known = ~np.isnan(now.score) & ~sticky[of_pool]
        on[b] = np.where(is_known, flagged & ~block.slow[b], np.nan)
        over[b] = np.where(is_known, state.calm >= CALM, np.nan)
        usual = (crowd[of_pool] == 0) | sticky[of_pool]
        delayed = np.where(usual[:, None], delayed, np.nan)
        past, delayed = _learnt(past, delayed, peers.statistic[b], block.clean[b] & usual)
        counted = calibrated & block.clean[b]
        with_score = counted & ~np.isnan(now.score)
        thresholds = thresholds.counted(0, np.where(counted, ended, 0.0), int(with_score.sum()))
    learnt = {"thresholds": thresholds, "peers": past}
    return memory.of_targets(learnt, watch=state.rows(), held=delayed), (on, over)


def pool_states(
    memory: Memory,
    block: Block,
    contexts: Compared,
    scores: Floats,
    calibrated: Flags,
    distances: Floats,
    clean: Flags,
) -> tuple[Memory, States]:
    """The same for pools; ``distances``: the statistic to learn from in ``clean`` minutes."""
    size, units, _ = scores.shape
    state, thresholds, past = memory.shifted, memory.thresholds, memory.contexts
    delayed, everybody = memory.pools["held"], np.ones(units, dtype=bool)
    on, over = np.full((size, units), np.nan), np.full((size, units), np.nan)
    for b in range(size):
        minute = block.first + b
        now = reading(scores[b], contexts.moved[b], contexts.clearly[b], everybody)
        since = np.where(state.on(), state.since, minute)
        state, ended = step(state, minute, now, thresholds.values[1], longest=DAY)
        is_known = ~np.isnan(now.score)
        on[b] = np.where(is_known, state.on(), np.nan)
        over[b] = np.where(is_known, (state.calm >= CALM), np.nan)
        # a burst is learnt, what lasts is not: neither it nor the minutes before it was recognised
        lasting = minute - since >= DELAY_OF_POOL
        delayed = np.where(lasting[:, None], np.nan, delayed)
        delayed[0] = np.where(state.on()[:, None], np.nan, delayed[0])
        past, delayed = _learnt(past, delayed, distances[b], clean[b] & ~lasting)
        counted = calibrated & clean[b]
        minutes = int((counted & is_known).sum())
        thresholds = thresholds.counted(1, np.where(counted, ended, 0.0), minutes)
    learnt = {"thresholds": thresholds, "contexts": past}
    return memory.of_pools(learnt, watch=state.rows(), held=delayed), (on, over)


def _learnt(past: Null, delayed: Floats, values: Floats, learns: Flags) -> tuple[Null, Floats]:
    """Distances wait until it is clear that they were not the beginning of a shift."""
    due = delayed[0].ravel()  # slot = place of the unit x signals + place of the signal
    waiting = np.concatenate([delayed[1:], np.where(learns[:, None], values, np.nan)[None]])
    is_known = ~np.isnan(due)
    slots: Integers = np.flatnonzero(is_known)
    return (past.add(slots, due[is_known]) if len(slots) else past), waiting


def _highest(scores: Floats) -> Floats:
    """The highest of the signals [..., signals]; NaN where none has a verdict."""
    highest = np.where(np.isnan(scores), -1.0, scores).max(axis=-1)
    return np.where(highest < 0, np.nan, highest)
