"""A figure at matched traffic on both sides, and the interval of its difference.

The value of a side is a mean over matched cells, the same weights on both sides. Its error is drawn
by a moving-block bootstrap of minutes (Künsch, Annals of Statistics 17, 1989): neighbouring minutes
share queues and long requests, so whole blocks are drawn. An engine's speed wanders by some per
cent over hours besides, which no block shows; that is no effect of a change, and its variance is
added. Times are positive and skewed: their errors are those of their logarithm.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from scipy import stats

from driftwatch.arrays import Floats, Integers
from driftwatch.verify.figures import SHARES, Parts

# Minutes of a block: a queue and the longest requests are over by then.
BLOCK_MINUTES = 20
# A stretch that is shorter has at least so many blocks.
FEWEST_BLOCKS = 4
DRAWS = 400
SEED = 0x5EED
# Standard deviation of an engine's speed around its mean, and how long it takes to forget. With
# these the 95 % intervals of 288 placebo changes of healthy servers hold 0 in 90 to 100 of 100.
WANDER_RATIO = 0.05
WANDER_CORRELATION_MINUTES = 120.0
# Standard deviation that a slope of the logarithm is believed to have. Nothing is moved by more
# than a factor of e.
SLOPE_SD, FARTHEST = 1.0, 1.0
LEAST_NOISE = 1e-8  # variance of a minute's logarithm
# The longer stretch's noise counts as so many blocks of the shorter one's.
LONGER_BLOCKS = 4.0


class Level(NamedTuple):
    """A figure of one side."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True, eq=False)
class Side:
    """One stretch of one figure in matched cells."""

    parts: Parts
    minute: Integers  # [minutes] whole minutes since any start, ascending
    cell: Integers  # [minutes] number of each minute's cell
    weights: Floats  # [cells] what a cell counts
    traffic: Floats  # [minutes, columns] logarithms of load and lengths


@dataclass(frozen=True, slots=True)
class Both:
    """A figure of both sides."""

    before: Level
    after: Level


def difference(before: Level, after: Level) -> tuple[float, float]:
    """Limits of after - before, from those of both sides.

    Both sides' limits combine as Zou and Donner have it ("Construction of confidence limits about
    effect measures", Statistics in Medicine 27, 2008). No figure falls by more than it is.
    """
    middle = after.value - before.value
    low = math.hypot(after.value - after.low, before.high - before.value)
    high = math.hypot(after.high - after.value, before.value - before.low)
    return max(middle - low, -before.value), middle + high


def both_of(
    before: Side, after: Side, name: str, confidence: float, speed: float = 1.0
) -> Both | None:
    """A figure of both sides with its limits; None where no matched minute of a side knows it.

    ``name``: of the figure, in :data:`driftwatch.verify.figures.FIGURES`; ``speed``: by how much
    its logarithm (a share: itself) moves with that of the engine's speed.
    """
    share = name in SHARES
    before, after = _at_same_traffic(before, after, share)
    sides = [_weighted(side) for side in (before, after)]
    values = [_ratio(top, bottom) for top, bottom in sides]
    if any(math.isnan(value) for value in values):
        return None
    if not share and min(values) <= 0:
        # nothing of it on one side: preemptions, say; what is not 0 is not known to vary
        one, other = (Level(value, value, value) for value in values)
        return Both(one, other)
    errors = _errors(sides, values, (before.cell, after.cell), share)
    noises = _noises(errors)
    levels = []
    for side, value, noise in zip((before, after), values, noises, strict=True):
        variance = noise.variance + (WANDER_RATIO * speed) ** 2 * wander(len(side.minute))
        t = float(stats.t.ppf(0.5 + confidence / 2, max(1.0, noise.blocks - 1.0)))
        wide = t * math.sqrt(variance)
        if share:
            levels.append(_share_level(value, wide, float(side.parts.denominator.sum()), t))
        else:
            wide = min(wide, 50.0)
            levels.append(Level(value, value * math.exp(-wide), value * math.exp(wide)))
    return Both(levels[0], levels[1])


def _at_same_traffic(before: Side, after: Side, share: bool) -> tuple[Side, Side]:
    """Both sides moved to the same traffic within each cell, by one ridge regression.

    A cell is wide: at a rising load the later minutes lie at its upper edge.
    """
    cell = np.concatenate([before.cell, after.cell])
    x = np.concatenate([before.traffic, after.traffic])
    top = np.concatenate([before.parts.numerator, after.parts.numerator])
    bottom = np.concatenate([before.parts.denominator, after.parts.denominator])
    side = np.repeat([0, 1], [len(before.cell), len(after.cell)])
    group = 2 * cell + side
    usable = (bottom > 0) & (share | (top > 0))
    ratio = top[usable] / bottom[usable]
    y = ratio if share else np.log(ratio)
    of, weight = group[usable], bottom[usable]
    inside = x[usable] - _means(x[usable], of, weight)[of]
    moved = y - _means(y[:, None], of, weight)[of, 0]
    # each side as far as it is quiet: one whose every request is in target has no slope
    loud = np.bincount(side[usable], weights=moved**2, minlength=2)
    sure = weight / np.bincount(side, weights=bottom, minlength=2).clip(min=1e-12)[side[usable]]
    sure *= (
        len(y)
        / (loud / np.bincount(side[usable], minlength=2).clip(min=1) + LEAST_NOISE)[side[usable]]
    )
    gram = (inside * sure[:, None]).T @ inside
    moments = (inside * sure[:, None]).T @ moved
    slopes = np.linalg.solve(gram + np.eye(x.shape[1]) / SLOPE_SD**2, moments)
    middles = _means(x, group)
    middle = (middles[0::2] + middles[1::2])[: int(cell.max(initial=0)) + 1] / 2
    by = np.clip((x - middle[cell]) @ slopes, -FARTHEST, FARTHEST)
    top = np.clip(top - bottom * by, 0.0, bottom) if share else top * np.exp(-by)
    one, other = (
        replace(of_side, parts=Parts(top[side == number], bottom[side == number]))
        for number, of_side in enumerate((before, after))
    )
    return one, other


def _means(values: Floats, group: Integers, weight: Floats | None = None) -> Floats:
    """[groups, columns] weighted means; 0 where a group has none."""
    weight = np.ones(len(group)) if weight is None else weight
    size = 2 * (int(group.max(initial=0)) // 2 + 1)
    total = np.bincount(group, weights=weight, minlength=size)
    sums = [np.bincount(group, weights=weight * one, minlength=size) for one in values.T]
    means: Floats = np.stack(sums, axis=1) / np.maximum(total, 1e-12)[:, None]
    return means


def wander(minutes: int) -> float:
    """Variance of the mean of an Ornstein-Uhlenbeck process of variance 1 over so long."""
    x = max(minutes, 1) / WANDER_CORRELATION_MINUTES
    return 2 * (x - 1 + math.exp(-x)) / (x * x)


@dataclass(frozen=True, slots=True)
class _Noise:
    variance: float
    blocks: float  # how many of them there are


def _weighted(side: Side) -> tuple[Floats, Floats]:
    """Numerator and denominator of each minute, by what its cell counts."""
    known = side.parts.denominator > 0
    counted = np.bincount(side.cell[known], minlength=len(side.weights)).clip(min=1)
    each = (side.weights / counted)[side.cell]
    return each * side.parts.numerator, each * side.parts.denominator


def _ratio(top: Floats, bottom: Floats) -> float:
    below = float(bottom.sum())
    return float(top.sum()) / below if below > 0 else math.nan


def _errors(
    sides: list[tuple[Floats, Floats]],
    values: list[float],
    cells: tuple[Integers, Integers],
    share: bool,
) -> list[Floats]:
    """What each minute adds to the error of its side's value (of its logarithm; a share: itself).

    A cell is expected to be as both sides together show it; what that takes of the errors'
    freedom is given back.
    """
    size = 1 + max(int(cell.max(initial=0)) for cell in cells)
    scaled = [
        (top, bottom) if share else (top / value, bottom)
        for (top, bottom), value in zip(sides, values, strict=True)
    ]
    level = values if share else [1.0, 1.0]
    above = np.zeros(size)
    below = np.zeros(size)
    for (top, bottom), cell, of in zip(scaled, cells, level, strict=True):
        above += np.bincount(cell, weights=top - of * bottom, minlength=size)
        below += np.bincount(cell, weights=bottom, minlength=size)
    moved = above / np.where(below > 0, below, 1.0)
    n = sum(len(cell) for cell in cells)
    freedom = math.sqrt(n / max(n - size, 1))
    return [
        freedom * (top - (of + moved[cell]) * bottom) / float(bottom.sum())
        for (top, bottom), cell, of in zip(scaled, cells, level, strict=True)
    ]


def _noises(errors: list[Floats]) -> tuple[_Noise, _Noise]:
    """Both sides' noise; the shorter side's is pooled with the longer side's where that is larger.

    A short stretch without a burst shows too little noise.
    """
    noises = [_noise(one) for one in errors]
    few = 0 if len(errors[0]) < len(errors[1]) else 1
    own, other = noises[few], noises[1 - few]
    carried = other.variance * len(errors[1 - few]) / len(errors[few])
    blocks = own.blocks + min(LONGER_BLOCKS, other.blocks)
    pooled = (own.blocks * own.variance + min(LONGER_BLOCKS, other.blocks) * carried) / blocks
    if pooled > own.variance:
        noises[few] = _Noise(pooled, blocks)
    return noises[0], noises[1]


def _noise(errors: Floats) -> _Noise:
    """Variance of the sum of a stretch's errors, by drawing blocks of them."""
    n = len(errors)
    length = max(1, min(BLOCK_MINUTES, n // FEWEST_BLOCKS))
    blocks = n / length
    sums = np.cumsum(np.concatenate([[0.0], errors, errors[: length - 1]]))
    of_block = sums[length:] - sums[:-length]  # from each minute on, around the end
    drawn = np.random.default_rng(SEED).choice(of_block, (DRAWS, max(1, round(blocks))))
    variance = float(drawn.sum(axis=1).var()) * blocks / max(1, round(blocks))
    return _Noise(variance * blocks / max(blocks - 1.0, 1.0), blocks)


def _share_level(value: float, wide: float, requests: float, t: float) -> Level:
    """Limits of a share; where every request was in target, one more could have missed it."""
    shifted = (value * requests + 2) / (requests + 4)
    wide = max(wide, t * math.sqrt(shifted * (1 - shifted) / (requests + 4)))
    return Level(value, max(0.0, value - wide), min(1.0, value + wide))
