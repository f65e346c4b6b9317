"""How large a distance usually is, and the score from which it counts.

Scales: own past, then the pool's, then what is shipped (every shipped number with its source). A
scale is the 99 % quantile of five days or more; between peers never more than a few times the
median: half of a past would have to be disturbed before a disturbance counts as usual.

Thresholds are set anew each week so that a quiet fleet keeps a budget of false episodes. Peaks of
episodes above the usual scale (a score of 1) fall off about exponentially, so their count and their
median excess say at which threshold the budget is met: rate(h) = rate(1) exp(-(h-1)/b). The median
is not moved by the few episodes that were true. A fleet with few of them leans on the excess that
the calibration traffic has; where most were true and high, the excess has a bound, or their heights
would make it deaf to the next.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from driftwatch.arrays import Flags, Floats, Integers
from driftwatch.detect.lengths.layouts import SIGNALS
from driftwatch.detect.null import Null
from driftwatch.detect.reference import MONTH_BLOCKS

# Quantiles are of JS x sqrt(requests), measured on ServeGen m-small and Azure conv 2023
# (docs/methods/lengths.md). 99 %, one server against its peers: 3.3 to 3.9.
PEER_SCALE: Final = 4.0
# Own scales of five days are 2.2 to 4.6: unmeasured traffic may be a factor of 2 apart.
UNCALIBRATED: Final = 2.0
# 99 % of a pool's nearest context: 10.5 (prompts) and 9.6 (generations).
CONTEXT_SCALE: Final = 10.5
# 99 % quantile over median: 2.0 to 2.8. The quantile counts up to MOST_TAIL times that.
PEER_TAIL: Final = 2.6
MOST_TAIL: Final = 1.4
# 0.6 false episodes a server-month, with a part of a distribution counting 0.7.
PEER_THRESHOLD: Final = 1.4
# The largest of six days is 1.6 times its 99 % quantile.
CONTEXT_THRESHOLD: Final = 2.0
# What the weekly reset may do to a threshold, as multiples of the design's
DESIGN_PEER: Final = 1.3
DESIGN_CONTEXT: Final = 2.0
LEAST_FACTOR: Final = 0.8
MOST_FACTOR: Final = 3.0

# Where more requests make a pool's own drift no better known: JS of adjacent hours has a floor
# that no sample size removes (ServeGen: 0.04 in the median at 130,000 requests a window).
CONTEXT_REQUESTS: Final = 4000.0


SCOPES = ("peers", "contexts")
# peaks are counted in bins of their logarithm, 1 to 20
PEAKS: Floats = np.geomspace(1.0, 20.0, 121)
MONTH_MINUTES = 43_200.0
# ServeGen days 1-7: the excess falls to 1/e in about so much; as if so many episodes had shown it
_EXCESS = 0.25
_EXCESS_EPISODES = 10
_MOST_EXCESS = 0.4
# less than a quarter of a unit-month of calibrated verdicts says too little
_LEAST_MONTHS = 0.25
# 1970-01-01 was a Thursday: day 4 began a week
_WEEK_DAYS, _MONDAY = 7, 4


@dataclass(frozen=True, slots=True)
class Thresholds:
    """What is in force, and what the running week has shown."""

    values: tuple[float, float] = (PEER_THRESHOLD, CONTEXT_THRESHOLD)  # h per scope
    week: int = -1  # number of the running week; -1 before the first minute
    # counts of episode peaks, [scopes, bins]
    peaks: Floats = field(default_factory=lambda: np.zeros((len(SCOPES), len(PEAKS) - 1)))
    # unit-minutes with a calibrated verdict, [scopes]
    minutes: Floats = field(default_factory=lambda: np.zeros(len(SCOPES)))

    def counted(self, scope: int, peaks: Floats, minutes: int) -> Thresholds:
        """With the peaks of episodes that ended (0 = none), and minutes with a verdict."""
        ended = peaks[peaks > 0]
        totals, times = self.peaks, self.minutes.copy()
        times[scope] += minutes
        if len(ended):
            totals = totals.copy()
            inside = np.clip(ended, PEAKS[0], np.nextafter(PEAKS[-1], 0))
            totals[scope] += np.histogram(inside, PEAKS)[0]
        return replace(self, peaks=totals, minutes=times)

    def at(self, day: int, budget: float) -> Thresholds:
        """On a day (since 1970-01-01): each week they are set anew for a budget a server-month.

        A pool may have four times as many false episodes: it is one voice for all its servers.
        """
        week = (day - _MONDAY) // _WEEK_DAYS
        if week == self.week:
            return self
        if self.week < 0:
            return replace(self, week=week)
        values = list(self.values)
        designs = (DESIGN_PEER, DESIGN_CONTEXT)
        for scope, (design, of) in enumerate(zip(designs, (1.0, 4.0), strict=True)):
            months = self.minutes[scope] / MONTH_MINUTES
            if months >= _LEAST_MONTHS and budget > 0:
                threshold = threshold_of(self.peaks[scope], months, budget * of)
                bounds = LEAST_FACTOR * design, MOST_FACTOR * design
                values[scope] = float(np.clip(threshold, *bounds))
        return Thresholds(values=(values[0], values[1]), week=week)


def threshold_of(peaks: Floats, months: float, budget: float) -> float:
    """The threshold that ``peaks`` (by :data:`PEAKS`) pass ``budget`` times a unit-month."""
    episodes = peaks.sum()
    excess = _EXCESS
    if episodes:
        middle = int(np.searchsorted(np.cumsum(peaks), episodes / 2))
        own = (math.sqrt(PEAKS[middle] * PEAKS[middle + 1]) - 1.0) / math.log(2.0)
        own = min(own, _MOST_EXCESS)
        excess = (episodes * own + _EXCESS_EPISODES * _EXCESS) / (episodes + _EXCESS_EPISODES)
    rate = (episodes + 0.5) / months
    return 1.0 + excess * max(0.0, math.log(rate / budget))


USUAL = 0.99
MIDDLE = 0.5
FULL_DAYS = 5
SOURCES = ("own", "pool", "shipped")
_OF_DAY, _OF_MONTH = math.log(24 * 6), math.log(MONTH_BLOCKS)


def peer_scales(past: Null, of_pool: Integers) -> tuple[Floats, Integers]:
    """The scale per target and signal, and whose it is (:data:`SOURCES`), [targets, signals].

    A pool knows as many days as the member that knows most; below five the scale moves from the
    shipped one only part of the way (in ln), and counts :data:`UNCALIBRATED` times.
    """
    signals = len(SIGNALS)
    pool = np.repeat(of_pool, signals)
    group = np.where(pool >= 0, pool * signals + np.tile(np.arange(signals), len(of_pool)), -1)
    days = np.zeros(len(group))
    inside = group >= 0
    if inside.any():
        # ten targets on one day have seen one day of the pool's traffic, not ten
        longest = np.zeros(int(group.max()) + 1)
        np.maximum.at(longest, group[inside], past.known_days()[inside])
        days[inside] = longest[group[inside]]
    own = _guarded(past.quantile(USUAL, FULL_DAYS), past.quantile(MIDDLE, FULL_DAYS), PEER_TAIL)
    pooled = _guarded(
        past.pooled_quantile(USUAL, group, 1),
        past.pooled_quantile(MIDDLE, group, 1),
        PEER_TAIL,
    )
    share = np.clip(days / FULL_DAYS, 0.0, 1.0)
    shipped = PEER_SCALE
    with np.errstate(invalid="ignore", divide="ignore"):
        mixed = np.exp(share * np.log(pooled) + (1.0 - share) * np.log(shipped))
    mixed = np.where(np.isnan(pooled), shipped, mixed)
    settled = ~np.isnan(pooled) & (share >= 1.0)
    return _first(own, np.where(settled, mixed, UNCALIBRATED * mixed), settled)


def context_scales(past: Null) -> tuple[Floats, Integers]:
    """The scale per pool and signal, and whose it is; shipped before the first day.

    From five days on the 99 % quantile. Of fewer the median of their largest, scaled to a month: a
    day's largest of N ten-minute blocks is about b ln N, a month's of M b ln M.
    """
    young = past.middle_of_largest() * (_OF_MONTH / _OF_DAY / CONTEXT_THRESHOLD)
    young = np.where(np.isnan(young), CONTEXT_SCALE, young)
    return _first(past.quantile(USUAL, FULL_DAYS), young, None)


def _guarded(scale: Floats, median: Floats, tail: float) -> Floats:
    return np.minimum(scale, MOST_TAIL * tail * median)


def _first(own: Floats, other: Floats, is_pool: Flags | None) -> tuple[Floats, Integers]:
    """Own, else the other, which is the pool's or shipped."""
    unknown = np.isnan(own)
    scale = np.where(unknown, other, own)
    source = np.where(unknown, 2 if is_pool is None else np.where(is_pool, 1, 2), 0)
    shape = (-1, len(SIGNALS))
    return scale.reshape(shape), source.reshape(shape).astype(np.int64)
