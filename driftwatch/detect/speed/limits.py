"""Thresholds from a target's own past, else its pool's, else shipped ones that are marked.

A threshold aims at a budget of false episodes, and a quantile of a statistic is not one: the 0.1 %
quantile of a 10-min statistic is crossed for 43 min a month, in two episodes. Beyond what a few
days have seen the tail must be extrapolated: so many standard deviations of the lower half below
the median. What that gives is measured in docs/methods/speed.md.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import polars as pl

from driftwatch.arrays import Floats, Indices, Texts
from driftwatch.detect.null import Null, null
from driftwatch.detect.speed.change import Limits
from driftwatch.detect.speed.fit import WANDER_SD
from driftwatch.detect.speed.load_model import LoadModel

LEVEL, CHANGE, PEER_LEVEL, PEER_CHANGE = "level", "change", "peer level", "peer change"
STATISTICS = (LEVEL, CHANGE, PEER_LEVEL, PEER_CHANGE)
_EDGES = np.linspace(-0.6, 0.4, 101)
_DAYS, _LEAST = 7, 480
# A level wanders over hours: fewer days hold too few independent ones. A change does not.
LEVEL_DAYS, CHANGE_DAYS = 5, 2

# Never above: a level of 0.87, against the peers, who wander too, of 0.84; and a sudden change of
# 8.5 %, for a loss of 15 % less what the 90 % quantile and the fading mean hide of it.
MOST_LEVEL, MOST_PEER_LEVEL = math.log(0.87), math.log(0.84)
MOST_CHANGE = math.log(0.915)
LEVEL_SDS = 5.0
CHANGE_SDS = 5.0
# The lower half as normal: median less 2 % quantile is so many standard deviations.
_LOW_QUANTILE, _LOW_SDS = 0.02, 2.054
_FOUND_SDS = 1.645  # 95 of 100
# A level is a 90 % quantile of minutes: so far above their median where their noise is normal.
_HIGH_SDS = 1.28
# The mean of 20 min less the fading mean before them, of an AR(1) of 90 min: 0.43 of its sd, of
# which five. Its sd is that of the level where days of it are known.
_LONG_SDS = 5.0 * 0.43
# What white noise of the minutes adds: 1.25/√20 for the median, 0.29 for the fading mean; five too.
_LONG_NOISE_SDS = 5.0 * 0.40
MOST_LONG_CHANGE = math.log(0.89)

# Shipped, before five days of one's own: a young model has the wander of its window in it as well
# (two independent deviations: √2), and a model of a day or more only its own.
YOUNG_MINUTES = 1440
YOUNG_LEVEL, OLD_LEVEL = math.log(0.80), math.log(0.85)
YOUNG_PEER_LEVEL, OLD_PEER_LEVEL = math.log(0.73), math.log(0.79)  # two wanders: √2 as far
SHIPPED_CHANGE = math.log(0.90)
# The 90 % quantile of eight minutes of white noise lies 1.2 sd up and, less a fading mean, moves by
# 0.58 sd: five of them below are 1.7 sd of the noise (docs/methods/speed.md).
_NOISE_SDS = 1.7
_NO_FALLS = (math.inf, math.inf)
# Where the baseline's own windows say how far ln r falls, that counts and no formula: a month has a
# deeper one than a day, so many times as deep. However deep that is (a fault within the baseline),
# it is no more than 20 %, so that a loss of 30 % is found.
FALLS_TIMES = 1.5
MOST_FALL = -math.log(0.80)


def no_past() -> Null:
    """A memory of the statistics without anything in it: at most 7,200 bytes a target."""
    return null(_EDGES, ("instance", "engine", "statistic"), _DAYS, _LEAST)


def limits_of(
    past: Null,
    keys: pl.DataFrame,
    pools: Sequence[str],
    models: Sequence[LoadModel | None],
    statistics: tuple[str, str],
) -> Limits:
    """The thresholds of targets, for a pair of ``statistics`` (level, change)."""
    noise = np.array([math.nan if model is None else model.misfit_ratio for model in models])
    young = np.array(
        [model is None or model.minutes < YOUNG_MINUTES for model in models], dtype=bool
    )
    peers = statistics[0] == PEER_LEVEL
    early, late = (YOUNG_PEER_LEVEL, OLD_PEER_LEVEL) if peers else (YOUNG_LEVEL, OLD_LEVEL)
    far = math.sqrt(2.0) if peers else 1.0
    shipped_level = np.minimum(np.where(young, early, late), -LEVEL_SDS * far * noise)
    # of what peers did to each other in their baselines nobody knows
    falls = np.array([_NO_FALLS if model is None or peers else model.falls for model in models])
    falls = np.where(np.isinf(falls), np.nan, np.minimum(FALLS_TIMES * falls, MOST_FALL))
    short_fall, long_seen = falls.reshape(-1, 2).T
    noise_fall = np.where(np.isnan(short_fall), -_NOISE_SDS * noise, -short_fall)
    shipped_change = np.minimum(SHIPPED_CHANGE, noise_fall)
    numbers = {pool: k for k, pool in enumerate(dict.fromkeys(pools))}
    groups = np.array([numbers[pool] for pool in pools], dtype=np.intp)
    usual, sd, source = _usual(past, keys, groups, statistics[0], LEVEL_DAYS)
    change, change_sd, changes = _usual(past, keys, groups, statistics[1], CHANGE_DAYS)
    is_known = ~np.isnan(noise)
    own_level = np.minimum(
        MOST_PEER_LEVEL if peers else MOST_LEVEL, np.minimum(usual, 0.0) - LEVEL_SDS * sd
    )
    own_change = np.fmin(np.minimum(MOST_CHANGE, change - CHANGE_SDS * change_sd), -short_fall)
    level = np.where(np.isnan(usual), shipped_level, own_level)
    fall = np.where(np.isnan(change), shipped_change, own_change)
    typical = np.where(np.isnan(change), 0.8 * noise, change)
    spread = np.where(np.isnan(change_sd), 0.58 * noise, change_sd)
    smallest = -np.expm1(np.minimum(fall - typical - _FOUND_SDS * spread, 0.0))
    wander = np.where(np.isnan(usual), far * WANDER_SD, sd)
    noise_sds = np.where(np.isnan(long_seen), _LONG_NOISE_SDS * far, 0.0)
    long_fall = np.minimum(MOST_LONG_CHANGE, -np.hypot(_LONG_SDS * wander, noise_sds * noise))
    long_fall = np.fmin(long_fall, -long_seen)
    label = np.where(
        (source == "own") & (changes == "own"),
        "own",
        np.where((source == "shipped") | (changes == "shipped"), "shipped (uncalibrated)", "pool"),
    ).astype(object)
    label[~is_known] = None
    nothing = np.where(is_known, 0.0, np.nan)
    return Limits(
        level + nothing,
        np.where(np.isnan(usual), 0.0, np.minimum(usual, 0.0)) + nothing,
        np.where(source == "own", np.maximum(usual - _HIGH_SDS * noise, 0.0), 0.0) + nothing,
        fall + nothing,
        long_fall + nothing,
        smallest + nothing,
        label,
    )


def _usual(
    past: Null,
    keys: pl.DataFrame,
    groups: Indices,
    which: str,
    days: int,
) -> tuple[Floats, Floats, Texts]:
    """Median, standard deviation of the lower half, and whose past it is."""
    null, slots = past.with_keys(keys.with_columns(statistic=pl.lit(which)))
    where = np.full(null.size, -1, dtype=np.intp)
    where[slots] = groups
    middle = null.quantile(0.5, days)[slots]
    low = null.quantile(_LOW_QUANTILE, days)[slots]
    source = np.where(np.isnan(middle), "pool", "own").astype(object)
    pooled = null.pooled_quantile(0.5, where, days)[slots]
    pooled_low = null.pooled_quantile(_LOW_QUANTILE, where, days)[slots]
    source[np.isnan(middle) & np.isnan(pooled)] = "shipped"
    low = np.where(np.isnan(middle), pooled_low, low)
    middle = np.where(np.isnan(middle), pooled, middle)
    return middle, (middle - low) / _LOW_SDS, source
