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
from dataclasses import dataclass, fields

import numpy as np

from driftwatch.arrays import Flags, Floats, Integers
from driftwatch.detect.distributions import cell_bounds, shares
from driftwatch.detect.lengths.episodes import CLEARLY, moved_enough
from driftwatch.detect.lengths.layouts import (
    MIN_REQUESTS,
    Latest,
    Window,
    by_window,
    distances,
    known_alike,
    shortest,
)

_PARTS: Floats = np.array([0.2, 0.35, 0.5, 0.65, 0.8])
# What each part must have moved by, where ten minutes are compared.
WHOLE = math.log(1.1)
# What a score counts for where one part of the distribution moved.
PART = 0.7


def weights(whole: Flags) -> Floats:
    """What scores count for, by whether all of the distribution moved."""
    of_scores: Floats = np.where(whole, 1.0, PART)
    return of_scores


def whole_moved(counts: Floats, peers: Floats, grid: Floats, least: float) -> Flags:
    """Whether every part of a distribution has moved by ``least`` (ln), all the same way.

    ``counts``, ``peers``: cumulative [n, edges]; NaN where an edge is not known.
    """
    whole = np.zeros(len(counts), dtype=bool)
    for rows, common in known_alike(~(np.isnan(counts) | np.isnan(peers))):
        edges = grid[common]
        if len(edges) < 2:
            continue
        moved = _ln_quantiles(counts[np.ix_(rows, common)], edges)
        moved -= _ln_quantiles(peers[np.ix_(rows, common)], edges)
        # a side without requests has no quantiles
        moved[(counts[rows, -1] <= 0) | (peers[rows, -1] <= 0)] = 0.0
        whole[rows] = (moved >= least).all(axis=1) | (moved <= -least).all(axis=1)
    return whole


def _ln_quantiles(cumulative: Floats, edges: Floats) -> Floats:
    """ln of the quantiles at :data:`_PARTS` [n, parts], linear in ln inside a cell."""
    below = np.cumsum(shares(np.maximum(np.diff(cumulative, axis=1, prepend=0.0), 0.0)), axis=1)
    lower, upper = (np.log(x) for x in cell_bounds(edges))
    cell = np.minimum((below[:, None, :] < _PARTS[:, None]).sum(axis=2), len(edges) - 1)
    until = np.take_along_axis(below, cell, axis=1)
    since = np.where(cell > 0, np.take_along_axis(below, np.maximum(cell - 1, 0), axis=1), 0.0)
    with np.errstate(invalid="ignore", divide="ignore"):
        inside = np.clip(np.nan_to_num((_PARTS - since) / (until - since)), 0.0, 1.0)
    quantiles: Floats = lower[cell] + inside * (upper - lower)[cell]
    return quantiles


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


QUICK = 5  # minutes
_Sums = Mapping[int, Floats]  # by window length


@dataclass(frozen=True, slots=True)
class Peers:
    """Who is compared with whom.

    Pools' sums have everybody in them: the peers' are those less the target's own.
    """

    of_pool: Integers  # place of each target's pool, -1 = none
    wanted: Flags  # where there is somebody to compare [minutes, targets, signals]
    scale: Floats  # of the statistic [targets, signals]; it holds for any number of requests
    grid: Floats  # [edges]

    def compared(self, targets: Latest, pools: Latest) -> Compared:
        """Every target's window against that of its peers, without the furthest of each pool.

        Its lengths are among those of the others' peers, and would make all of them seem odd.
        """
        own = shortest(targets.counts, targets.sums)
        first = self._against(own, *pools.in_windows, self.wanted)
        furthest = self._furthest(first.statistic / self.scale, len(pools.sums[QUICK][0]))
        if not (furthest >= 0).any():
            return first
        minute, pool = np.nonzero(furthest >= 0)
        target = furthest[minute, pool]
        less = []
        for of_pools, of_targets in zip(
            pools.in_windows, (targets.counts, targets.sums), strict=True
        ):
            parts = {w: values.copy() for w, values in of_pools.items()}
            for w, values in parts.items():
                values[minute, pool] -= of_targets[w][minute, target]
            less.append(parts)
        others = (furthest >= 0)[:, self.of_pool] & (self.of_pool >= 0)
        others[minute, target] = False
        again = others[..., None] & self.wanted
        second = self._against(own, less[0], less[1], again)
        return Compared(
            *(
                np.where(again, getattr(second, f.name), getattr(first, f.name))
                for f in fields(Compared)
            )
        )

    def _against(
        self, own: Window, pool_counts: _Sums, pool_sums: _Sums, wanted: Flags
    ) -> Compared:
        shape = own.sums.shape
        statistic, mean = np.full(shape, np.nan), np.full(shape, np.nan)
        moved, clearly, whole = (np.zeros(shape, dtype=bool) for _ in range(3))
        nothing = Compared(statistic, mean, moved, clearly, whole)
        shortest_window = min(pool_counts)
        if not len(pool_counts[shortest_window][0]):
            return nothing
        counts = {w: c[:, self.of_pool] for w, c in pool_counts.items()}
        sums = {w: c[:, self.of_pool] for w, c in pool_sums.items()}
        peers = by_window(counts, own.minutes, counts[shortest_window]) - own.counts
        peers = np.maximum(peers, 0.0)
        tokens = by_window(sums, own.minutes, sums[shortest_window]) - own.sums
        there = wanted & (own.minutes > 0) & (peers[..., -1] >= MIN_REQUESTS)
        if not there.any():
            return nothing
        n, m = own.requests[there], peers[there][:, -1]
        apart = distances(own.counts[there], peers[there], self.grid)
        ratio = ln_mean_ratio(own.sums[there], n, tokens[there], m)
        statistic[there] = apart.js * np.sqrt(n * m / (n + m))
        mean[there] = ratio
        moved[there], clearly[there] = moved_enough(apart, ratio)
        with np.errstate(invalid="ignore"):
            far = moved & (statistic > self.scale)
        whole[far] = whole_moved(own.counts[far], peers[far], self.grid, WHOLE)
        return nothing

    def _furthest(self, scores: Floats, pools: int) -> Integers:
        """The target of each pool that is unusually far off [minutes, pools]; -1 = none."""
        furthest = np.full((len(scores), pools), -1, dtype=np.int64)
        highest = np.where(np.isnan(scores), 0.0, scores).max(axis=2)
        for minute, target in zip(*np.nonzero((highest > 1.0) & (self.of_pool >= 0)), strict=True):
            pool = self.of_pool[target]
            so_far = furthest[minute, pool]
            if so_far < 0 or highest[minute, target] > highest[minute, so_far]:
                furthest[minute, pool] = target
        return furthest

    def five_minute_scores(self, targets: Latest, pools: Latest) -> Floats:
        """Scores of targets whose whole distribution has moved by :data:`CLEARLY` in five minutes.

        Only the furthest of each pool. Highest of the signals [minutes, targets]; 0 = none.
        """
        counts, sums = targets.counts[QUICK], targets.sums[QUICK]
        of_pools = pools.counts[QUICK], pools.sums[QUICK]
        scores = np.zeros(sums.shape[:2])
        if not of_pools[1].shape[1]:
            return scores
        n = counts[..., -1]
        others = of_pools[0][..., -1][:, self.of_pool] - n
        tokens = of_pools[1][:, self.of_pool] - sums
        with np.errstate(invalid="ignore"):
            # few get this far, so that all else costs next to nothing
            far = np.abs(ln_mean_ratio(sums, n, tokens, others)) >= CLEARLY
        far &= self.wanted & (n >= MIN_REQUESTS)
        if not far.any():
            return scores
        own = Window(np.where(far, QUICK, 0), counts, sums)
        apart = self._against(own, {QUICK: of_pools[0]}, {QUICK: of_pools[1]}, self.wanted)
        clear, score = apart.clearly, apart.statistic / self.scale
        peers = np.maximum(of_pools[0][:, self.of_pool] - counts, 0.0)
        clear[clear] = whole_moved(counts[clear], peers[clear], self.grid, CLEARLY)
        furthest = np.where(np.isnan(score), 0.0, score).max(axis=2)
        scores[:] = np.where(clear, score, 0.0).max(axis=2)
        for minute, target in zip(*np.nonzero(scores), strict=True):
            pool = self.of_pool == self.of_pool[target]
            if furthest[minute, pool].max() > scores[minute, target]:
                scores[minute, target] = 0.0
        return scores


def ln_mean_ratio(sums: Floats, counts: Floats, of_sums: Floats, of_counts: Floats) -> Floats:
    """ln((S/n)/(S_r/n_r)), signed; NaN where a sum is unknown or nothing."""
    with np.errstate(invalid="ignore", divide="ignore"):
        ratio: Floats = np.log((sums / counts) / (of_sums / of_counts))
    ratio[~np.isfinite(ratio)] = np.nan
    return ratio


def leading(scores: Floats, of_pool: Integers, pools: int) -> Flags:
    """Which targets are at least half as far from their peers as the furthest of the pool.

    ``scores``: of one minute [targets]; NaN = no verdict.
    """
    furthest = np.zeros(pools + 1)
    filled = np.where(np.isnan(scores), 0.0, scores)
    np.maximum.at(furthest, of_pool, filled)
    leads: Flags = filled >= 0.5 * furthest[of_pool]
    return leads
