"""Detection with a past: minutes in, evidence columns out, and what must be remembered.

A pure fold over minutes: the columns of a minute depend on the minutes up to it and on the
baselines, never on how minutes were split over calls. What is remembered can be given to the store
and back; minutes after that are folded in again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import polars as pl

from driftwatch.detect.baselines import Baselines
from driftwatch.detect.lengths import columns as lengths
from driftwatch.detect.memory import named, part_of
from driftwatch.detect.settings import DetectSettings
from driftwatch.detect.speed import columns as speed
from driftwatch.detect.trend import columns as trend


@dataclass(frozen=True, slots=True)
class Memory:
    """Of all detectors."""

    speed: speed.Memory = field(default_factory=speed.Memory)  # of :mod:`driftwatch.detect.speed`
    # of :mod:`driftwatch.detect.lengths`
    lengths: lengths.Memory = field(default_factory=lengths.Memory)
    trend: trend.Memory = field(default_factory=trend.Memory)  # of :mod:`driftwatch.detect.trend`

    def frames(self) -> Iterator[tuple[str, pl.DataFrame]]:
        """Name and frame, to be kept in the store; one detector's copies at a time."""
        yield from named(self.speed.frames(), "speed").items()
        yield from named(self.lengths.frames(), "lengths").items()
        yield from named(self.trend.frames(), "trend").items()

    def without(self, targets: pl.DataFrame) -> Memory:
        """Less what is known of some targets.

        ``targets``: instance, engine.
        """
        return Memory(
            self.speed.without(targets), self.lengths.without(targets), self.trend.without(targets)
        )


def memory_from(frames: Mapping[str, pl.DataFrame]) -> Memory:
    """The memory that :meth:`Memory.frames` gave."""
    return Memory(
        speed.memory_from(part_of(frames, "speed")),
        lengths.memory_from(part_of(frames, "lengths")),
        trend.memory_from(part_of(frames, "trend")),
    )


def detect(
    minutes: pl.DataFrame, memory: Memory, baselines: Baselines, settings: DetectSettings
) -> tuple[pl.DataFrame, Memory]:
    """Every detector's evidence columns, row for row beside the minutes (MINUTE_SCHEMA)."""
    fast, of_speed = speed.columns(minutes, memory.speed, baselines, settings)
    columns = minutes.hstack(fast)
    shifted, of_lengths = lengths.columns(columns, memory.lengths, settings)
    columns = columns.hstack(shifted)
    slow, of_trend = trend.columns(columns, memory.trend, baselines, settings)
    return pl.concat([fast, shifted, slow], how="horizontal"), Memory(
        of_speed, of_lengths, of_trend
    )
