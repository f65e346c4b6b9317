"""The evidence columns of this detector, minute by minute."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from driftwatch.detect.pins import Pins
from driftwatch.detect.settings import DetectSettings


@dataclass(frozen=True, slots=True)
class Memory:
    """What outlives the minutes it was learnt from."""

    def frames(self) -> dict[str, pl.DataFrame]:
        """Name → frame, to be kept in the store."""
        return {}

    def without(self, targets: pl.DataFrame) -> Memory:
        """Less what is known of some targets (instance, engine)."""
        return self


def memory_from(frames: dict[str, pl.DataFrame]) -> Memory:
    """The memory that :meth:`Memory.frames` gave."""
    return Memory()


def columns(
    minutes: pl.DataFrame, memory: Memory, pins: Pins, settings: DetectSettings
) -> tuple[pl.DataFrame, Memory]:
    """The detector's evidence columns, row for row beside the minutes.

    Args:
        minutes: :data:`driftwatch.signals.minutes.MINUTE_SCHEMA`, by instance, engine and end;
            whatever was evaluated in this tick (and, for later detectors, the columns of earlier
            ones).
        memory: from the minutes before. How minutes are split over calls changes nothing.
        pins: in force for all of these minutes.
        settings: what a person set.
    """
    return pl.DataFrame({"rows": minutes["end"]}).drop("rows"), memory
