"""What the detector remembers: the last hour's load, who is slower, what is usual, what was learnt.

A target costs 54 minutes of twelve singles (2.6 kB) and at most 7,200 bytes of histograms; a pool's
learner at most 58 kB.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime

import numpy as np
import polars as pl

from driftwatch.arrays import Singles
from driftwatch.collect.schema import TIME
from driftwatch.detect.memory import Arrays, Field, arrays_from, named, no_arrays, part_of
from driftwatch.detect.null import Null, null_from
from driftwatch.detect.speed.change import LOOKBACK, Holding, Limits
from driftwatch.detect.speed.learner import Learner, learners_frame, learners_from
from driftwatch.detect.speed.limits import no_past
from driftwatch.detect.speed.load import WIDTH

_FIELDS = {
    "load": Field((LOOKBACK, WIDTH), "float32", np.nan),  # of the last minutes up to ``until``
    "slower": Field((len(Holding.__dataclass_fields__),)),  # than its reference
    "slower_than_peers": Field((len(Holding.__dataclass_fields__),)),
}


def _no_targets() -> Arrays:
    # reference: which model spoke last: a baseline's id, or how often a pool's was fitted
    return no_arrays(("instance", "engine"), _FIELDS, {"pool": None, "reference": None})


@dataclass(frozen=True, slots=True)
class Memory:
    """What outlives the minutes it was learnt from."""

    until: datetime | None = None  # end of the last minute; None before the first
    # by instance and engine, with ``pool`` and ``reference``
    targets: Arrays = field(default_factory=_no_targets)
    past: Null = field(default_factory=no_past)  # what is usual for each statistic
    learners: Mapping[str, Learner] = field(default_factory=dict)  # of each pool
    # thresholds and what they follow from; not stored, made anew
    limits: tuple[str, Limits, Limits] | None = field(default=None, compare=False)

    def frames(self) -> dict[str, pl.DataFrame]:
        """Name → frame, to be kept in the store."""
        return {
            "until": pl.DataFrame({"until": [self.until]}, schema={"until": TIME}),
            "learners": learners_frame(self.learners),
            **named(self.targets.frames(), "targets"),
            **named(self.past.frames(), "past"),
        }

    def without(self, targets: pl.DataFrame) -> Memory:
        """Less what is known of some targets (instance, engine)."""
        leaving = targets.select("instance", "engine")
        staying, past = self.targets.without(leaving), self.past.without(leaving)
        return replace(self, targets=staying, past=past, limits=None)

    def at(self, targets: pl.DataFrame, start: datetime, minutes: int) -> tuple[Memory, Singles]:
        """The memory with these targets (instance, engine, pool) as well, and their load.

        Load is (target, LOOKBACK + minutes, 12), unknown from the minute that ends at ``start`` on.
        """
        everybody = self.targets.with_keys(targets, in_order=True)
        ring = everybody["load"]
        load = np.full((len(everybody), LOOKBACK + minutes, WIDTH), np.nan, dtype=np.float32)
        apart = 0
        if self.until is not None:
            apart = int((start - self.until).total_seconds() // 60) - 1
        if 0 <= apart < LOOKBACK:
            load[:, : LOOKBACK - apart] = ring[:, apart:]
        return replace(self, targets=everybody), load


def memory_from(frames: Mapping[str, pl.DataFrame]) -> Memory:
    """The memory that :meth:`Memory.frames` gave; of no frames an empty one."""
    if "targets.arrays" not in frames:
        return Memory()
    return Memory(
        frames["until"]["until"][0],
        arrays_from(part_of(frames, "targets"), _no_targets()),
        null_from(part_of(frames, "past"), no_past()),
        learners_from(frames["learners"]),
    )
