"""States through a block of minutes, and what is learnt of usual distances on the way.

Most blocks are uneventful and are lived through at once; the others minute by minute, for whether
a minute may be learnt from depends on the states before it. Both give the same.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from driftwatch.arrays import Flags, Floats, Integers, Singles
from driftwatch.detect.lengths.episodes import (
    CALM,
    Watch,
    is_uneventful,
    quiet_states,
    reading,
    step,
)
from driftwatch.detect.lengths.memory import DELAY_OF_POOL, Memory
from driftwatch.detect.lengths.peers import Compared, leading, weights
from driftwatch.detect.lengths.scales import context_scales
from driftwatch.detect.null import Null

DAY = 1440


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


@dataclass(frozen=True, slots=True)
class Scored:
    """Scores [minutes, units, signals], their scales and whose those are [units, signals]."""

    score: Floats
    scale: Floats
    source: Integers


def scored_by(compared: Compared, scale: Floats, source: Integers) -> Scored:
    """Statistics over their scales.

    ``compared``: [minutes, units, signals]; ``scale``: what is usual [units, signals]; ``source``:
    places in ``scales.SOURCES`` [units, signals].
    """
    return Scored(compared.statistic / scale, scale, source)


def target_states(
    memory: Memory,
    block: Block,
    peers: Compared,
    members: Floats,
    scored: Scored,
    quick: Floats,
) -> tuple[Memory, tuple[Floats, Floats], Scored]:
    """States of targets through the block, and what is learnt of their usual distances.

    ``memory``: up to the minute before; ``block``: the minutes; ``peers``: targets against their
    peers; ``members``: targets heard of, [minutes, pools]; ``scored``: ``peers`` in their scales;
    ``quick``: of :func:`driftwatch.detect.lengths.peers.five_minute_scores`.
    Returns: the memory, the states (on, over: [minutes, targets], NaN = unknown), and ``scored``.
    """
    size, units, _ = scored.score.shape
    state, thresholds, past = memory.uneven, memory.thresholds, memory.peers
    delayed, of_pool = memory.targets["held"], memory.targets["of_pool"]
    on, over = np.full((size, units), np.nan), np.full((size, units), np.nan)
    calibrated = (scored.source < 2).all(axis=1)
    slots = np.arange(2 * units).reshape(units, 2)
    if not (quick > 1.0).any() and is_uneventful(state, scored.score, peers.moved):
        highest = _highest(scored.score)
        is_known = ~np.isnan(highest)
        state, calm = quiet_states(state, highest, thresholds.values[0])
        past, delayed = _with_minutes(past, delayed, slots, peers.statistic, block.clean)
        counted = calibrated & block.clean & is_known
        thresholds = thresholds.counted(0, np.zeros(units), int(counted.sum()))
        learnt = {"thresholds": thresholds, "peers": past}
        lived = memory.of_targets(learnt, watch=state.rows(), held=delayed)
        quiet = np.where(is_known, 0.0, np.nan), np.where(is_known, calm >= CALM, np.nan)
        return lived, quiet, scored
    for b in range(size):
        score = _highest(scored.score[b])
        may = leading(score, of_pool, len(memory.pools)) & ~block.slow[b]
        counts_for = weights(peers.whole[b])
        now = reading(scored.score[b], peers.moved[b], peers.clearly[b], may, counts_for)
        # not against ten minutes in which all is as usual
        sudden = np.where((score > 1.0) & ~block.slow[b], quick[b], 0.0)
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
        learns = block.clean[b] & usual
        past, delayed = _with_minute(past, delayed, slots, peers.statistic[b], learns)
        counted = calibrated & block.clean[b]
        with_score = counted & ~np.isnan(now.score)
        thresholds = thresholds.counted(0, np.where(counted, ended, 0.0), int(with_score.sum()))
    return (
        memory.of_targets(
            {"thresholds": thresholds, "peers": past}, watch=state.rows(), held=delayed
        ),
        (on, over),
        scored,
    )


def pool_states(
    memory: Memory, block: Block, contexts: Compared, distances: Floats, clean: Flags
) -> tuple[Memory, tuple[Floats, Floats], Scored]:
    """The same for pools.

    ``memory``: up to the minute before; ``block``: the minutes; ``contexts``: pools against the
    nearest of their contexts; ``distances``: the statistic to learn from, also where there is no
    verdict yet; ``clean``: minutes to learn from, [minutes, pools].
    Returns: as :func:`target_states`, for pools.
    """
    scored = scored_by(contexts, *context_scales(memory.contexts))
    size, units, _ = scored.score.shape
    state: Watch = memory.shifted
    thresholds, past, delayed = memory.thresholds, memory.contexts, memory.pools["held"]
    on, over = np.full((size, units), np.nan), np.full((size, units), np.nan)
    calibrated = (scored.source == 0).all(axis=1)
    slots = np.arange(2 * units).reshape(units, 2)
    if is_uneventful(state, scored.score, contexts.moved):
        highest = _highest(scored.score)
        is_known = ~np.isnan(highest)
        state, calm = quiet_states(state, highest, thresholds.values[1])
        past, delayed = _with_minutes(past, delayed, slots, distances, clean)
        learnt_minutes = int((calibrated & clean & is_known).sum())
        thresholds = thresholds.counted(1, np.zeros(units), learnt_minutes)
        learnt = {"thresholds": thresholds, "contexts": past}
        lived = memory.of_pools(learnt, watch=state.rows(), held=delayed)
        quiet = np.where(is_known, 0.0, np.nan), np.where(is_known, calm >= CALM, np.nan)
        return lived, quiet, scored
    everybody = np.ones(units, dtype=bool)
    for b in range(size):
        now = reading(scored.score[b], contexts.moved[b], contexts.clearly[b], everybody)
        since = np.where(state.on(), state.since, block.first + b)
        state, ended = step(state, block.first + b, now, thresholds.values[1], longest=DAY)
        is_known = ~np.isnan(now.score)
        on[b] = np.where(is_known, state.on(), np.nan)
        over[b] = np.where(is_known, (state.calm >= CALM), np.nan)
        # a burst is learnt, what lasts is not: neither it nor the minutes before it was recognised
        lasting = block.first + b - since >= DELAY_OF_POOL
        delayed = np.where(lasting[:, None], np.nan, delayed)
        delayed[0] = np.where(state.on()[:, None], np.nan, delayed[0])
        past, delayed = _with_minute(past, delayed, slots, distances[b], clean[b] & ~lasting)
        counted = calibrated & clean[b]
        thresholds = thresholds.counted(
            1, np.where(counted, ended, 0.0), int((counted & is_known).sum())
        )
    learnt = {"thresholds": thresholds, "contexts": past}
    lived = memory.of_pools(learnt, watch=state.rows(), held=delayed)
    return lived, (on, over), scored


def _with_minute(
    past: Null, delayed: Floats, slots: Integers, values: Floats, learns: Flags
) -> tuple[Null, Floats]:
    """Distances wait until it is clear that they were not the beginning of a shift."""
    due = delayed[0]
    delayed = np.concatenate([delayed[1:], np.where(learns[:, None], values, np.nan)[None]])
    is_known = ~np.isnan(due)
    return (past.add(slots[is_known], due[is_known]) if is_known.any() else past), delayed


def _with_minutes(
    past: Null, delayed: Floats, slots: Integers, values: Floats, learns: Flags
) -> tuple[Null, Floats]:
    """The same for a block of quiet minutes."""
    waiting = np.concatenate([delayed, np.where(learns[..., None], values, np.nan)])
    due = waiting[: len(values)]
    is_known = ~np.isnan(due)
    return (
        past.add(np.broadcast_to(slots, due.shape)[is_known], due[is_known])
        if is_known.any()
        else past
    ), waiting[len(values) :]


def _highest(scores: Floats) -> Floats:
    """The highest of the signals [..., signals]; NaN where none has a verdict."""
    highest = np.where(np.isnan(scores), -1.0, scores).max(axis=-1)
    return np.where(highest < 0, np.nan, highest)
