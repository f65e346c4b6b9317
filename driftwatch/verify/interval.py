"""A figure at matched traffic on both sides, and the interval of its difference.

Minutes depend on those before them (a queue, an engine's mood), so that they are resampled in
blocks (circular block bootstrap, Politis and Romano 1992) whose length follows their
autocorrelation (Politis and White, "Automatic Block-Length Selection for the Dependent
Bootstrap", Econometric Reviews 23, 2004, with the correction of Patton, Politis, White 2009). Few
blocks make a bootstrap too sure: limits use Student's t with the freedom that they leave. Times
are positive and skewed, so each side's limits are those of its logarithm; both sides' limits
combine as Zou and Donner have it ("Construction of confidence limits about effect measures",
Statistics in Medicine 27, 2008).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
from scipy import stats

from driftwatch.verify.figures import SHARES, Figure, Parts

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

RESAMPLES = 1000
SHORTEST_BLOCK = 3
# The length that suits a variance leaves intervals of dependent minutes too short (measured in
# tests/verify: 84-85 % instead of 95); with blocks so many times as long they hold 89-92 %, what
# freedom that takes is in Student's t.
LONGER_BLOCKS = 3
FEWEST_BLOCKS = 3
# An engine's speed wanders by itself: 3-4 % over an hour (detection.md), which a stretch of minutes
# cannot show. What two stretches differ by because of it is no effect of a change.
WANDER_RATIO = 0.04
WANDER_SECONDS = 3600.0


@dataclass(frozen=True, slots=True, eq=False)
class Side:
    """One stretch in matched cells.

    Attributes:
        parts: figure → parts, minute by minute.
        cell: [minutes] number of each minute's cell.
        weights: [cells] what a cell counts.
        seconds: from the first minute to the last.
        block: minutes that are resampled together.
        speed: figure → by how much its logarithm (a share: itself) moves with the engine's speed.
        fitted: figure → degrees of freedom that moving it to the cells' middle took.
    """

    parts: dict[str, Parts]
    cell: Ints
    weights: Floats
    seconds: float
    block: int
    speed: Mapping[str, float] = field(default_factory=dict)
    fitted: Mapping[str, float] = field(default_factory=dict)

    @property
    def freedom(self) -> float:
        """Degrees of freedom of a variance from overlapping blocks.

        It is a Bartlett estimate with the block as its bandwidth, which has n / (block · 2/3) of
        them (Priestley, "Spectral Analysis and Time Series", 1981, 6.2), less one for the mean.
        """
        return max(1.0, 1.5 * len(self.cell) / self.block - 1.0)


@dataclass(frozen=True, slots=True)
class Level:
    """A figure of one side.

    Attributes:
        value: at matched traffic.
        low: limit.
        high: limit.
    """

    value: float
    low: float
    high: float


def difference(before: Level, after: Level) -> tuple[float, float]:
    """Limits of after - before, from those of both sides."""
    middle = after.value - before.value
    low = math.hypot(after.value - after.low, before.high - before.value)
    high = math.hypot(after.high - after.value, before.value - before.low)
    return middle - low, middle + high


def counts_of(side: Side, generator: np.random.Generator) -> Floats:
    """[resamples, minutes] how often each minute is drawn, in blocks that wrap around."""
    minutes = len(side.cell)
    needed = math.ceil(minutes / side.block)
    starts = generator.integers(0, minutes, size=(RESAMPLES, needed))
    drawn = (starts[:, :, None] + np.arange(side.block)) % minutes
    flat = drawn.reshape(RESAMPLES, -1)[:, :minutes]
    counts = np.zeros((RESAMPLES, minutes))
    np.add.at(counts, (np.arange(RESAMPLES)[:, None], flat), 1.0)
    return counts


def level(side: Side, figure: Figure, counts: Floats, confidence: float) -> Level | None:
    """A figure of one side with its limits; None where no matched minute knows it.

    Args:
        side: minutes and cells.
        figure: which one.
        counts: from :func:`counts_of`.
        confidence: of both limits together, e.g. 0.95.
    """
    one = side.parts.get(figure.name)
    if one is None:
        return None
    sums = _Sums.of(side, one)
    value = sums.ratio(np.ones((1, len(side.cell))))[0]
    if math.isnan(value):
        return None
    drawn, mix = sums.ratio(counts), sums.mix(counts)
    known = ~np.isnan(drawn)
    drawn, mix = drawn[known], mix[known]
    t = float(stats.t.ppf(0.5 + confidence / 2, side.freedom))
    z = float(stats.norm.ppf(0.5 + confidence / 2))
    # a cell's only minute is its own mean: what it would vary by is not seen
    left = len(side.cell) - len(side.weights) - side.fitted.get(figure.name, 0.0)
    unseen = math.sqrt(len(side.cell) / max(1.0, left))
    floor = z * WANDER_RATIO * wander_left(side.seconds) * side.speed.get(figure.name, 0.0)
    if figure.name in SHARES:
        spread = unseen * float((drawn - mix).std())
        return _share_level(value, math.hypot(t * spread, floor), one, t)
    there = (drawn > 0) & (mix > 0)
    if value <= 0 or not there.any():
        return Level(value, value, value)
    spread = unseen * float((np.log(drawn[there]) - np.log(mix[there])).std())
    wide = min(math.hypot(t * spread, floor), 50.0)
    return Level(value, value * math.exp(-wide), value * math.exp(wide))


def _share_level(value: float, wide: float, one: Parts, t: float) -> Level:
    """Limits of a share; where every request was in target, one more could have missed it."""
    requests = float(one.denominator.sum())
    shifted = (value * requests + 2) / (requests + 4)
    least = t * math.sqrt(shifted * (1 - shifted) / (requests + 4))
    wide = max(wide, least)
    return Level(value, max(0.0, value - wide), min(1.0, value + wide))


def wander_left(seconds: float) -> float:
    """Standard deviation of the mean of an Ornstein-Uhlenbeck wander over a stretch, over its own.

    Args:
        seconds: length of the stretch.
    """
    if seconds <= 0:
        return 1.0
    x = WANDER_SECONDS / seconds
    return math.sqrt(max(0.0, 2 * x * (1 - x * (1 - math.exp(-1 / x)))))


@dataclass(frozen=True, slots=True, eq=False)
class _Sums:
    """A figure's parts, minutes sorted by cell.

    Attributes:
        order: [minutes] by cell.
        starts: [cells] where each cell begins among them.
        weights: [cells].
        numerator: [minutes] in that order.
        denominator: [minutes].
    """

    order: npt.NDArray[np.intp]
    starts: npt.NDArray[np.intp]
    weights: Floats
    numerator: Floats
    denominator: Floats

    @classmethod
    def of(cls, side: Side, one: Parts) -> _Sums:
        order = np.argsort(side.cell, kind="stable")
        starts = np.searchsorted(side.cell[order], np.arange(len(side.weights)))
        return cls(order, starts, side.weights, one.numerator[order], one.denominator[order])

    def ratio(self, counts: Floats) -> Floats:
        """[resamples] sums over a mean minute of each cell, cells weighed by their weights."""
        drawn = counts[:, self.order]
        there = np.add.reduceat(drawn, self.starts, axis=1)
        share = np.where(there > 0, self.weights / np.maximum(there, 1e-12), 0.0)
        top = np.add.reduceat(drawn * self.numerator, self.starts, axis=1)
        bottom = np.add.reduceat(drawn * self.denominator, self.starts, axis=1)
        return _over((top * share).sum(axis=1), (bottom * share).sum(axis=1))

    def mix(self, counts: Floats) -> Floats:
        """[resamples] the same of the cells' own means: what only comes of cells left undrawn."""
        there = np.add.reduceat(counts[:, self.order], self.starts, axis=1) > 0
        sizes = np.diff(np.append(self.starts, len(self.order)))
        share = np.where(there, self.weights / sizes, 0.0)
        top = np.add.reduceat(self.numerator, self.starts)
        bottom = np.add.reduceat(self.denominator, self.starts)
        return _over(share @ top, share @ bottom)


def _over(top: Floats, bottom: Floats) -> Floats:
    with np.errstate(invalid="ignore", divide="ignore"):
        result: Floats = np.where(bottom > 0, top / bottom, np.nan)
    return result


def block_length(series: Floats) -> int:
    """How many neighbouring values must stay together.

    Args:
        series: a figure's residuals, in order of time.
    """
    n = len(series)
    longest = max(1, n // FEWEST_BLOCKS)
    centred = series - series.mean() if n else series
    variance = float((centred**2).mean()) if n else 0.0
    if n < 2 * SHORTEST_BLOCK or variance <= 0:
        return min(SHORTEST_BLOCK, longest)
    most = min(n - 1, math.ceil(math.sqrt(n)) + max(5, math.ceil(math.log10(n))))
    correlation = np.array(
        [
            float((centred[: n - lag] * centred[lag:]).mean() * (n - lag) / n)
            for lag in range(most + 1)
        ]
    )
    correlation /= variance
    small = np.abs(correlation[1:]) < 2 * math.sqrt(math.log10(n) / n)
    quiet = max(5, math.ceil(math.sqrt(math.log10(n))))
    cut = next((lag for lag in range(most) if small[lag : lag + quiet].all()), most)
    reach = min(2 * max(cut, 1), most)
    lags = np.arange(1, reach + 1)
    taper = np.clip(2 * (1 - lags / reach), 0, 1)
    spectrum = 1 + 2 * float((taper * correlation[1 : reach + 1]).sum())
    slope = 2 * float((taper * lags * correlation[1 : reach + 1]).sum())
    if spectrum <= 0:
        return min(SHORTEST_BLOCK, longest)
    best = ((2 * slope**2) / ((4 / 3) * spectrum**2)) ** (1 / 3) * n ** (1 / 3)
    return int(min(max(math.ceil(LONGER_BLOCKS * best), SHORTEST_BLOCK), longest))
