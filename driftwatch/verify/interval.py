"""A figure at matched traffic on both sides, and the interval of its difference.

Limits use Student's t with the freedom that the variance has. Times are positive and skewed, so
each side's limits are those of its logarithm; both sides' limits combine as Zou and Donner have it
("Construction of confidence limits about effect measures", Statistics in Medicine 27, 2008).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy import stats

from driftwatch.arrays import Floats, Integers
from driftwatch.verify.adjust import Adjusted
from driftwatch.verify.figures import SHARES
from driftwatch.verify.spread import Influence, Spread, longest_shared, shorts, wander


class Level(NamedTuple):
    """A figure of one side."""

    value: float
    low: float
    high: float


def difference(before: Level, after: Level, correlation: float = 0.0) -> tuple[float, float]:
    """Limits of after - before, from those of both sides.

    No figure is below 0, so none falls by more than it is.
    """
    middle = after.value - before.value
    low = _combined(after.value - after.low, before.high - before.value, correlation)
    high = _combined(after.high - after.value, before.value - before.low, correlation)
    return max(middle - low, -before.value), middle + high


def _combined(one: float, other: float, correlation: float) -> float:
    return math.sqrt(max(0.0, one * one + other * other - 2 * correlation * one * other))


@dataclass(frozen=True, slots=True, eq=False)
class Side:
    """One stretch of one figure in matched cells."""

    figure: Adjusted
    minute: Integers  # [minutes] whole minutes since a start that both sides share
    cell: Integers  # [minutes] number of each minute's cell
    weights: Floats  # [cells] what a cell counts


@dataclass(frozen=True, slots=True)
class Both:
    """A figure of both sides."""

    before: Level
    after: Level
    correlation: float = 0.0  # of their errors: what they share of the engine's wander
    # of the variance of the difference, what more minutes after would lessen
    after_share: float = 0.0


def both_of(before: Side, after: Side, name: str, confidence: float) -> Both | None:
    """A figure of both sides with its limits; None where no matched minute of a side knows it."""
    share = name in SHARES
    sides = (before, after)
    (one, first), (other, second) = (_value_of(side, share) for side in sides)
    if math.isnan(one) or math.isnan(other):
        return None
    if first is None or second is None:
        # nothing of it on one side: preemptions, say; what is not 0 is not known to vary
        return Both(Level(one, one, one), Level(other, other, other))
    pair = (first, second)
    moved = wander(pair, max(before.figure.speed, after.figure.speed))
    lags = [longest_shared(side.figure.residual[side.figure.usable]) for side in sides]
    noise = shorts(pair, (lags[0], lags[1]))
    levels = []
    totals = []
    for value, side, short_, its in zip(
        (one, other), sides, noise, (moved.before, moved.after), strict=True
    ):
        spread = short_.with_(Spread(its, moved.freedom))
        t = float(stats.t.ppf(0.5 + confidence / 2, spread.freedom))
        wide = t * math.sqrt(spread.variance)
        totals.append(spread.variance)
        if share:
            levels.append(_share_level(value, wide, float(side.figure.parts.denominator.sum()), t))
        else:
            wide = min(wide, 50.0)
            levels.append(Level(value, value * math.exp(-wide), value * math.exp(wide)))
    scale = math.sqrt(totals[0] * totals[1])
    together = sum(totals) - 2 * moved.shared
    return Both(
        levels[0],
        levels[1],
        moved.shared / scale if scale > 0 else 0.0,
        min(1.0, max(0.0, 1 - totals[0] / together)) if together > 0 else 0.0,
    )


def _value_of(side: Side, share: bool) -> tuple[float, Influence | None]:
    """The figure, NaN where no minute knows it, and each minute's influence on it."""
    figure = side.figure
    counted = np.bincount(
        side.cell[figure.parts.denominator > 0], minlength=len(side.weights)
    ).clip(min=1)
    each = (side.weights / counted)[side.cell]
    top, bottom = each * figure.parts.numerator, each * figure.parts.denominator
    below = float(bottom.sum())
    if below <= 0:
        return math.nan, None
    value = float(top.sum()) / below
    if share:
        middle = (float(top.sum()) - float((bottom * figure.expected).sum())) / below
        error = top - bottom * (middle + figure.expected)
        total = below
    else:
        if value <= 0:
            return value, None
        expected = bottom * np.exp(figure.expected)
        error = top - expected * (float(top.sum()) / float(expected.sum()))
        total = float(top.sum())
    return value, Influence(side.minute, error / total, bottom / below, figure.fitted)


def _share_level(value: float, wide: float, requests: float, t: float) -> Level:
    """Limits of a share; where every request was in target, one more could have missed it."""
    shifted = (value * requests + 2) / (requests + 4)
    least = t * math.sqrt(shifted * (1 - shifted) / (requests + 4))
    wide = max(wide, least)
    return Level(value, max(0.0, value - wide), min(1.0, value + wide))
