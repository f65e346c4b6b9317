"""A block of minutes folded into the memory: scores, states, and what is learnt from them.

A block lies within one hour and keeps every target in its pool, so that nothing that is learnt
at the end of an hour or a day is needed earlier.
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from driftwatch.detect.distributions.cells import Floats
from driftwatch.detect.lengths.contexts import HOUR_ENDS, Past, against_contexts
from driftwatch.detect.lengths.detectable import due, smallest, tried
from driftwatch.detect.lengths.episodes import CALM, Integers, Watch, reading, step
from driftwatch.detect.lengths.layouts import Bools, Singles
from driftwatch.detect.lengths.memory import KEEP, KEEP_HOURS, KEEP_POOL, Memory
from driftwatch.detect.lengths.peers import (
    LEAST_MEMBERS,
    Compared,
    against_twins,
    leading,
    without_worst,
    worst,
)
from driftwatch.detect.lengths.scales import context_scales, peer_scales
from driftwatch.detect.lengths.windows import WINDOWS, running, shortest
from driftwatch.detect.null import Null

# after a restart only short generations have had the time to finish
SETTLING = 10
DAY = 1440


@dataclass(frozen=True, slots=True)
class Block:
    """Minutes of all targets, [minutes, targets, ...]; what is not there is not known.

    Attributes:
        first: number (since 1970) of the first minute.
        counts: cumulative [.., signals, edges].
        sums: of tokens [.., signals].
        known: which say anything [.., signals].
        restarted: a restart or a change of knobs.
        clean: usual enough to learn from.
        slow: slower than the twins.
    """

    first: int
    counts: Singles
    sums: Floats
    known: Bools
    restarted: Bools
    clean: Bools
    slow: Bools


@dataclass(frozen=True, slots=True)
class Told:
    """What a block shows; scores and ratios [minutes, units, signals], states [minutes, units].

    States are NaN where unknown. Sources are places in ``scales.SOURCES`` [units, signals].
    """

    peer_score: Floats
    peer_ratio: Floats
    uneven: Floats
    uneven_over: Floats
    drift_score: Floats
    drift_ratio: Floats
    shifted: Floats
    shift_over: Floats
    peer_source: Integers
    drift_source: Integers


def fold(memory: Memory, block: Block, budget: float, holidays: Set[int]) -> tuple[Memory, Told]:
    """One block on.

    Args:
        memory: up to the minute before, with room for the block's targets and pools.
        block: the minutes.
        budget: false episodes per server-month.
        holidays: days since 1970-01-01.
    """
    day = (block.first - 1) // DAY
    memory = replace(
        memory,
        peers=memory.peers.begun(day),
        contexts=memory.contexts.begun(day),
        thresholds=memory.thresholds.at(day, budget),
    )
    size, pools = len(block.counts), len(memory.pools)
    block, restarted = _settled(block, memory.restarted)

    own_counts = np.concatenate([memory.counts, block.counts])
    own_sums = np.concatenate([memory.sums, block.sums])
    by_target = running(own_counts, size, WINDOWS), running(own_sums, size, WINDOWS)
    own = shortest(*by_target)

    pool_counts = np.concatenate([memory.pool_counts, _pooled(block.counts, memory.of_pool, pools)])
    pool_sums = np.concatenate([memory.pool_sums, _pooled(block.sums, memory.of_pool, pools)])
    ends = (*WINDOWS, *HOUR_ENDS)
    by_length, sums_by_length = running(pool_counts, size, ends), running(pool_sums, size, ends)
    of_pools = {w: by_length[w] for w in WINDOWS}, {w: sums_by_length[w] for w in WINDOWS}
    seen: Bools = np.asarray(block.known.any(axis=2))
    members = _pooled(seen, memory.of_pool, pools)

    in_pool = np.where(memory.of_pool >= 0, memory.of_pool, 0)
    twins = (memory.of_pool >= 0) & (
        members[:, in_pool] >= LEAST_MEMBERS if pools else np.zeros((size, 1), dtype=bool)
    )
    asked = block.known & twins[..., None]
    scale, source = peer_scales(memory.peers, memory.of_pool)
    peers = against_twins(own, *of_pools, memory.of_pool, asked, memory.grid)
    furthest = worst(peers.statistic / scale, memory.of_pool, pools)
    peers = without_worst(
        peers, own, by_target, of_pools, memory.of_pool, furthest, asked, memory.grid
    )
    whole = shortest(*of_pools)
    past = Past(memory.hours, memory.hour_counts, memory.hour_sums, holidays)
    heard = _pooled(block.known, memory.of_pool, pools) > 0
    contexts = against_contexts(
        whole, by_length, sums_by_length, block.first, heard, past, memory.grid
    )
    memory, uneven, peer = _peers_lived(
        memory, block, peers, members, _scored(peers, scale, source)
    )
    dirty = _pooled(~block.clean & seen, memory.of_pool, pools)
    memory, shifted, drift = _contexts_lived(memory, block, contexts, 2 * dirty < members)

    keep = replace(
        memory,
        minute=block.first + size - 1,
        restarted=restarted,
        counts=own_counts[-KEEP:],
        sums=own_sums[-KEEP:],
        pool_counts=pool_counts[-KEEP_POOL:],
        pool_sums=pool_sums[-KEEP_POOL:],
    )
    names = memory.pools["pool"].to_list()
    for b in range(size):
        tries = due(names, block.first + b)
        if tries.any():
            quiet = ~np.isnan(drift.score[b]) & ~(shifted[0][b] > 0)[:, None]
            one = {w: c[b : b + 1] for w, c in by_length.items()}
            sums = {w: c[b : b + 1] for w, c in sums_by_length.items()}
            keep = tried(
                keep,
                whole.at(b),
                (one, sums),
                block.first + b,
                past,
                quiet & tries[:, None],
                drift.scale,
            )
    if keep.minute % 60 == 0:
        keep = _with_hour(keep, by_length[60][-1], sums_by_length[60][-1])
        keep = replace(keep, detectable=smallest(keep))
    told = Told(
        peer_score=peer.score,
        peer_ratio=np.exp(peers.mean),
        uneven=uneven[0],
        uneven_over=uneven[1],
        drift_score=drift.score,
        drift_ratio=np.exp(contexts.mean),
        shifted=shifted[0],
        shift_over=shifted[1],
        peer_source=peer.source,
        drift_source=drift.source,
    )
    return keep, told


@dataclass(frozen=True, slots=True)
class _Scored:
    """Scores [minutes, units, signals], their scales and whose those are [units, signals]."""

    score: Floats
    scale: Floats
    source: Integers


def _scored(compared: Compared, scale: Floats, source: Integers) -> _Scored:
    return _Scored(compared.statistic / scale, scale, source)


def _peers_lived(
    memory: Memory, block: Block, peers: Compared, members: Floats, scored: _Scored
) -> tuple[Memory, tuple[Floats, Floats], _Scored]:
    """States of targets through the block, and what is learnt of their usual distances."""
    size, units, _ = scored.score.shape
    state, thresholds, past = memory.uneven, memory.thresholds, memory.peers
    held = memory.held_peers
    on, over = np.full((size, units), np.nan), np.full((size, units), np.nan)
    calibrated = (scored.source < 2).all(axis=1)
    slots = np.arange(2 * units).reshape(units, 2)
    for b in range(size):
        score = np.where(np.isnan(scored.score[b]), -1.0, scored.score[b]).max(axis=1)
        score = np.where(score < 0, np.nan, score)
        may = leading(score, memory.of_pool, len(memory.pools)) & ~block.slow[b]
        now = reading(scored.score[b], peers.moved[b], peers.clearly[b], may)
        state, ended = step(state, block.first + b, now, thresholds.values[0])
        flagged = state.on()
        crowd = np.zeros(len(memory.pools) + 1)
        np.add.at(crowd, memory.of_pool, flagged)
        # where half of a pool differs from its twins, routing is sticky: twins say nothing there
        sticky = np.append(2 * crowd[:-1] >= members[b], False) & (crowd > 1)
        known = ~np.isnan(now.score) & ~sticky[memory.of_pool]
        on[b] = np.where(known, flagged & ~block.slow[b], np.nan)
        over[b] = np.where(known, state.calm >= CALM, np.nan)
        quiet = (crowd[memory.of_pool] == 0) | sticky[memory.of_pool]
        held = np.where(quiet[:, None], held, np.nan)
        learns = block.clean[b] & quiet
        past, held = _learnt(past, held, slots, peers.statistic[b], learns)
        counted = calibrated & block.clean[b]
        thresholds = thresholds.counted(
            0, np.where(counted, ended, 0.0), int((counted & known).sum())
        )
    return (
        replace(memory, uneven=state, thresholds=thresholds, peers=past, held_peers=held),
        (on, over),
        scored,
    )


def _contexts_lived(
    memory: Memory, block: Block, contexts: Compared, clean: Bools
) -> tuple[Memory, tuple[Floats, Floats], _Scored]:
    """The same for pools."""
    scored = _scored(contexts, *context_scales(memory.contexts))
    size, units, _ = scored.score.shape
    state: Watch = memory.shifted
    thresholds, past, held = memory.thresholds, memory.contexts, memory.held_contexts
    on, over = np.full((size, units), np.nan), np.full((size, units), np.nan)
    calibrated = (scored.source == 0).all(axis=1)
    slots = np.arange(2 * units).reshape(units, 2)
    everybody = np.ones(units, dtype=bool)
    for b in range(size):
        now = reading(scored.score[b], contexts.moved[b], contexts.clearly[b], everybody)
        state, ended = step(state, block.first + b, now, thresholds.values[1], longest=DAY)
        known = ~np.isnan(now.score)
        on[b] = np.where(known, state.on(), np.nan)
        over[b] = np.where(known, (state.calm >= CALM), np.nan)
        held = np.where(state.on()[:, None], np.nan, held)
        learns = clean[b] & ~state.on()
        past, held = _learnt(past, held, slots, contexts.statistic[b], learns)
        counted = calibrated & clean[b]
        thresholds = thresholds.counted(
            1, np.where(counted, ended, 0.0), int((counted & known).sum())
        )
    lived = replace(memory, shifted=state, thresholds=thresholds, contexts=past, held_contexts=held)
    return lived, (on, over), scored


def _learnt(
    past: Null, held: Floats, slots: Integers, values: Floats, learns: Bools
) -> tuple[Null, Floats]:
    """Distances wait until it is clear that they were not the beginning of a shift."""
    due = held[0]
    held = np.concatenate([held[1:], np.where(learns[:, None], values, np.nan)[None]])
    known = ~np.isnan(due)
    return (past.add(slots[known], due[known]) if known.any() else past), held


def _settled(block: Block, restarted: Integers) -> tuple[Block, Integers]:
    """Without the minutes after a restart; and each target's last restart."""
    minute = block.first + np.arange(len(block.counts))
    last = np.where(block.restarted, minute[:, None], np.iinfo(np.int64).min)
    last = np.maximum(np.maximum.accumulate(last, axis=0), restarted)
    young = minute[:, None] - last < SETTLING
    if not young.any():
        return block, last[-1]
    counts, sums, known = block.counts.copy(), block.sums.copy(), block.known & ~young[..., None]
    counts[young], sums[young] = 0.0, 0.0
    return replace(block, counts=counts, sums=sums, known=known), last[-1]


def _pooled(values: npt.NDArray[Any], of_pool: Integers, pools: int) -> Floats:
    """Sums over the targets of each pool: [minutes, targets, ...] → [minutes, pools, ...]."""
    out = np.zeros((len(values), pools, *values.shape[2:]))
    order = np.argsort(of_pool, kind="stable")
    order = order[of_pool[order] >= 0]
    if not len(order):
        return out
    ids, starts = np.unique(of_pool[order], return_index=True)
    out[:, ids] = np.add.reduceat(values[:, order].astype(np.float64), starts, axis=1)
    return out


def _with_hour(memory: Memory, counts: Floats, sums: Floats) -> Memory:
    """With the hour that has just ended, where anything finished in it; old hours go."""
    hour = memory.minute // 60 - 1
    kept = memory.hours > hour - KEEP_HOURS
    hours, past, tokens = memory.hours[kept], memory.hour_counts[kept], memory.hour_sums[kept]
    if (counts[..., -1] > 0).any():
        hours = np.append(hours, hour)
        past = np.concatenate([past, counts[None].astype(np.float32)])
        tokens = np.concatenate([tokens, sums[None]])
    return replace(memory, hours=hours, hour_counts=past, hour_sums=tokens)
