"""What the detector remembers: the last hour's load, who is slower, what is usual, what was learnt.

A target costs 54 minutes of eleven singles (2,376 bytes), and at most 7,200 bytes of histograms;
a pool's learner at most 58 kB.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

import numpy as np
import polars as pl

from driftwatch.arrays import Singles
from driftwatch.collect.schema import KEY_COLUMNS, TIME
from driftwatch.detect.null import Null, null_from
from driftwatch.detect.speed.change import LOOKBACK, Holding
from driftwatch.detect.speed.learner import Learner, learners_frame, learners_from, widened
from driftwatch.detect.speed.limits import no_past
from driftwatch.detect.speed.load import WIDTH

_KEY = list(KEY_COLUMNS)
TARGET_SCHEMA: dict[str, Any] = {
    "instance": pl.String,
    "engine": pl.String,
    "pool": pl.String,
    "reference": pl.String,  # which law spoke last: a pin's id, or how often a pool's was fitted
    "slower": pl.Boolean,
    "before": pl.Float64,
    "loss": pl.Float64,
    "age": pl.Float64,
    "deepest": pl.Float64,
    "peer_slower": pl.Boolean,
    "peer_before": pl.Float64,
    "peer_loss": pl.Float64,
    "peer_age": pl.Float64,
    "peer_deepest": pl.Float64,
}
_HOLDING = ("slower", "before", "loss", "age", "deepest")


def _no_targets() -> pl.DataFrame:
    return pl.DataFrame(schema=TARGET_SCHEMA)


def _no_load() -> Singles:
    return np.empty((0, LOOKBACK, WIDTH), dtype=np.float32)


@dataclass(frozen=True, slots=True)
class Memory:
    """What outlives the minutes it was learnt from.

    Attributes:
        until: end of the last minute; None before the first.
        targets: :data:`TARGET_SCHEMA`, by instance and engine.
        load: (target, minute, 12), the last :data:`LOOKBACK` minutes up to ``until``.
        past: what is usual for each statistic.
        learners: of each pool.
        known: thresholds by what they follow from; not kept, made anew.
    """

    until: datetime | None = None
    targets: pl.DataFrame = field(default_factory=_no_targets)
    load: Singles = field(default_factory=_no_load)
    past: Null = field(default_factory=no_past)
    learners: Mapping[str, Learner] = field(default_factory=dict)
    known: Mapping[str, Any] = field(default_factory=dict, compare=False)

    def frames(self) -> dict[str, pl.DataFrame]:
        """Name → frame, to be kept in the store."""
        flat = self.load.reshape(len(self.load), LOOKBACK * WIDTH)
        load = pl.Series("load", flat.tolist(), dtype=pl.List(pl.Float32))
        return {
            "until": pl.DataFrame({"until": [self.until]}, schema={"until": TIME}),
            "targets": self.targets.with_columns(load),
            "learners": learners_frame(dict(self.learners)),
            **{f"past.{name}": frame for name, frame in self.past.frames().items()},
        }

    def without(self, targets: pl.DataFrame) -> Memory:
        """Less what is known of some targets (instance, engine)."""
        gone = targets.select(_KEY).unique()
        stays = ~(
            self.targets.select(_KEY)
            .join(gone.with_columns(gone=True), on=_KEY, how="left", maintain_order="left")["gone"]
            .fill_null(value=False)
            .to_numpy()
        )
        return replace(
            self,
            targets=self.targets.filter(stays),
            load=self.load[stays],
            past=self.past.without(gone),
            known={},
        )

    def at(self, targets: pl.DataFrame, start: datetime, minutes: int) -> tuple[Memory, Singles]:
        """The memory with these targets as well, and room for further minutes.

        Args:
            targets: instance, engine, pool of what is seen now.
            start: end of the first new minute.
            minutes: how many new ones.

        Returns:
            The memory with a row for everybody, and load of (target, LOOKBACK + minutes, 12), of
            which the new minutes are unknown.
        """
        merged = (
            self.targets.with_row_index("old")
            .join(targets, on=_KEY, how="full", coalesce=True, suffix="_now")
            .with_columns(pool=pl.coalesce("pool_now", "pool"))
            .drop("pool_now")
            .sort(_KEY)
        )
        old = merged["old"].fill_null(len(self.load)).to_numpy()
        none = np.full((1, LOOKBACK, WIDTH), np.nan, dtype=np.float32)
        ring = np.concatenate((self.load, none))[old]
        room = np.full((len(old), minutes, WIDTH), np.nan, dtype=np.float32)
        load = np.concatenate((ring, room), axis=1)
        if self.until is not None:
            apart = int((start - self.until).total_seconds() // 60) - 1
            shifted = np.full_like(load, np.nan)
            if 0 <= apart < LOOKBACK:
                shifted[:, : LOOKBACK - apart] = ring[:, apart:]
            load = shifted
        filled = merged.drop("old").with_columns(
            pl.col("slower", "peer_slower").fill_null(value=False),
            pl.col(*_HOLDING[1:], *(f"peer_{name}" for name in _HOLDING[1:])).fill_null(0.0),
        )
        return replace(self, targets=filled.select(*TARGET_SCHEMA)), load

    def holding(self, prefix: str = "") -> Holding:
        """Who is slower (``peer_``: than their twins)."""
        return Holding(*(self.targets[prefix + name].to_numpy().copy() for name in _HOLDING))


def with_holding(targets: pl.DataFrame, own: Holding, peer: Holding) -> pl.DataFrame:
    """Rows of targets with who is slower."""
    return targets.with_columns(
        pl.Series(prefix + name, getattr(held, name))
        for prefix, held in (("", own), ("peer_", peer))
        for name in _HOLDING
    )


def memory_from(frames: dict[str, pl.DataFrame]) -> Memory:
    """The memory that :meth:`Memory.frames` gave; of no frames an empty one."""
    if not frames:
        return Memory()
    kept = frames["targets"]
    # what a version before this one kept says no more than the loss that it found
    kept = kept.with_columns(
        pl.col(f"{whose}loss").alias(f"{whose}deepest")
        for whose in ("", "peer_")
        if f"{whose}deepest" not in kept.columns
    )
    if kept.is_empty():
        load = _no_load()
    else:
        flat = np.array(kept["load"].to_list(), dtype=np.float32)
        load = widened(flat.reshape(len(kept), LOOKBACK, -1))
    past = {n.removeprefix("past."): f for n, f in frames.items() if n.startswith("past.")}
    return Memory(
        frames["until"]["until"][0],
        kept.select(*TARGET_SCHEMA),
        load,
        null_from(past),
        learners_from(frames["learners"]),
    )
