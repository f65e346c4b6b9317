"""Thresholds set anew each week so that a quiet fleet keeps a budget of false episodes.

Episodes, not minutes, are what people are told of. Peaks of episodes above the usual scale (a
score of 1) fall off about exponentially, so their count and their median excess say at which
threshold the budget is met, also where no episode came near it: rate(h) = rate(1) exp(-(h-1)/b).
The median is not moved by the few episodes that were true. A fleet with few of them leans on the
excess that the calibration traffic has; where most were true and high, the excess has a bound, or
their heights would make it deaf to the next.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

import numpy as np
import polars as pl

from driftwatch.collect.schema import TIME
from driftwatch.detect.distributions.cells import Floats
from driftwatch.detect.lengths.calibration import (
    CONTEXT_THRESHOLD,
    DESIGN_CONTEXT,
    DESIGN_PEER,
    LEAST_FACTOR,
    MOST_FACTOR,
    PEER_THRESHOLD,
)

SCOPES = ("peers", "contexts")
RESETS_SCHEMA: dict[str, pl.DataType | type[pl.DataType]] = {
    "scope": pl.String,
    "since": TIME,  # from when on the threshold holds
    "threshold": pl.Float64,
    "episodes_above_usual": pl.Int64,
    "unit_months": pl.Float64,  # of servers for peers, of pools for contexts
    "budget_per_unit_month": pl.Float64,
}
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
    """What is in force, and what the running week has shown.

    Attributes:
        values: h per scope.
        week: number of the running week; -1 before the first minute.
        peaks: counts of episode peaks, [scopes, bins].
        minutes: unit-minutes with a calibrated verdict, [scopes].
        resets: :data:`RESETS_SCHEMA`, a row per reset.
    """

    values: tuple[float, float] = (PEER_THRESHOLD.value, CONTEXT_THRESHOLD.value)
    week: int = -1
    peaks: Floats = field(default_factory=lambda: np.zeros((len(SCOPES), len(PEAKS) - 1)))
    minutes: Floats = field(default_factory=lambda: np.zeros(len(SCOPES)))
    resets: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=RESETS_SCHEMA))

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
        """On a day: in a new week they are set anew.

        Args:
            day: days since 1970-01-01.
            budget: false episodes per server-month; a pool may have four times as many, for it
                is one voice for all its servers.
        """
        week = (day - _MONDAY) // _WEEK_DAYS
        if week == self.week:
            return self
        if self.week < 0:
            return replace(self, week=week)
        values, rows = list(self.values), []
        since = pl.Series([(week * _WEEK_DAYS + _MONDAY) * 86_400_000_000]).cast(TIME)[0]
        for scope, (name, design, of) in enumerate(
            zip(SCOPES, (DESIGN_PEER, DESIGN_CONTEXT), (1.0, 4.0), strict=True)
        ):
            months = self.minutes[scope] / MONTH_MINUTES
            if months < _LEAST_MONTHS or budget <= 0:
                continue
            found = threshold_of(self.peaks[scope], months, budget * of)
            values[scope] = float(np.clip(found, LEAST_FACTOR * design, MOST_FACTOR * design))
            rows.append(
                (name, since, values[scope], int(self.peaks[scope].sum()), months, budget * of)
            )
        told = pl.DataFrame(rows, schema=RESETS_SCHEMA, orient="row")
        return Thresholds(
            values=(values[0], values[1]),
            week=week,
            resets=pl.concat([self.resets, told]).tail(2 * 60),
        )


def threshold_of(peaks: Floats, months: float, budget: float) -> float:
    """The threshold that episodes pass ``budget`` times a unit-month.

    Args:
        peaks: counts by :data:`PEAKS`.
        months: unit-months in which they were counted.
        budget: per unit-month, > 0.
    """
    episodes = peaks.sum()
    excess = _EXCESS
    if episodes:
        middle = int(np.searchsorted(np.cumsum(peaks), episodes / 2))
        own = (math.sqrt(PEAKS[middle] * PEAKS[middle + 1]) - 1.0) / math.log(2.0)
        own = min(own, _MOST_EXCESS)
        excess = (episodes * own + _EXCESS_EPISODES * _EXCESS) / (episodes + _EXCESS_EPISODES)
    rate = (episodes + 0.5) / months
    return 1.0 + excess * max(0.0, math.log(rate / budget))
