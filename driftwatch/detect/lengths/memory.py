"""What the length scores remember: an hour of minutes, four weeks of a pool's hours, own nulls.

A target costs 60 minutes x 2 signals x edges x 4 bytes (6 kB with vLLM's 13 edges for 8 k
tokens), their sums 1 kB, and its null 2 x 1.4 kB: about 10 kB. A pool costs 28 days of hours, 120
bytes an hour with 13 edges: 80 kB, and two hours of minutes, 27 kB.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import polars as pl

from driftwatch.arrays import Floats, Integers
from driftwatch.detect.lengths.episodes import NO_WATCH, Watch
from driftwatch.detect.lengths.layouts import ONLY_INF, SIGNALS, regridded
from driftwatch.detect.lengths.scales import Thresholds
from driftwatch.detect.memory import Array, Arrays, Field, arrays_from, named, no_arrays, part_of
from driftwatch.detect.null import Null, null, null_from

KEEP = 60  # minutes of a target
KEEP_POOL = 120  # minutes of a pool: the longest window and the hour before it
KEEP_HOURS = 28 * 24
NEVER = -(10**9)
# factors of lengths that are tried out in a pool's own windows (see detectable.py)
FACTORS = (1.05, 1.1, 1.15, 1.2, 1.25, 1.3, 1.4, 1.5, 1.75, 2.0, 2.5, 3.0)
TRIALS = 12  # windows, one every other hour
# Minutes until a distance is learnt from: by then a shift that it was the beginning of has shown.
DELAY = 30
# The same of a pool: what was over by then was a burst, which is usual; what lasts is a shift.
DELAY_OF_POOL = 60
# of JS x sqrt(requests): steps of 8 %
_BINS: Floats = np.geomspace(0.1, 60.0, 81)
# finished days per null, and the minutes that make a day count
_DAYS, _LEAST = 7, 180

# Histograms are cumulative, [minutes or hours, units, signals, edges]; sums are of tokens. ``held``
# are the last minutes' distances that are not learnt from yet (NaN = none), ``watch`` the states.
_TARGETS = {
    "of_pool": Field(dtype="int64", fill=-1),  # place of its pool, -1 = none
    "restarted": Field(dtype="int64", fill=NEVER),  # minute of the last restart or change of knobs
    "counts": Field((KEEP, 2, -1), "float32", axis=1),
    "sums": Field((KEEP, 2), axis=1),
    "held": Field((DELAY, 2), fill=np.nan, axis=1),
    "watch": Field((len(NO_WATCH),), fill=NO_WATCH),
}
_POOLS = {
    "counts": Field((KEEP_POOL, 2, -1), axis=1),
    "sums": Field((KEEP_POOL, 2), axis=1),
    "hour_counts": Field((-1, 2, -1), "float32", axis=1),
    "hour_sums": Field((-1, 2), axis=1),
    "held": Field((DELAY_OF_POOL, 2), fill=np.nan, axis=1),
    "watch": Field((len(NO_WATCH),), fill=NO_WATCH),
    # which factors a pool's recent windows would have shown (1), or not (0; -1 = not tried)
    "shown": Field((TRIALS, 2, len(FACTORS)), "int8", -1, axis=1),
    # the smallest factor that they would show, as of the last full hour; NaN = none, or unknown
    "detectable": Field((2,), fill=np.nan),
}


def _no_targets() -> Arrays:
    return no_arrays(("instance", "engine"), _TARGETS)


def _no_pools() -> Arrays:
    empty = no_arrays(("pool",), _POOLS)
    hours = {name: empty[name][:0] for name in ("hour_counts", "hour_sums")}
    return empty.with_arrays(**hours)


def _no_peers() -> Null:
    return null(_BINS, ("instance", "engine", "signal"), _DAYS, _LEAST)


def _no_contexts() -> Null:
    return null(_BINS, ("pool", "signal"), _DAYS, _LEAST)


@dataclass(frozen=True, slots=True)
class Memory:
    """What outlives the minutes it was learnt from. A value: nothing in it is changed in place."""

    # edges that histograms are kept on; see :mod:`driftwatch.detect.lengths.layouts`
    grid: Floats = field(default_factory=lambda: ONLY_INF)
    minute: int = -1  # number (since 1970) of the last minute folded in; -1 before the first
    targets: Arrays = field(default_factory=_no_targets)  # arrays of targets
    pools: Arrays = field(default_factory=_no_pools)  # arrays of pools
    # numbers (since 1970) of the hours kept, rising
    hours: Integers = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    # usual distance of each target to its peers, times sqrt(requests)
    peers: Null = field(default_factory=_no_peers)
    # usual distance of each pool to its nearest context
    contexts: Null = field(default_factory=_no_contexts)
    # h, and what the running week has shown
    thresholds: Thresholds = field(default_factory=Thresholds)

    def of_targets(self, others: Mapping[str, Any] | None = None, **arrays: Array) -> Memory:
        """With some other arrays of targets, and other attributes."""
        return replace(self, targets=self.targets.with_arrays(**arrays), **(others or {}))

    def of_pools(self, others: Mapping[str, Any] | None = None, **arrays: Array) -> Memory:
        """With some other arrays of pools, and other attributes."""
        return replace(self, pools=self.pools.with_arrays(**arrays), **(others or {}))

    @property
    def uneven(self) -> Watch:
        """States of targets."""
        return Watch.of(self.targets["watch"])

    @property
    def shifted(self) -> Watch:
        """States of pools."""
        return Watch.of(self.pools["watch"])

    def with_grid(self, grid: Floats) -> Memory:
        """The same on a wider grid."""
        if len(grid) == len(self.grid):
            return self
        counts = regridded(self.targets["counts"], self.grid, grid)
        return self.of_targets({"grid": grid}, counts=counts).of_pools(
            counts=regridded(self.pools["counts"], self.grid, grid),
            hour_counts=regridded(self.pools["hour_counts"], self.grid, grid),
        )

    def with_units(self, targets: pl.DataFrame, pools: pl.DataFrame) -> Memory:
        """With room for these targets (instance, engine) and pools (pool), each once."""
        of_targets, of_pools = self.targets.with_keys(targets), self.pools.with_keys(pools)
        return replace(
            self,
            targets=of_targets,
            pools=of_pools,
            peers=self.peers.with_keys(_per_signal(of_targets.keys))[0],
            contexts=self.contexts.with_keys(_per_signal(of_pools.keys))[0],
        )

    def without(self, targets: pl.DataFrame) -> Memory:
        """Less what is known of some targets (instance, engine)."""
        leaving = targets.select("instance", "engine")
        return replace(
            self, targets=self.targets.without(leaving), peers=self.peers.without(leaving)
        )

    def frames(self) -> dict[str, pl.DataFrame]:
        """Name → frame, to be kept in the store."""
        numbers = {
            "minute": [self.minute],
            "week": [self.thresholds.week],
            "values": [list(self.thresholds.values)],
            "peaks": [self.thresholds.peaks.ravel().tolist()],
            "minutes": [self.thresholds.minutes.tolist()],
            "grid": [self.grid.tolist()],
            "hours": [self.hours.tolist()],
        }
        return {
            "numbers": pl.DataFrame(numbers, schema_overrides={"hours": pl.List(pl.Int64)}),
            **named(self.targets.frames(), "targets"),
            **named(self.pools.frames(), "pools"),
            **named(self.peers.frames(), "peers"),
            **named(self.contexts.frames(), "contexts"),
        }


def memory_from(frames: Mapping[str, pl.DataFrame]) -> Memory:
    """The memory that :meth:`Memory.frames` gave; a new one from no frames."""
    if "numbers" not in frames:
        return Memory()
    numbers = frames["numbers"].row(0, named=True)
    peers, contexts = numbers["values"]
    minutes = np.array(numbers["minutes"])
    thresholds = Thresholds(
        values=(peers, contexts),
        week=numbers["week"],
        peaks=np.array(numbers["peaks"]).reshape(len(minutes), -1),
        minutes=minutes,
    )
    return Memory(
        grid=np.array(numbers["grid"]),
        minute=numbers["minute"],
        targets=arrays_from(part_of(frames, "targets"), _no_targets()),
        pools=arrays_from(part_of(frames, "pools"), _no_pools()),
        hours=np.array(numbers["hours"], dtype=np.int64),
        peers=null_from(part_of(frames, "peers"), _no_peers()),
        contexts=null_from(part_of(frames, "contexts"), _no_contexts()),
        thresholds=thresholds,
    )


def _per_signal(units: pl.DataFrame) -> pl.DataFrame:
    """Each unit with each signal: slot = place of the unit x signals + place of the signal."""
    return units.join(pl.DataFrame({"signal": SIGNALS}), how="cross", maintain_order="left_right")
