"""From scores to states: when a shift begins, when it is over, and how high quiet time reaches.

A shift begins after :data:`LASTING` minutes of a score above the threshold with lengths moved by
:data:`MOVED` (a pool's: :data:`MOVED_OF_POOL`), or at once where they moved by :data:`CLEARLY` and
mean and typical length agree. It is over after :data:`CALM` minutes below 0.8 of the threshold.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace

import numpy as np

from driftwatch.arrays import Flags, Floats, Integers
from driftwatch.detect.lengths.layouts import Distance

MOVED = math.log(1.15)
# A pool's own lengths: a new client of 20 % moves typical lengths by 12 % where its requests are as
# long as the others' in the mean (Azure conv, prompts of 1,200 tokens).
MOVED_OF_POOL = math.log(1.08)
CLEARLY = math.log(1.3)
LASTING = 3
CALM = 15
RESOLVE_FACTOR = 0.8
# a state that nothing was heard of for so long says nothing any more
FORGOTTEN = 60
# an episode of high scores ends after so many minutes without one
APART = 30
OFF = -1


@dataclass(frozen=True, slots=True)
class Reading:
    """One minute of many units (targets or pools), each [n]."""

    score: Floats  # the highest of the signals; NaN = no verdict
    counted: Floats  # the highest of those whose lengths moved enough to be worth a word; 0 = none
    at_once: Floats  # the highest of those that moved a lot; 0 = none


def reading(
    scores: Floats, moved: Flags, clearly: Flags, may: Flags, weights: Floats | None = None
) -> Reading:
    """One minute's scores of all signals [n, signals], as one.

    ``may``: which units may begin a shift [n]; ``weights``: what each score counts for in that.
    """
    filled = np.where(np.isnan(scores), 0.0, scores)
    counted = filled if weights is None else filled * weights
    return Reading(
        score=np.where(np.isnan(scores).all(axis=1), np.nan, filled.max(axis=1)),
        counted=np.where(may, np.where(moved, counted, 0.0).max(axis=1), 0.0),
        at_once=np.where(may, np.where(clearly, counted, 0.0).max(axis=1), 0.0),
    )


@dataclass(frozen=True, slots=True)
class Watch:
    """What is remembered of each unit, arrays [n]."""

    run: Integers  # consecutive minutes above the threshold
    calm: Integers  # consecutive minutes well below it
    unheard: Integers  # minutes since the last verdict
    since: Integers  # minute in which its shift began; :data:`OFF` without one
    before: Floats  # what counted as a score one minute ago
    earlier: Floats  # and two minutes ago
    peak: Floats  # highest score of the running episode, whatever the threshold; 0 = none
    quiet: Integers  # minutes since the episode was last heard of

    @classmethod
    def of(cls, rows: Floats) -> Watch:
        """Of what :meth:`rows` gave [n, 8]."""
        kinds = (np.float64 if name in _HEIGHTS else np.int64 for name in cls.__dataclass_fields__)
        return cls(*(row.astype(kind) for row, kind in zip(rows.T, kinds, strict=True)))

    def rows(self) -> Floats:
        """As an array [n, 8], to be remembered."""
        columns = [getattr(self, name) for name in type(self).__dataclass_fields__]
        return np.stack(columns, axis=1).astype(np.float64)

    def silenced(self) -> Watch:
        """After a long silence: no shift, no running episode."""
        return replace(watch(len(self.run)), unheard=np.full(len(self.run), FORGOTTEN))

    def on(self) -> Flags:
        """Which units have a shift."""
        state: Flags = self.since != OFF
        return state


_HEIGHTS = ("before", "earlier", "peak")
# a unit of which nothing is known, as :meth:`Watch.rows` has it
NO_WATCH = tuple(float(OFF) if f.name == "since" else 0.0 for f in fields(Watch))


def watch(units: int) -> Watch:
    """Units of which nothing is known."""
    return Watch.of(np.tile(NO_WATCH, (units, 1)))


def moved_enough(
    distance: Distance, mean_ln_ratio: Floats, least: float = MOVED
) -> tuple[Flags, Flags]:
    """Which rows moved by ``least`` (ln) or more, and which a lot (mean and typical length)."""
    mean = np.where(np.isnan(mean_ln_ratio), 0.0, mean_ln_ratio)
    with np.errstate(invalid="ignore"):
        moved = np.maximum(np.abs(mean), distance.w1) >= least
        agree = np.minimum(mean * distance.direction, distance.w1) >= CLEARLY
    return moved, agree


def step(
    state: Watch, minute: int, reading: Reading, threshold: float, longest: float = math.inf
) -> tuple[Watch, Floats]:
    """One minute on; ``threshold``: h; ``longest``: minutes after which a shift is over.

    Returns: the state, and the peaks of the episodes that ended (0 = none) [n].
    """
    is_known = ~np.isnan(reading.score)
    score = np.where(is_known, reading.score, 0.0)
    counted, at_once = reading.counted, reading.at_once
    above = counted > threshold
    run = np.where(above, state.run + 1, 0)
    low = score < RESOLVE_FACTOR * threshold
    calm = np.where(is_known, np.where(low, state.calm + 1, 0), state.calm)
    unheard = np.where(is_known, 0, state.unheard + 1)
    since = state.since
    begins = (since == OFF) & ((run >= LASTING) | (at_once > threshold))
    since = np.where(begins, minute, since)
    # five minutes may say so before ten have a score at all
    calm = np.where(begins, 0, calm)
    ends = (calm >= CALM) | (unheard >= FORGOTTEN) | (minute - since >= longest)
    since = np.where(ends & ~begins, OFF, since)

    lasting = np.minimum(np.minimum(counted, state.before), state.earlier)
    height = np.maximum(lasting, at_once)
    peak = np.where(height > 1.0, np.maximum(state.peak, height), state.peak)
    quiet = np.where(height > 1.0, 0, state.quiet + 1)
    over = (quiet >= APART) & (peak > 0)
    ended = np.where(over, peak, 0.0)
    return (
        replace(
            state,
            run=run,
            calm=calm,
            unheard=unheard,
            since=since,
            # only what counts: below 1 nothing is an episode
            before=np.where(counted > 1.0, counted, 0.0),
            earlier=state.before,
            peak=np.where(over, 0.0, peak),
            quiet=quiet,
        ),
        ended,
    )
