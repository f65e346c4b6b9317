"""A block of minutes folded into the memory: scores, states, and what is learnt from them.

A block lies within one hour and keeps every target in its pool, so that nothing that is learnt
at the end of an hour or a day is needed earlier.
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from driftwatch.arrays import Flags, Floats, Integers
from driftwatch.detect.lengths.contexts import HOUR_ENDS, Past, against_contexts
from driftwatch.detect.lengths.detectable import due, smallest, with_trials
from driftwatch.detect.lengths.layouts import WINDOWS, Latest, Window, running, shortest
from driftwatch.detect.lengths.memory import KEEP, KEEP_HOURS, KEEP_POOL, Memory
from driftwatch.detect.lengths.peers import LEAST_MEMBERS, QUICK, Compared, Peers
from driftwatch.detect.lengths.scales import context_scales, peer_scales
from driftwatch.detect.lengths.states import DAY, Block, pool_states, target_states

# after a restart only short generations have had the time to finish
SETTLING = 10


def fold(
    memory: Memory, block: Block, budget: float, holidays: Set[int]
) -> tuple[Memory, dict[str, Floats]]:
    """One block on; ``budget``: false episodes per server-month; ``holidays``: since 1970-01-01.

    Returns by name: scores and ratios [minutes, units, signals], states [minutes, units], NaN where
    unknown, and sources (places in ``scales.SOURCES``) [units, signals].
    """
    memory = _on_day(memory, (block.first - 1) // DAY, budget)
    block, restarted = _without_restarts(block, memory.targets["restarted"])
    full = _appended(memory, block)
    targets, pools = _latest(full, len(block.counts))
    with_any: Flags = np.asarray(block.is_known.any(axis=2))
    members = _pooled(with_any, memory)

    scale, source = peer_scales(memory.peers, memory.targets["of_pool"])
    peers, quick = _against_peers(memory, block, targets, pools, members, scale)
    scores, calibrated = peers.statistic / scale, np.asarray((source < 2).all(axis=1))
    memory, uneven = target_states(memory, block, peers, scores, calibrated, members, quick)

    past = Past(memory.hours, memory.pools["hour_counts"], memory.pools["hour_sums"], holidays)
    window = shortest(pools.counts, pools.sums)
    with_value = _pooled(block.is_known, memory) > 0
    contexts, distances = against_contexts(
        window, pools.counts, pools.sums, block.first, with_value, past, memory.grid
    )
    drift_scale, drift_source = context_scales(memory.contexts)
    drift = contexts.statistic / drift_scale
    calibrated = np.asarray((drift_source == 0).all(axis=1))
    clean = 2 * _pooled(~block.clean & with_any, memory) < members
    memory, shifted = pool_states(memory, block, contexts, drift, calibrated, distances, clean)

    memory = _trimmed(memory, full, restarted)
    quiet = ~np.isnan(drift) & ~(shifted[0] > 0)[..., None]
    memory = _with_trials(memory, block, window, pools, past, quiet, drift_scale)
    if memory.minute % 60 == 0:
        memory = _with_hour(memory, pools.counts[60][-1], pools.sums[60][-1])
        memory = memory.of_pools(detectable=smallest(memory))
    return memory, {
        "peer_score": scores,
        "peer_ratio": np.exp(peers.mean),
        "peer_source": source,
        "traffic_uneven": uneven[0],
        "traffic_uneven_over": uneven[1],
        "drift_score": drift,
        "drift_ratio": np.exp(contexts.mean),
        "drift_source": drift_source,
        "traffic_shifted": shifted[0],
        "traffic_shift_over": shifted[1],
    }


def _on_day(memory: Memory, day: int, budget: float) -> Memory:
    """On the day that the block lies in."""
    return replace(
        memory,
        peers=memory.peers.begun(day),
        contexts=memory.contexts.begun(day),
        thresholds=memory.thresholds.at(day, budget),
    )


def _appended(memory: Memory, block: Block) -> Memory:
    """With the block's minutes behind those that are kept."""
    before, of_pools = memory.targets, memory.pools
    return memory.of_targets(
        {"minute": block.first + len(block.counts) - 1},
        counts=np.concatenate([before["counts"], block.counts]),
        sums=np.concatenate([before["sums"], block.sums]),
    ).of_pools(
        counts=np.concatenate([of_pools["counts"], _pooled(block.counts, memory)]),
        sums=np.concatenate([of_pools["sums"], _pooled(block.sums, memory)]),
    )


def _latest(full: Memory, size: int) -> tuple[Latest, Latest]:
    """Of targets, and of pools, whose hours are compared as well."""
    short = (QUICK, *WINDOWS)
    ends = (*short, *HOUR_ENDS)
    targets, pools = full.targets, full.pools
    return (
        Latest(running(targets["counts"], size, short), running(targets["sums"], size, short)),
        Latest(running(pools["counts"], size, ends), running(pools["sums"], size, ends)),
    )


def _against_peers(
    memory: Memory, block: Block, targets: Latest, pools: Latest, members: Floats, scale: Floats
) -> tuple[Compared, Floats]:
    """Targets against their peers, the furthest of each pool left out; and in five minutes."""
    of_pool, size, number = memory.targets["of_pool"], len(block.counts), len(memory.pools)
    in_pool = np.where(of_pool >= 0, of_pool, 0)
    enough = members[:, in_pool] >= LEAST_MEMBERS if number else np.zeros((size, 1), dtype=bool)
    wanted = block.is_known & ((of_pool >= 0) & enough)[..., None]

    peers = Peers(of_pool, wanted, scale, memory.grid)
    return peers.compared(targets, pools), peers.five_minute_scores(targets, pools)


def _trimmed(memory: Memory, full: Memory, restarted: Integers) -> Memory:
    """What was learnt, with as many of the minutes as are kept."""
    targets, pools = full.targets, full.pools
    return memory.of_targets(
        {"minute": full.minute},
        restarted=restarted,
        counts=targets["counts"][-KEEP:],
        sums=targets["sums"][-KEEP:],
    ).of_pools(counts=pools["counts"][-KEEP_POOL:], sums=pools["sums"][-KEEP_POOL:])


def _with_trials(
    memory: Memory,
    block: Block,
    window: Window,
    pools: Latest,
    past: Past,
    quiet: Flags,
    scale: Floats,
) -> Memory:
    """With factors tried on those pools that are due, have a verdict, and are not shifted."""
    names = memory.pools.keys["pool"].to_list()
    for minute in range(len(block.counts)):
        turn = due(names, block.first + minute)
        if not turn.any():
            continue
        memory = with_trials(
            memory,
            window.at(minute),
            pools.at(minute),
            block.first + minute,
            past,
            quiet[minute] & turn[:, None],
            scale,
        )
    return memory


def _without_restarts(block: Block, restarted: Integers) -> tuple[Block, Integers]:
    """Without the minutes after a restart; and each target's last restart."""
    minute = block.first + np.arange(len(block.counts))
    last = np.where(block.restarted, minute[:, None], np.iinfo(np.int64).min)
    last = np.maximum(np.maximum.accumulate(last, axis=0), restarted)
    young = minute[:, None] - last < SETTLING
    if not young.any():
        return block, last[-1]
    counts, sums = block.counts.copy(), block.sums.copy()
    is_known = block.is_known & ~young[..., None]
    counts[young], sums[young] = 0.0, 0.0
    return replace(block, counts=counts, sums=sums, is_known=is_known), last[-1]


def _pooled(values: npt.NDArray[Any], memory: Memory) -> Floats:
    """Sums over the targets of each pool: [minutes, targets, ...] → [minutes, pools, ...]."""
    of_pool = memory.targets["of_pool"]
    out = np.zeros((len(values), len(memory.pools), *values.shape[2:]))
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
    recent = memory.hours > hour - KEEP_HOURS
    hours, pools = memory.hours[recent], memory.pools
    past, tokens = pools["hour_counts"][recent], pools["hour_sums"][recent]
    if (counts[..., -1] > 0).any():
        hours = np.append(hours, hour)
        past = np.concatenate([past, counts[None].astype(np.float32)])
        tokens = np.concatenate([tokens, sums[None]])
    return memory.of_pools({"hours": hours}, hour_counts=past, hour_sums=tokens)
