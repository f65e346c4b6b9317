"""Five minutes against the twins': lengths that doubled are told of before ten minutes are full.

Only where all of the distribution moved by :data:`CLEARLY`. On ServeGen's days 1-7 (10 servers, 2.9
requests a second each, 4.7 server-months) one burst did so with a JS x sqrt(n) above 5.6.
"""

from __future__ import annotations

import numpy as np

from driftwatch.detect.distributions.cells import Floats
from driftwatch.detect.lengths.episodes import CLEARLY, Integers
from driftwatch.detect.lengths.layouts import Bools
from driftwatch.detect.lengths.peers import against_twins, ln_mean_ratio
from driftwatch.detect.lengths.whole import whole_moved
from driftwatch.detect.lengths.windows import MIN_REQUESTS, Window

QUICK = 5  # minutes


def quickly(
    counts: Floats,
    sums: Floats,
    of_pools: tuple[Floats, Floats],
    of_pool: Integers,
    asked: Bools,
    scale: Floats,
    grid: Floats,
) -> Floats:
    """Scores of targets whose whole distribution has moved by :data:`CLEARLY` in five minutes.

    Only the furthest of each pool: it is among the twins of the others.

    Args:
        counts: cumulative, of the latest :data:`QUICK` minutes [minutes, targets, signals, edges].
        sums: of tokens [minutes, targets, signals].
        of_pools: the same two of pools.
        of_pool: place of each target's pool, -1 = none.
        asked: where there is somebody to compare [minutes, targets, signals].
        scale: of ten minutes' statistic [targets, signals]; it holds for any number of requests.
        grid: [edges].

    Returns:
        The highest of the signals [minutes, targets]; 0 = none.
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
    apart = against_twins(own, *pools, of_pool, asked, scale, grid)
    clear = apart.clearly
    twins = np.maximum(of_pools[0][:, of_pool] - counts, 0.0)
    clear[clear] = whole_moved(counts[clear], twins[clear], grid, CLEARLY)
    furthest = np.where(np.isnan(apart.statistic), 0.0, apart.statistic / scale).max(axis=2)
    found[:] = np.where(clear, apart.statistic / scale, 0.0).max(axis=2)
    for minute, target in zip(*np.nonzero(found), strict=True):
        pool = of_pool == of_pool[target]
        if furthest[minute, pool].max() > found[minute, target]:
            found[minute, target] = 0.0
    return found
