"""How far a stretch's figure may lie from what it stands for: short noise, and the engine's wander.

Every minute has an influence on the figure; their covariances add up to its variance. Neighbouring
minutes (a queue, long requests) are summed with Bartlett's weights (Newey and West, Econometrica
55, 1987) over as many as the autocorrelation asks for (Politis and White, Econometric Reviews 23,
2004, corrected 2009). A shorter stretch without a burst seems too sure: its noise is not believed
to be below the longer one's, but as far as its own minutes tell.

An engine's speed wanders some per cent over an hour or more, as an Ornstein-Uhlenbeck process; that
is no effect of a change. Its size is read from minutes twenty minutes to two hours apart, weighed
with a belief of 4 %. Of half an hour to four hours, in which it may forget, the one counts that
makes the comparison least sure. Two stretches side by side share their wander.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from driftwatch.arrays import Floats, Integers

SHORTEST_LAG = 3
# What suits a variance leaves intervals too short; twice as far, with what freedom that takes in
# Student's t, holds (Lazarus, Lewis, Stock and Watson, "HAR Inference: Recommendations for
# Practice", Journal of Business and Economic Statistics 36, 2018).
FARTHER = 2
# What is still alike after so many minutes is no queue: it is the wander's.
LONGEST_LAG = 20
# Standard deviation of an engine's speed; engines differ by a third, which is
# what a variance of six degrees of freedom says.
WANDER_RATIO = 0.04
BELIEF = 6.0
FORGETS_MINUTES = (30.0, 60.0, 120.0, 240.0)
# The longer stretch's noise counts as so many degrees of freedom of the shorter one's.
LONGER_FREEDOM = 4.0
# Lags at which a wander is read.
_FROM, _TO = 20, 120


@dataclass(frozen=True, slots=True, eq=False)
class Influence:
    """What each minute of one stretch adds to the error of its figure."""

    minute: Integers  # [minutes] whole minutes since any common start
    value: Floats  # [minutes] influence: they add up to the error
    share: Floats  # [minutes] what each minute counts; they add up to 1
    fitted: float

    @property
    def effective(self) -> float:
        """Minutes of equal share that would be as sure."""
        total = float(np.abs(self.share).sum())
        return total * total / max(float((self.share**2).sum()), 1e-300)


@dataclass(frozen=True, slots=True)
class Spread:
    """A variance and how sure it is."""

    variance: float
    freedom: float

    def with_(self, other: Spread) -> Spread:
        """The sum of both, with the freedom that Satterthwaite gives it."""
        total = self.variance + other.variance
        parts = self.variance**2 / self.freedom + other.variance**2 / other.freedom
        return Spread(total, total * total / parts if parts > 0 else self.freedom)


def short(one: Influence, lag: int) -> Spread:
    """Variance of what neighbouring minutes share."""
    first = one.minute.min()
    grid = _spread_out(one.minute - first, one.value, int(one.minute.max() - first) + 1)
    summed = float(grid @ grid)
    for apart in range(1, min(lag, len(grid))):
        summed += 2 * (1 - apart / lag) * float(grid[:-apart] @ grid[apart:])
    summed = max(summed, 0.5 * float(grid @ grid))
    n = one.effective
    freedom = max(1.0, n - 1.0 - one.fitted * n / max(len(one.value), 1))
    # a Bartlett estimate has n / (lag · 2/3) degrees of freedom (Priestley, "Spectral Analysis and
    # Time Series", 1981, 6.2)
    return Spread(summed * n / freedom, max(1.0, freedom / max(1.0, 2 / 3 * lag)))


def shorts(sides: tuple[Influence, Influence], lags: tuple[int, int]) -> tuple[Spread, Spread]:
    """Both sides' short noise, the shorter one's with what the longer one knows.

    ``lags``: of :func:`short`.
    """
    spreads = [short(one, lag) for one, lag in zip(sides, lags, strict=True)]
    few = 0 if sides[0].effective < sides[1].effective else 1
    own, other = spreads[few], spreads[1 - few]
    carried = other.variance * sides[1 - few].effective / sides[few].effective
    freedom = own.freedom + LONGER_FREEDOM
    both = (own.freedom * own.variance + LONGER_FREEDOM * carried) / freedom
    if both > own.variance and other.freedom > own.freedom:
        spreads[few] = Spread(both, freedom)
    return spreads[0], spreads[1]


@dataclass(frozen=True, slots=True)
class Wander:
    """What the engine's own wander does to a figure."""

    before: float
    after: float
    shared: float
    freedom: float

    @property
    def of_difference(self) -> float:
        """Variance of after - before."""
        return self.before + self.after - 2 * self.shared


def wander(sides: tuple[Influence, Influence], speed: float) -> Wander:
    """The wander in a figure, of the time to forget that makes the difference least sure.

    ``sides``: both stretches of one figure, influences in the same unit; ``speed``: by how much the
    figure moves with the engine's speed.
    """
    first = min(int(one.minute.min()) for one in sides)
    length = max(int(one.minute.max()) for one in sides) - first + 1
    shares = [_spread_out(one.minute - first, one.share, length) for one in sides]
    products = _products(shares[0], shares[1], length)
    pairs_of_sides = [_pairs(one) for one in sides]
    believed = (WANDER_RATIO * speed) ** 2
    wanders = []
    for forgets in FORGETS_MINUTES:
        smooth = np.exp(-np.arange(length) / forgets)
        sums = tuple(float(one @ smooth) for one in products)
        total = sights = 0.0
        for one, pairs, mean in zip(sides, pairs_of_sides, sums, strict=False):
            sight = one.effective / (2 * forgets)
            if pairs is None or sight < 1.0:
                continue
            covered = float(pairs.share @ (np.exp(-pairs.lags / forgets) - mean))
            if covered > 0:
                total += sight * float(pairs.value.sum()) / covered
                sights += sight
        size = (BELIEF * believed + max(0.0, total)) / (BELIEF + sights)
        wanders.append(Wander(size * sums[0], size * sums[1], size * sums[2], BELIEF + sights))
    return max(wanders, key=lambda one: one.of_difference)


@dataclass(frozen=True, slots=True, eq=False)
class _Pairs:
    """Sums of products over minutes so far apart."""

    lags: Floats
    value: Floats
    share: Floats


def _pairs(one: Influence) -> _Pairs | None:
    first = one.minute.min()
    length = int(one.minute.max() - first) + 1
    if length <= _TO:
        return None
    value, share = (_spread_out(one.minute - first, x, length) for x in (one.value, one.share))
    lags = np.arange(_FROM, _TO)
    both = [np.array([float(grid[:-lag] @ grid[lag:]) for lag in lags]) for grid in (value, share)]
    return _Pairs(lags.astype(np.float64), both[0], both[1])


def _products(one: Floats, other: Floats, length: int) -> tuple[Floats, Floats, Floats]:
    """[length] each: sums of products by distance, of the first, the second, and of both."""
    size = 1 << (2 * length - 1).bit_length()
    spectra = [np.fft.rfft(grid, size) for grid in (one, other)]
    own = [np.fft.irfft(np.abs(spectrum) ** 2, size)[:length] for spectrum in spectra]
    for grid in own:
        grid[1:] *= 2
    crossed = np.fft.irfft(spectra[0].conj() * spectra[1], size)
    both = crossed[:length].copy()
    both[1:] += crossed[-1:-length:-1]
    return own[0], own[1], both


def _spread_out(minute: Integers, value: Floats, length: int) -> Floats:
    grid = np.zeros(length)
    np.add.at(grid, minute, value)
    return grid


def longest_shared(series: Floats) -> int:
    """Minutes over which neighbouring values depend on each other."""
    n = len(series)
    centred = series - series.mean() if n else series
    variance = float((centred**2).mean()) if n else 0.0
    if n < 2 * SHORTEST_LAG or variance <= 0:
        return SHORTEST_LAG
    most = min(n - 1, math.ceil(math.sqrt(n)) + max(5, math.ceil(math.log10(n))))
    correlation = np.array(
        [float((centred[: n - lag] * centred[lag:]).sum()) / n for lag in range(most + 1)]
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
        return SHORTEST_LAG
    best = ((2 * slope**2) / ((4 / 3) * spectrum**2)) ** (1 / 3) * n ** (1 / 3)
    return int(
        min(max(math.ceil(FARTHER * best), SHORTEST_LAG), LONGEST_LAG, max(SHORTEST_LAG, n // 5))
    )
