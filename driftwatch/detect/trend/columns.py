"""The evidence columns of this detector, minute by minute."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import polars as pl

from driftwatch.collect.schema import KEY
from driftwatch.detect.baselines import Baselines
from driftwatch.detect.output import Schema, frame_of
from driftwatch.detect.settings import DetectSettings
from driftwatch.detect.trend.baselines import FACTORS, attributed, beside_of
from driftwatch.detect.trend.creep import reasons
from driftwatch.detect.trend.days import at_hour
from driftwatch.detect.trend.hours import sums_of, with_minutes
from driftwatch.detect.trend.memory import HOLD, HOURLY_COLUMNS, Beside, Memory, memory_from

__all__ = ["Memory", "columns", "memory_from"]


_FLAGS = ("latency_creeps", "pin_lengths_moved")
REASON = "trend_unknown_reason"
COLUMNS: Schema = {
    **{name: pl.Boolean if name in _FLAGS else pl.Float64 for name in HOURLY_COLUMNS},
    REASON: pl.String,
    "pin_age_seconds": pl.Float64,
    **dict.fromkeys(FACTORS, pl.Float64),
}


def columns(
    minutes: pl.DataFrame, memory: Memory, baselines: Baselines, settings: DetectSettings
) -> tuple[pl.DataFrame, Memory]:
    """The detector's evidence columns, row for row beside the minutes (MINUTE_SCHEMA).

    What concerns days changes at midnight, what concerns the baseline's lengths at full hours.
    """
    if minutes.is_empty():
        return pl.DataFrame(schema=COLUMNS), memory
    # a target's pool is that of its last minute
    theirs = minutes.group_by(KEY, maintain_order=True).agg(pl.col("pool").last())
    memory = memory.with_targets(theirs)
    target = memory.targets.places(minutes)
    sums, layouts = sums_of(minutes, target, memory.layouts)
    if layouts != memory.layouts:
        memory = memory.widened(layouts)
    beside = _beside_of(memory, baselines, settings)
    memory = replace(memory, beside=beside)
    minute = minutes["end"].dt.epoch("s").to_numpy() // 60
    hour = (minute - 1) // 60
    hourly = np.empty((len(minute), len(HOURLY_COLUMNS)))
    unknown = np.full(len(minute), None, dtype=object)
    for one in np.unique(hour):
        rows = hour == one
        memory = at_hour(memory, int(one), beside, settings)
        hourly[rows] = memory.arrays["held"][target[rows]]
        unknown[rows] = reasons(memory.arrays)[target[rows]]
        memory = with_minutes(memory, sums.only(rows), minute[rows])
    factors, recent = attributed(
        minutes, target, minute, memory.arrays["recent"], memory.minute, beside
    )
    memory = memory.with_arrays({"recent": recent}, minute=int(minute.max()))
    age = 60.0 * (minute - beside.until_minute[target])
    values = {
        **{name: hourly[:, HOLD[name]] for name in HOURLY_COLUMNS},
        "pin_age_seconds": np.where(age >= 0, age, np.nan),  # unknown inside it
        **factors,
        REASON: unknown,
    }
    return frame_of(values, COLUMNS), memory


def _beside_of(memory: Memory, baselines: Baselines, settings: DetectSettings) -> Beside:
    """The baselines beside the targets, made again only when either changes."""
    before = memory.beside
    if (
        before is not None
        and before.baselines is baselines
        and before.targets is memory.targets.keys
        and before.settings is settings
    ):
        return before
    return beside_of(baselines, memory.targets.keys, settings)
