"""How large a distance usually is: own past, then the pool's, then what is shipped."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from driftwatch.detect.distributions.cells import Floats
from driftwatch.detect.lengths.calibration import CONTEXT_SCALE, PEER_SCALE
from driftwatch.detect.lengths.episodes import Integers
from driftwatch.detect.lengths.layouts import SIGNALS
from driftwatch.detect.null import Null

USUAL = 0.99
FULL_DAYS = 5
SOURCES = ("own", "pool", "shipped")
Names = npt.NDArray[np.int64]  # places in SOURCES


def peer_scales(past: Null, of_pool: Integers) -> tuple[Floats, Names]:
    """The 99 % quantile per target and signal, and whose it is.

    With a few days only, the pool's members' days together count as its days.

    Args:
        past: slot = place of the target x signals + place of the signal.
        of_pool: place of each target's pool, -1 = none.

    Returns:
        Scales and places in :data:`SOURCES`, [targets, signals].
    """
    signals = len(SIGNALS)
    pool = np.repeat(of_pool, signals)
    group = np.where(pool >= 0, pool * signals + np.tile(np.arange(signals), len(of_pool)), -1)
    pooled = past.pooled_quantile(USUAL, group, least_days=1)
    days = np.zeros(len(group))
    inside = group >= 0
    if inside.any():
        days[inside] = np.bincount(group[inside], past.known_days()[inside])[group[inside]]
    return _first(past.quantile(USUAL, FULL_DAYS), pooled, days, PEER_SCALE.value)


def context_scales(past: Null) -> tuple[Floats, Names]:
    """The 99 % quantile per pool and signal, and whose it is; see :func:`peer_scales`."""
    days = past.known_days().astype(float)
    young = np.where(days < FULL_DAYS, past.quantile(USUAL, 1), np.nan)
    return _first(past.quantile(USUAL, FULL_DAYS), young, days, CONTEXT_SCALE.value)


def _first(own: Floats, wider: Floats, days: Floats, shipped: float) -> tuple[Floats, Names]:
    """Own, else the wider past; of fewer than five days it moves only part of the way (in ln)."""
    share = np.clip(days / FULL_DAYS, 0.0, 1.0)
    with np.errstate(invalid="ignore", divide="ignore"):
        mixed = np.exp(share * np.log(wider) + (1.0 - share) * np.log(shipped))
    mixed = np.where(np.isnan(wider), shipped, mixed)
    found = np.where(np.isnan(own), mixed, own)
    source = np.where(~np.isnan(own), 0, np.where(~np.isnan(wider) & (share >= 1.0), 1, 2))
    shape = (-1, len(SIGNALS))
    return found.reshape(shape), source.reshape(shape).astype(np.int64)
