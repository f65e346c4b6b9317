"""Has the speed fallen: a sudden change, a low level, and how both end.

A healthy engine's ln r wanders slowly (an AR(1) of 90 min with a sd of 3.5 % is what the fleet of
this repository does; real engines do something like it). Over ten minutes it moves little, so a
sudden loss of 15 % is ten standard deviations of the *change* while it is three of the *level*.
The change therefore decides within minutes; the level is for what came slowly or during a restart.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
import numpy.typing as npt

from driftwatch.detect.speed.load import Floats
from driftwatch.detect.speed.windows import faded_mean, last_quantiles

Flags = npt.NDArray[np.bool_]

LEVEL_MINUTES = 10
LEVEL_QUANTILE = 0.9  # nearly every minute is at most so fast (detection.md)
NOW_MINUTES = 8
NOW_QUANTILE = 0.9
BEFORE_MINUTES = 45
BEFORE_FADING = 6.0  # about where an AR(1) of 90 min under a noise of 1-2 % a minute is known best
BEFORE_LEAST = 6
RISE_QUANTILE = 0.25
BACK_MINUTES = 15
LOOKBACK = NOW_MINUTES + BEFORE_MINUTES + 1

# A loss leaves the engine slower than its reference, not only slower than a good hour.
MOST_AFTER_CHANGE = float(np.log(0.98))
# Back: that share of the loss is regained. Less, and the wander ends an episode that goes on.
REGAINED = 0.6
WANDER_MINUTES = 90.0  # in which a chance deviation of before the loss is forgotten
_LEAST_BEFORE = -0.03


@dataclass(frozen=True, slots=True)
class Past:
    """What windows say of every target and minute, (target, minute), in ln; NaN is unknown.

    Attributes:
        median: of the last 10 min.
        level: 90 % quantile of the last 10 min.
        bound: the same of ln r and what the law may be too low by.
        change: 90 % quantile of the last 8 min less what was before them, and what the law may be
            wrong by between these loads.
        now: median of the last 8 min.
        before: the faded mean before these 8 min.
        rise: 25 % quantile of the last 8 min less what was before them.
        back: median of the last 15 min.
    """

    median: Floats
    level: Floats
    bound: Floats
    change: Floats
    now: Floats
    before: Floats
    rise: Floats
    back: Floats

    def without(self, which: Flags) -> Past:
        """With nothing known of some targets."""
        if not which.any():
            return self
        found = {field.name: getattr(self, field.name).copy() for field in fields(self)}
        for values in found.values():
            values[which] = np.nan
        return Past(**found)


def past_of(ln_speed: Floats, outside: Floats | None, start: int) -> Past:
    """The windows' statistics.

    Args:
        ln_speed: (target, minute), at least LOOKBACK minutes before the first that is asked for.
        outside: by how much the law may be wrong, above 0 above its range and below 0 below it;
            None where it is 0 everywhere.
        start: which minute is the first.
    """
    median, level = last_quantiles(ln_speed, LEVEL_MINUTES, (0.5, LEVEL_QUANTILE))
    low, now, high = last_quantiles(ln_speed, NOW_MINUTES, (RISE_QUANTILE, 0.5, NOW_QUANTILE))
    (back,) = last_quantiles(ln_speed, BACK_MINUTES, (0.5,))
    before = _before(ln_speed)
    change, bound = high - before, level
    if outside is not None:
        rows = np.nonzero((np.nan_to_num(outside) != 0.0).any(axis=1))[0]
        here_out, here_ln = outside[rows], ln_speed[rows]
        # what the law is wrong by at one load it is wrong by at the same load a little later
        (here,) = last_quantiles(here_out, NOW_MINUTES, (0.5,))
        change[rows] += np.abs(here - _before(np.where(np.isnan(here_ln), np.nan, here_out)))
        bound = level.copy()
        (bound[rows],) = last_quantiles(
            here_ln + np.abs(here_out), LEVEL_MINUTES, (LEVEL_QUANTILE,)
        )
    found = (median, level, bound, change, now, before, low - before, back)
    return Past(*(values[:, start:] for values in found))


def _before(values: Floats) -> Floats:
    return faded_mean(values, NOW_MINUTES, BEFORE_MINUTES, BEFORE_FADING, BEFORE_LEAST)


@dataclass(frozen=True, slots=True)
class Limits:
    """Thresholds of targets, in ln; NaN where there is no law.

    Attributes:
        level: at or below it the level is too low.
        usual: the usual level, at most 0.
        change: at or below it a change is a sudden loss.
        smallest: the smallest change that is found in 95 of 100 cases, as a share of the speed.
        source: own, pool or shipped; None without a law.
    """

    level: Floats
    usual: Floats
    change: Floats
    smallest: Floats
    source: npt.NDArray[np.object_]


@dataclass(slots=True)
class Holding:
    """Which targets are slower, from the moment it is found until the speed is back.

    Attributes:
        slower: (target,).
        before: ln r before the loss.
        loss: how much ln r fell, above 0.
        age: minutes since it was found.
        deepest: the most that it fell while it lasted.
    """

    slower: Flags
    before: Floats
    loss: Floats
    age: Floats
    deepest: Floats

    @classmethod
    def of(cls, targets: int) -> Holding:
        """Nobody is slower."""
        return cls(np.zeros(targets, dtype=bool), *(np.zeros(targets) for _ in range(4)))

    def step(
        self, past: Past, minute: int, limits: Limits, may_change: Flags | None = None
    ) -> None:
        """One minute on.

        Args:
            past: statistics.
            minute: which of its minutes.
            limits: thresholds.
            may_change: whose change counts; None is everybody's.
        """
        with np.errstate(invalid="ignore"):
            now, change = past.now[:, minute], past.change[:, minute]
            sudden = (change <= limits.change) & (now <= MOST_AFTER_CHANGE)
            if may_change is not None:
                sudden &= may_change
            low = past.bound[:, minute] <= limits.level
            begins = (sudden | low) & ~self.slower
            before = np.where(sudden, past.before[:, minute], limits.usual)
            fallen = before - np.where(sudden, now, past.median[:, minute])
            lost = np.maximum(fallen, 0.05)
            # where it would be without the loss: what was chance before it fades
            usual = np.maximum(self.before * np.exp(-self.age / WANDER_MINUTES), _LEAST_BEFORE)
            regained = past.back[:, minute] >= usual - (1.0 - REGAINED) * self.loss
            # just found, most of the last 15 min are from before the loss
            regained &= self.age >= BACK_MINUTES - NOW_MINUTES
            # a second loss that ends leaves the first one
            deepest = np.fmax(self.deepest, usual - now)
            jumped = past.rise[:, minute] >= REGAINED * deepest
            ends = self.slower & (regained | jumped)
        self.slower = (self.slower & ~ends) | begins
        self.before = np.where(begins, before, self.before)
        self.loss = np.where(begins, lost, self.loss)
        self.age = np.where(begins, 0.0, self.age + 1.0)
        self.deepest = np.where(begins, lost, np.where(self.slower, deepest, 0.0))

    @property
    def fresh(self) -> Flags:
        """Slower since so shortly that the last 10 min still hold minutes from before."""
        return self.slower & (self.age < LEVEL_MINUTES - NOW_MINUTES)

    def reset(self, which: Flags) -> None:
        """Nothing is known any more of these: their reference is another one."""
        self.slower = self.slower & ~which
