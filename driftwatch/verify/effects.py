"""Every figure at matched traffic, before and after, and the interval of its difference.

A minute after the change is compared with the mean of its neighbours before it, which one
regression moves to the minute's own traffic. The error of the difference is that of a moving-block
bootstrap (Künsch, Annals of Statistics 17, 1989): neighbouring minutes share queues and long
requests, so whole blocks are drawn. The variance of a sum has a closed form, so no draw is needed.
An engine's speed also wanders by some per cent over hours, which no block shows. That is no effect
of a change: its variance is added. Times and rates are compared by their logarithm.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from driftwatch.arrays import Floats, Integers
from driftwatch.model import Slo
from driftwatch.verify.figures import E2E, FIGURES, IN_TARGET, RUNNING, TOKENS, TTFT, WAIT, parts
from driftwatch.verify.matching import Matched
from driftwatch.verify.verification import Effect

# Length of a block: a queue and the longest requests are over by then. A short stretch has shorter
# blocks, at least FEWEST_BLOCKS.
BLOCK_MINUTES, FEWEST_BLOCKS = 20, 4
# How much a figure wanders at equal load without a change: standard deviation of its logarithm (a
# share p: divided by p (1 - p)), and correlation time. Queues amplify a few per cent of speed.
WANDER = {TTFT: 0.18, WAIT: 0.3, E2E: 0.09, RUNNING: 0.08, TOKENS: 0.06}
WANDER_ELSE, WANDER_SHARE, WANDER_MINUTES = 0.045, 0.4, 120.0
# Prior standard deviation of a slope of the logarithm, and the farthest that traffic moves a
# figure: a factor of e.
SLOPE_SD, FARTHEST = 1.0, 1.0
LEAST_NOISE = 1e-8  # variance of a minute


def effects_of(
    matched: Matched, slo: Slo | None, forecast: Mapping[str, float], confidence: float
) -> dict[str, tuple[Effect, float]]:
    """Figure → its effect, and the share of its variance that later minutes cannot reduce.

    Only figures that both sides know, in the order of FIGURES. ``slo``: latency targets; None = no
    shares of requests in target; ``forecast``: figure → promised value.
    """
    was, now = (parts(side, slo) for side in (matched.before, matched.after))
    known = (name for name in FIGURES if name in was and name in now)
    every = (_estimate(matched, was[n], now[n], n, forecast.get(n), confidence) for n in known)
    return {one[0].name: one for one in every if one is not None}


def _estimate(
    matched: Matched, was: Floats, now: Floats, name: str, promise: float | None, confidence: float
) -> tuple[Effect, float] | None:
    share, pairs = name == IN_TARGET, matched.pairs
    below = pairs @ was[1]
    usable = (below > 0) & (now[1] > 0)
    if not usable.any():
        return None
    weight, below = np.where(usable, now[1], 0.0), np.where(usable, below, 1.0)
    weight /= weight.sum()
    usual, seen = (pairs @ was[0]) / below, now[0] / np.where(usable, now[1], 1.0)
    if not share and min(weight @ usual, weight @ seen) <= 0:
        return None
    moved = _moved(matched, was, now, share)
    expected = np.clip(usual + moved, 0.0, 1.0) if share else usual * np.exp(moved)
    before, after = float(weight @ expected), float(weight @ seen)
    # what each minute adds to the error: of the difference of shares, else of the ratio's logarithm
    scale = (1.0, 1.0) if share else (before, after)
    late = weight * (seen / scale[1] - expected / scale[0])
    late -= weight * late.sum()
    factor = weight * (1.0 if share else np.exp(moved)) / below / scale[0]
    early = (pairs.T @ factor) * was[0] - (pairs.T @ (factor * usual)) * was[1]
    sides = ((early, matched.before, was, before), (late, matched.after, now, after))
    noise = [
        _noise(errors, side["end"].dt.epoch("s").to_numpy() // 60) for errors, side, *_ in sides
    ]
    middle = (before + after) / 2
    sd = WANDER_SHARE * middle * (1 - middle) if share else WANDER.get(name, WANDER_ELSE)
    variances = [
        variance + sd**2 * _wander(len(side)) + (_binomial(value, figure[1].sum()) if share else 0)
        for (variance, _), (_, side, figure, value) in zip(noise, sides, strict=True)
    ]
    # Welch's degrees of freedom (Biometrika 34, 1947), of the blocks of both sides
    spread = sum(v**2 / max(1.0, blocks - 1.0) for v, blocks in noise)
    free = max(1.0, sum(variances) ** 2 / max(spread, 1e-300))
    from scipy.special import stdtrit  # loaded where it is needed

    t = float(stdtrit(free, 0.5 + confidence / 2))  # quantile of Student's t
    wide = [t * math.sqrt(variance) for variance in variances]
    low, high = _difference((before, after), wide, share)
    effect = Effect(name, before, after, low, high, promise, FIGURES[name].unit)
    return effect, variances[0] / sum(variances)


def _difference(values: tuple[float, float], wide: list[float], share: bool) -> tuple[float, float]:
    """Limits of after - before, from those of both sides; no figure falls below 0.

    Method: Zou and Donner, "Construction of confidence limits about effect measures", Statistics in
    Medicine 27, 2008.
    """
    below, above = wide, wide
    if not share:
        below = [v * -math.expm1(-w) for v, w in zip(values, wide, strict=True)]
        above = [v * math.expm1(min(w, 50.0)) for v, w in zip(values, wide, strict=True)]
    middle = values[1] - values[0]
    low, high = middle - math.hypot(below[1], above[0]), middle + math.hypot(above[1], below[0])
    return max(low, -values[0]), min(high, 1.0 - values[0]) if share else high


def _moved(matched: Matched, was: Floats, now: Floats, share: bool) -> Floats:
    """How far the traffic of a minute moves its neighbours' figure, [after]: logs, or a share."""
    rows = []
    for (top, bottom), x in zip((was, now), matched.traffic, strict=True):
        known = (bottom > 0) & (share | (top > 0))
        if known.any():
            y = top[known] / bottom[known]
            y, weight = (y if share else np.log(y)), bottom[known] / bottom[known].sum()
            x, y = x[known] - weight @ x[known], y - weight @ y
            # weighted per side: where every request is in target there is no slope
            rows.append((x, y, weight * len(y) / (weight @ y**2 + LEAST_NOISE)))
    x, y, sure = (np.concatenate(each) for each in zip(*rows, strict=True))
    gram = (x * sure[:, None]).T @ x + np.eye(x.shape[1]) / SLOPE_SD**2
    slopes = np.linalg.solve(gram, (x * sure[:, None]).T @ y)
    nearest = (matched.pairs @ matched.traffic[0]) / matched.pairs.sum(axis=1).A1[:, None]
    by: Floats = np.clip((matched.traffic[1] - nearest) @ slopes, -FARTHEST, FARTHEST)
    return by


def _noise(errors: Floats, minute: Integers) -> tuple[float, float]:
    """Variance of the sum of errors under draws of whole blocks, and the number of blocks."""
    length = max(1, min(BLOCK_MINUTES, len(minute) // FEWEST_BLOCKS))
    grid = np.zeros(int(minute[-1] - minute[0]) + 1)
    grid[minute - minute[0]] = errors
    sums = np.cumsum(np.concatenate([[0.0], grid, grid[: length - 1]]))
    of_block = sums[length:] - sums[:-length]  # from each minute on, around the end
    blocks = len(minute) / length
    return float(of_block @ of_block) / length * blocks / max(blocks - 1.0, 1.0), blocks


def _wander(minutes: int) -> float:
    """Variance of the mean of an Ornstein-Uhlenbeck process of variance 1 over these minutes."""
    x = minutes / WANDER_MINUTES
    return 2 * (x - 1 + math.exp(-x)) / (x * x)


def _binomial(value: float, requests: float) -> float:
    """Variance of a share by its count; not 0 where every request was in target (Agresti-Coull)."""
    shifted = (value * requests + 2) / (requests + 4)
    return shifted * (1 - shifted) / (requests + 4)
