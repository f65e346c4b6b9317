"""One target against its twins: the same pool, the same minutes, without the target.

Requests are spread over twins alike, so what is left is chance and bursts: JS falls with the
square root of the requests, whatever their number (measured on ServeGen and Azure from 115 to
130,000 requests a window: the 99 % quantile of JS x sqrt(n) moves by less than a fifth over a day
of fivefold load, that of JS itself threefold). So the scale is kept for JS x sqrt(n_eff).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from driftwatch.detect.distributions.cells import Floats
from driftwatch.detect.lengths.episodes import Integers, moved_enough
from driftwatch.detect.lengths.layouts import Bools, distances
from driftwatch.detect.lengths.whole import WHOLE, whole_moved
from driftwatch.detect.lengths.windows import MIN_REQUESTS, Window, chosen

LEAST_MEMBERS = 3


@dataclass(frozen=True, slots=True)
class Compared:
    """Windows against what they are compared with, each [minutes, units, signals].

    Attributes:
        statistic: JS x sqrt(requests); NaN = no verdict.
        mean: ln of the ratio of means, NaN = unknown.
        moved: see :func:`driftwatch.detect.lengths.episodes.moved_enough`.
        clearly: the same.
        whole: see :func:`driftwatch.detect.lengths.whole.whole_moved`; only of what has
            ``moved`` by more than is usual.
    """

    statistic: Floats
    mean: Floats
    moved: Bools
    clearly: Bools
    whole: Bools


def against_twins(
    own: Window,
    pool_counts: Mapping[int, Floats],
    pool_sums: Mapping[int, Floats],
    of_pool: Integers,
    asked: Bools,
    scale: Floats,
    grid: Floats,
) -> Compared:
    """Every target's window against that of its twins.

    Args:
        own: of targets.
        pool_counts: window length → cumulative counts [minutes, pools, signals, edges].
        pool_sums: of tokens [minutes, pools, signals].
        of_pool: place of each target's pool, -1 = none.
        asked: where there is somebody to compare [minutes, targets, signals].
        scale: of the statistic [targets, signals].
        grid: [edges].
    """
    shape = own.sums.shape
    statistic, mean = np.full(shape, np.nan), np.full(shape, np.nan)
    moved, clearly, whole = (np.zeros(shape, dtype=bool) for _ in range(3))
    if not pool_counts or not len(next(iter(pool_counts.values()))[0]):
        return Compared(statistic, mean, moved, clearly, whole)
    first = min(pool_counts)
    counts = {w: c[:, of_pool] for w, c in pool_counts.items()}
    sums = {w: c[:, of_pool] for w, c in pool_sums.items()}
    twins = np.maximum(chosen(counts, own.minutes, counts[first]) - own.counts, 0.0)
    tokens = chosen(sums, own.minutes, sums[first]) - own.sums
    there = asked & (own.minutes > 0) & (twins[..., -1] >= MIN_REQUESTS)
    if not there.any():
        return Compared(statistic, mean, moved, clearly, whole)
    n, m = own.requests[there], twins[there][:, -1]
    apart = distances(own.counts[there], twins[there], grid)
    ratio = ln_mean_ratio(own.sums[there], n, tokens[there], m)
    statistic[there] = apart.js * np.sqrt(n * m / (n + m))
    mean[there] = ratio
    moved[there], clearly[there] = moved_enough(apart, ratio)
    with np.errstate(invalid="ignore"):
        far = moved & (statistic > scale)
    whole[far] = whole_moved(own.counts[far], twins[far], grid, WHOLE)
    return Compared(statistic, mean, moved, clearly, whole)


def worst(scores: Floats, of_pool: Integers, pools: int) -> Integers:
    """Place of the target that is furthest from its twins, where that is more than usual.

    Args:
        scores: [minutes, targets, signals]; NaN = no verdict.
        of_pool: place of each target's pool, -1 = none.
        pools: number of pools.

    Returns:
        [minutes, pools]; -1 = none.
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
    asked: Bools,
    scale: Floats,
    grid: Floats,
) -> Compared:
    """The others of a pool compared once more, with their furthest left out of their twins.

    Its lengths are among theirs, and would make all of them seem odd.

    Args:
        compared: of :func:`against_twins`.
        own: of targets.
        by_target: window length → counts and sums of targets.
        by_pool: the same of pools.
        of_pool: place of each target's pool, -1 = none.
        furthest: of :func:`worst`.
        asked: as for :func:`against_twins`.
        scale: the same.
        grid: [edges].
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
    found = against_twins(own, less[0], less[1], of_pool, again, scale, grid)
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


def leading(scores: Floats, of_pool: Integers, pools: int) -> Bools:
    """Which targets are at least half as far from their twins as the furthest of the pool.

    Where two differ, each is among the twins of the rest; only those that lead are told of.

    Args:
        scores: of one minute [targets]; NaN = no verdict.
        of_pool: place of each target's pool, -1 = none.
        pools: number of pools.
    """
    furthest = np.zeros(pools + 1)
    known = np.where(np.isnan(scores), 0.0, scores)
    np.maximum.at(furthest, of_pool, known)
    found: Bools = known >= 0.5 * furthest[of_pool]
    return found
