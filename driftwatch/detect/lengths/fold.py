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
from driftwatch.detect.lengths.episodes import Integers
from driftwatch.detect.lengths.layouts import Bools
from driftwatch.detect.lengths.lives import DAY, Block, contexts_lived, peers_lived, scored_by
from driftwatch.detect.lengths.memory import KEEP, KEEP_HOURS, KEEP_POOL, Memory
from driftwatch.detect.lengths.peers import LEAST_MEMBERS, against_twins, without_worst, worst
from driftwatch.detect.lengths.quick import QUICK, quickly
from driftwatch.detect.lengths.scales import peer_scales
from driftwatch.detect.lengths.windows import WINDOWS, running, shortest

# after a restart only short generations have had the time to finish
SETTLING = 10


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
    lasting = (QUICK, *WINDOWS)
    by_target = running(own_counts, size, lasting), running(own_sums, size, lasting)
    own = shortest(*by_target)

    pool_counts = np.concatenate([memory.pool_counts, _pooled(block.counts, memory.of_pool, pools)])
    pool_sums = np.concatenate([memory.pool_sums, _pooled(block.sums, memory.of_pool, pools)])
    ends = (*lasting, *HOUR_ENDS)
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
    peers = against_twins(own, *of_pools, memory.of_pool, asked, scale, memory.grid)
    furthest = worst(peers.statistic / scale, memory.of_pool, pools)
    peers = without_worst(
        peers, own, by_target, of_pools, memory.of_pool, furthest, asked, scale, memory.grid
    )
    quick = quickly(
        by_target[0][QUICK],
        by_target[1][QUICK],
        (by_length[QUICK], sums_by_length[QUICK]),
        memory.of_pool,
        asked,
        scale,
        memory.grid,
    )
    whole = shortest(*of_pools)
    past = Past(memory.hours, memory.hour_counts, memory.hour_sums, holidays)
    heard = _pooled(block.known, memory.of_pool, pools) > 0
    contexts = against_contexts(
        whole, by_length, sums_by_length, block.first, heard, past, memory.grid
    )
    memory, uneven, peer = peers_lived(
        memory, block, peers, members, scored_by(peers, scale, source), quick
    )
    dirty = _pooled(~block.clean & seen, memory.of_pool, pools)
    memory, shifted, drift = contexts_lived(memory, block, contexts, 2 * dirty < members)

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
