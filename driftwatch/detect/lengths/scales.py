"""How large a distance usually is: own past, then the pool's, then what is shipped.

The scale is the 99 % quantile of five days or more. Between twins it is never more than a few
times the median: half of a past would have to be disturbed before a disturbance counts as usual.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from driftwatch.detect.distributions.cells import Floats
from driftwatch.detect.lengths.calibration import (
    CONTEXT_SCALE,
    CONTEXT_THRESHOLD,
    MOST_TAIL,
    PEER_SCALE,
    PEER_TAIL,
    UNCALIBRATED,
)
from driftwatch.detect.lengths.episodes import Integers
from driftwatch.detect.lengths.layouts import SIGNALS
from driftwatch.detect.null import Null
from driftwatch.detect.swings import MONTH_BLOCKS

USUAL = 0.99
MIDDLE = 0.5
FULL_DAYS = 5
SOURCES = ("own", "pool", "shipped")
_OF_DAY, _OF_MONTH = math.log(24 * 6), math.log(MONTH_BLOCKS)


def peer_scales(past: Null, of_pool: Integers) -> tuple[Floats, Integers]:
    """The scale per target and signal, and whose it is.

    A pool knows as many days as the member that knows most; of fewer than five of them the scale
    moves only part of the way from the shipped one (in ln), and until then it counts
    :data:`~driftwatch.detect.lengths.calibration.UNCALIBRATED` times.

    Args:
        past: slot = place of the target x signals + place of the signal.
        of_pool: place of each target's pool, -1 = none.

    Returns:
        Scales and places in :data:`SOURCES`, [targets, signals].
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
    own = _guarded(
        past.quantile(USUAL, FULL_DAYS), past.quantile(MIDDLE, FULL_DAYS), PEER_TAIL.value
    )
    pooled = _guarded(
        past.pooled_quantile(USUAL, group, 1),
        past.pooled_quantile(MIDDLE, group, 1),
        PEER_TAIL.value,
    )
    share = np.clip(days / FULL_DAYS, 0.0, 1.0)
    shipped = PEER_SCALE.value
    with np.errstate(invalid="ignore", divide="ignore"):
        mixed = np.exp(share * np.log(pooled) + (1.0 - share) * np.log(shipped))
    mixed = np.where(np.isnan(pooled), shipped, mixed)
    settled = ~np.isnan(pooled) & (share >= 1.0)
    return _first(own, np.where(settled, mixed, UNCALIBRATED.value * mixed), settled)


def context_scales(past: Null) -> tuple[Floats, Integers]:
    """The scale per pool and signal, and whose it is; shipped before the first day.

    From five days on the 99 % quantile. Of fewer, what their largest distances lead to expect once
    a month: a day's largest of N ten-minute blocks is about b ln N, a month's of M b ln M. The
    median of the days, so that neither a shift that nobody noticed nor the first day, which has
    fewer contexts, sets it alone.
    """
    young = past.middle_of_largest() * (_OF_MONTH / _OF_DAY / CONTEXT_THRESHOLD.value)
    young = np.where(np.isnan(young), CONTEXT_SCALE.value, young)
    return _first(past.quantile(USUAL, FULL_DAYS), young, None)


def _guarded(scale: Floats, median: Floats, tail: float) -> Floats:
    return np.minimum(scale, MOST_TAIL * tail * median)


def _first(
    own: Floats, other: Floats, is_pool: npt.NDArray[np.bool_] | None
) -> tuple[Floats, Integers]:
    """Own, else the other, which is the pool's or shipped."""
    unknown = np.isnan(own)
    found = np.where(unknown, other, own)
    source = np.where(unknown, 2 if is_pool is None else np.where(is_pool, 1, 2), 0)
    shape = (-1, len(SIGNALS))
    return found.reshape(shape), source.reshape(shape).astype(np.int64)
