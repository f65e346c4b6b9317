"""One target against its peers: the same pool, the same minutes, without the target.

Requests are spread over peers alike, so what is left is chance and bursts: JS falls with the
square root of the requests, whatever their number. So the scale is kept for JS x sqrt(n_eff).

A burst of one client is as far from the peers as a server whose lengths all changed, but it moves
one part of the distribution. Where all parts moved the same way, less is needed; where they moved
by :data:`CLEARLY`, five minutes are enough.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from driftwatch.arrays import Flags, Floats, Integers
from driftwatch.detect.distributions import cell_bounds, shares
from driftwatch.detect.lengths.episodes import CLEARLY, moved_enough
from driftwatch.detect.lengths.layouts import (
    MIN_REQUESTS,
    Window,
    by_window,
    distances,
    known_alike,
)

_PARTS: Floats = np.array([0.2, 0.35, 0.5, 0.65, 0.8])
# What each part must have moved by, where ten minutes are compared.
WHOLE = math.log(1.1)
# What a score counts for where one part of the distribution moved.
PART = 0.7


def weights(whole: Flags) -> Floats:
    """What scores count for, by whether all of the distribution moved."""
    found: Floats = np.where(whole, 1.0, PART)
    return found


def whole_moved(counts: Floats, peers: Floats, grid: Floats, least: float) -> Flags:
    """Whether every part of a distribution has moved, all the same way.

    ``counts``: cumulative [n, edges]; NaN where an edge is not known; ``peers``: the same;
    ``grid``: [edges]; ``least``: by how much, in ln.
    """
    found = np.zeros(len(counts), dtype=bool)
    for rows, common in known_alike(~(np.isnan(counts) | np.isnan(peers))):
        edges = grid[common]
        if len(edges) < 2:
            continue
        moved = _ln_quantiles(counts[np.ix_(rows, common)], edges)
        moved -= _ln_quantiles(peers[np.ix_(rows, common)], edges)
        # a side without requests has no quantiles
        moved[(counts[rows, -1] <= 0) | (peers[rows, -1] <= 0)] = 0.0
        found[rows] = (moved >= least).all(axis=1) | (moved <= -least).all(axis=1)
    return found


def _ln_quantiles(cumulative: Floats, edges: Floats) -> Floats:
    """ln of the quantiles at :data:`_PARTS` [n, parts], linear in ln inside a cell."""
    below = np.cumsum(shares(np.maximum(np.diff(cumulative, axis=1, prepend=0.0), 0.0)), axis=1)
    lower, upper = (np.log(x) for x in cell_bounds(edges))
    cell = np.minimum((below[:, None, :] < _PARTS[:, None]).sum(axis=2), len(edges) - 1)
    until = np.take_along_axis(below, cell, axis=1)
    since = np.where(cell > 0, np.take_along_axis(below, np.maximum(cell - 1, 0), axis=1), 0.0)
    with np.errstate(invalid="ignore", divide="ignore"):
        inside = np.clip(np.nan_to_num((_PARTS - since) / (until - since)), 0.0, 1.0)
    found: Floats = lower[cell] + inside * (upper - lower)[cell]
    return found


LEAST_MEMBERS = 3


@dataclass(frozen=True, slots=True)
class Compared:
    """Windows against what they are compared with, each [minutes, units, signals]."""

    statistic: Floats  # JS x sqrt(requests); NaN = no verdict
    mean: Floats  # ln of the ratio of means, NaN = unknown
    moved: Flags  # see :func:`driftwatch.detect.lengths.episodes.moved_enough`
    clearly: Flags  # the same
    # see :func:`driftwatch.detect.lengths.peers.whole_moved`; only of what has ``moved`` by more
    # than is usual
    whole: Flags


def against_peers(
    own: Window,
    pool_counts: Mapping[int, Floats],
    pool_sums: Mapping[int, Floats],
    of_pool: Integers,
    asked: Flags,
    scale: Floats,
    grid: Floats,
) -> Compared:
    """Every target's window against that of its peers.

    ``own``: of targets; ``pool_counts``: window length → cumulative counts [minutes, pools,
    signals, edges]; ``pool_sums``: of tokens [minutes, pools, signals]; ``of_pool``: place of each
    target's pool, -1 = none; ``asked``: where there is somebody to compare [minutes, targets,
    signals]; ``scale``: of the statistic [targets, signals]; ``grid``: [edges].
    """
    shape = own.sums.shape
    statistic, mean = np.full(shape, np.nan), np.full(shape, np.nan)
    moved, clearly, whole = (np.zeros(shape, dtype=bool) for _ in range(3))
    if not pool_counts or not len(next(iter(pool_counts.values()))[0]):
        return Compared(statistic, mean, moved, clearly, whole)
    first = min(pool_counts)
    counts = {w: c[:, of_pool] for w, c in pool_counts.items()}
    sums = {w: c[:, of_pool] for w, c in pool_sums.items()}
    peers = np.maximum(by_window(counts, own.minutes, counts[first]) - own.counts, 0.0)
    tokens = by_window(sums, own.minutes, sums[first]) - own.sums
    there = asked & (own.minutes > 0) & (peers[..., -1] >= MIN_REQUESTS)
    if not there.any():
        return Compared(statistic, mean, moved, clearly, whole)
    n, m = own.requests[there], peers[there][:, -1]
    apart = distances(own.counts[there], peers[there], grid)
    ratio = ln_mean_ratio(own.sums[there], n, tokens[there], m)
    statistic[there] = apart.js * np.sqrt(n * m / (n + m))
    mean[there] = ratio
    moved[there], clearly[there] = moved_enough(apart, ratio)
    with np.errstate(invalid="ignore"):
        far = moved & (statistic > scale)
    whole[far] = whole_moved(own.counts[far], peers[far], grid, WHOLE)
    return Compared(statistic, mean, moved, clearly, whole)


def furthest_of(scores: Floats, of_pool: Integers, pools: int) -> Integers:
    """Place of the target that is furthest from its peers, where that is more than usual.

    ``scores``: [minutes, targets, signals]; NaN = no verdict; ``of_pool``: place of each target's
    pool, -1 = none; ``pools``: number of pools.
    Returns: [minutes, pools]; -1 = none.
    """
    found = np.full((len(scores), pools), -1, dtype=np.int64)
    highest = np.where(np.isnan(scores), 0.0, scores).max(axis=2)
    for minute, target in zip(*np.nonzero((highest > 1.0) & (of_pool >= 0)), strict=True):
        pool = of_pool[target]
        so_far = found[minute, pool]
        if so_far < 0 or highest[minute, target] > highest[minute, so_far]:
            found[minute, pool] = target
    return found


def without_worst(
    compared: Compared,
    own: Window,
    by_target: tuple[Mapping[int, Floats], Mapping[int, Floats]],
    by_pool: tuple[Mapping[int, Floats], Mapping[int, Floats]],
    of_pool: Integers,
    furthest: Integers,
    asked: Flags,
    scale: Floats,
    grid: Floats,
) -> Compared:
    """The others of a pool compared once more, with their furthest left out of their peers.

    Its lengths are among theirs, and would make all of them seem odd.

    ``compared``: of :func:`against_peers`; ``own``: of targets; ``by_target``: window length →
    counts and sums of targets; ``by_pool``: the same of pools; ``of_pool``: place of each target's
    pool, -1 = none; ``furthest``: of :func:`furthest_of`; ``asked``: as for :func:`against_peers`;
    ``scale``: the same; ``grid``: [edges].
    """
    if not (furthest >= 0).any():
        return compared
    minute, pool = np.nonzero(furthest >= 0)
    target = furthest[minute, pool]
    less = []
    for pools, targets in zip(by_pool, by_target, strict=True):
        parts = {w: values.copy() for w, values in pools.items()}
        for w, values in parts.items():
            values[minute, pool] -= targets[w][minute, target]
        less.append(parts)
    others = (furthest >= 0)[:, of_pool] & (of_pool >= 0)
    others[minute, target] = False
    again = others[..., None] & asked
    found = against_peers(own, less[0], less[1], of_pool, again, scale, grid)
    return Compared(
        np.where(again, found.statistic, compared.statistic),
        np.where(again, found.mean, compared.mean),
        np.where(again, found.moved, compared.moved),
        np.where(again, found.clearly, compared.clearly),
        np.where(again, found.whole, compared.whole),
    )


def ln_mean_ratio(sums: Floats, counts: Floats, of_sums: Floats, of_counts: Floats) -> Floats:
    """ln((S/n)/(S_r/n_r)), signed; NaN where a sum is unknown or nothing."""
    with np.errstate(invalid="ignore", divide="ignore"):
        found: Floats = np.log((sums / counts) / (of_sums / of_counts))
    found[~np.isfinite(found)] = np.nan
    return found


def leading(scores: Floats, of_pool: Integers, pools: int) -> Flags:
    """Which targets are at least half as far from their peers as the furthest of the pool.

    Where two differ, each is among the peers of the rest; only those that lead are told of.

    ``scores``: of one minute [targets]; NaN = no verdict; ``of_pool``: place of each target's pool,
    -1 = none; ``pools``: number of pools.
    """
    furthest = np.zeros(pools + 1)
    known = np.where(np.isnan(scores), 0.0, scores)
    np.maximum.at(furthest, of_pool, known)
    found: Flags = known >= 0.5 * furthest[of_pool]
    return found


QUICK = 5  # minutes


def five_minute_scores(
    counts: Floats,
    sums: Floats,
    of_pools: tuple[Floats, Floats],
    of_pool: Integers,
    asked: Flags,
    scale: Floats,
    grid: Floats,
) -> Floats:
    """Scores of targets whose whole distribution has moved by :data:`CLEARLY` in five minutes.

    Only the furthest of each pool: it is among the peers of the others.

    ``counts``: cumulative, of the latest :data:`QUICK` minutes [minutes, targets, signals, edges];
    ``sums``: of tokens [minutes, targets, signals]; ``of_pools``: the same two of pools;
    ``of_pool``: place of each target's pool, -1 = none; ``asked``: where there is somebody to
    compare [minutes, targets, signals]; ``scale``: of ten minutes' statistic [targets, signals]; it
    holds for any number of requests; ``grid``: [edges].
    Returns: the highest of the signals [minutes, targets]; 0 = none.
    """
    found = np.zeros(sums.shape[:2])
    if not of_pools[1].shape[1]:
        return found
    n = counts[..., -1]
    others = of_pools[0][..., -1][:, of_pool] - n
    tokens = of_pools[1][:, of_pool] - sums
    with np.errstate(invalid="ignore"):
        # few get this far, so that all else costs next to nothing
        far = np.abs(ln_mean_ratio(sums, n, tokens, others)) >= CLEARLY
    far &= asked & (n >= MIN_REQUESTS)
    if not far.any():
        return found
    own = Window(np.where(far, QUICK, 0), counts, sums)
    pools = {QUICK: of_pools[0]}, {QUICK: of_pools[1]}
    apart = against_peers(own, *pools, of_pool, asked, scale, grid)
    clear = apart.clearly
    peers = np.maximum(of_pools[0][:, of_pool] - counts, 0.0)
    clear[clear] = whole_moved(counts[clear], peers[clear], grid, CLEARLY)
    furthest = np.where(np.isnan(apart.statistic), 0.0, apart.statistic / scale).max(axis=2)
    found[:] = np.where(clear, apart.statistic / scale, 0.0).max(axis=2)
    for minute, target in zip(*np.nonzero(found), strict=True):
        pool = of_pool == of_pool[target]
        if furthest[minute, pool].max() > found[minute, target]:
            found[minute, target] = 0.0
    return found
