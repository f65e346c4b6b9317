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
import numpy.typing as npt
import polars as pl

from driftwatch.arrays import Codes, Floats, Integers, Singles
from driftwatch.detect.lengths.episodes import Watch, watch
from driftwatch.detect.lengths.layouts import ONLY_INF, SIGNALS, regridded
from driftwatch.detect.lengths.scales import RESETS_SCHEMA, Thresholds
from driftwatch.detect.null import Null, null, null_from

KEEP = 60  # minutes of a target
KEEP_POOL = 120  # minutes of a pool: the longest window and the hour before it
KEEP_HOURS = 28 * 24
NEVER = -(10**9)
# factors of lengths that are tried out in a pool's own windows (see detectable.py)
FACTORS = (1.05, 1.1, 1.15, 1.2, 1.25, 1.3, 1.4, 1.5, 1.75, 2.0, 2.5, 3.0)
TRIALS = 12  # windows, one every other hour
# Minutes until a distance is learnt from: by then a shift that it was the beginning of has shown.
HELD = 30
# The same of a pool: what was over by then was a burst, which is usual; what lasts is a shift.
HELD_OF_POOL = 60
# of JS x sqrt(requests): steps of 8 %
_BINS: Floats = np.geomspace(0.1, 60.0, 81)
# finished days per null, and the minutes that make a day count
_DAYS, _LEAST = 7, 180

_Arrays = dict[str, Any]  # of NumPy, by the name of the attribute

_TARGETS = {"instance": pl.String, "engine": pl.String}
_POOLS = {"pool": pl.String}
_PACKED: dict[str, pl.DataType | type[pl.DataType]] = {
    "name": pl.String,
    "dtype": pl.String,
    "shape": pl.List(pl.Int64),
    "data": pl.Binary,
}
# arrays of Memory by the axis that counts targets or pools
_OF_TARGETS = {"of_pool": 0, "restarted": 0, "counts": 1, "sums": 1, "held_peers": 1}
_OF_POOLS = {
    "pool_counts": 1,
    "pool_sums": 1,
    "hour_counts": 1,
    "hour_sums": 1,
    "shown": 1,
    "detectable": 0,
    "held_contexts": 1,
}


@dataclass(frozen=True, slots=True)
class Memory:
    """What outlives the minutes it was learnt from. A value: nothing in it is changed in place.

    Attributes:
        grid: edges that histograms are kept on; see :mod:`driftwatch.detect.lengths.layouts`.
        minute: number (since 1970) of the last minute folded in; -1 before the first.
        targets: instance, engine; row = place of a target in every array.
        pools: pool; row = place of a pool.
        of_pool: place of each target's pool, -1 = none.
        restarted: minute of each target's last restart or change of knobs.
        counts: cumulative, the last hour's minutes, [minutes, targets, signals, edges].
        sums: of tokens, [minutes, targets, signals].
        pool_counts: the pools' last two hours, [minutes, pools, signals, edges].
        pool_sums: of tokens.
        hours: numbers (since 1970) of the hours kept, rising.
        hour_counts: the pools' hours, [hours, pools, signals, edges].
        hour_sums: of tokens.
        uneven: states of targets.
        shifted: states of pools.
        peers: usual distance of each target to its twins, times sqrt(requests).
        contexts: usual distance of each pool to its nearest context.
        held_peers: the last minutes' distances that are not learnt from yet, [minutes, targets,
            signals]; NaN = none.
        held_contexts: the same of pools.
        thresholds: h, and what the running week has shown.
        shown: which factors a pool's recent windows would have shown (1), or not (0; -1 = not
            tried), [trials, pools, signals, factors].
        detectable: the smallest factor that they would show, as of the last full hour, [pools,
            signals]; NaN = none, or not known.
    """

    grid: Floats = field(default_factory=lambda: ONLY_INF)
    minute: int = -1
    targets: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=_TARGETS))
    pools: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=_POOLS))
    of_pool: Integers = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    restarted: Integers = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    counts: Singles = field(default_factory=lambda: np.zeros((KEEP, 0, 2, 1), dtype=np.float32))
    sums: Floats = field(default_factory=lambda: np.zeros((KEEP, 0, 2)))
    pool_counts: Floats = field(default_factory=lambda: np.zeros((KEEP_POOL, 0, 2, 1)))
    pool_sums: Floats = field(default_factory=lambda: np.zeros((KEEP_POOL, 0, 2)))
    hours: Integers = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    hour_counts: Singles = field(default_factory=lambda: np.zeros((0, 0, 2, 1), dtype=np.float32))
    hour_sums: Floats = field(default_factory=lambda: np.zeros((0, 0, 2)))
    uneven: Watch = field(default_factory=lambda: watch(0))
    shifted: Watch = field(default_factory=lambda: watch(0))
    peers: Null = field(
        default_factory=lambda: null(_BINS, ("instance", "engine", "signal"), _DAYS, _LEAST)
    )
    contexts: Null = field(default_factory=lambda: null(_BINS, ("pool", "signal"), _DAYS, _LEAST))
    held_peers: Floats = field(default_factory=lambda: np.zeros((HELD, 0, 2)))
    held_contexts: Floats = field(default_factory=lambda: np.zeros((HELD_OF_POOL, 0, 2)))
    thresholds: Thresholds = field(default_factory=Thresholds)
    shown: Codes = field(
        default_factory=lambda: np.zeros((TRIALS, 0, 2, len(FACTORS)), dtype=np.int8)
    )
    detectable: Floats = field(default_factory=lambda: np.zeros((0, 2)))

    def with_grid(self, grid: Floats) -> Memory:
        """The same on a wider grid."""
        if len(grid) == len(self.grid):
            return self
        histograms = ("counts", "pool_counts", "hour_counts")
        wide: _Arrays = {n: regridded(getattr(self, n), self.grid, grid) for n in histograms}
        return replace(self, grid=grid, **wide)

    def with_units(self, targets: pl.DataFrame, pools: pl.DataFrame) -> Memory:
        """With room for these targets and pools, where they are new.

        Args:
            targets: instance, engine, each once.
            pools: pool, each once.
        """
        new = targets.join(self.targets, on=["instance", "engine"], how="anti")
        fresh = pools.join(self.pools, on="pool", how="anti")
        memory = self
        if len(new):
            known, _ = self.peers.with_keys(_per_signal(new))
            memory = replace(
                memory,
                targets=pl.concat([self.targets, new]),
                uneven=self.uneven.grown(len(new)),
                peers=known,
                **_grown(
                    self,
                    _OF_TARGETS,
                    len(new),
                    {"of_pool": -1, "restarted": NEVER, "held_peers": np.nan},
                ),
            )
        if len(fresh):
            seen, _ = self.contexts.with_keys(_per_signal(fresh))
            memory = replace(
                memory,
                pools=pl.concat([self.pools, fresh]),
                shifted=self.shifted.grown(len(fresh)),
                contexts=seen,
                **_grown(
                    memory,
                    _OF_POOLS,
                    len(fresh),
                    {"shown": -1, "held_contexts": np.nan, "detectable": np.nan},
                ),
            )
        return memory

    def without(self, targets: pl.DataFrame) -> Memory:
        """Less what is known of some targets.

        Args:
            targets: instance, engine.
        """
        mark = self.targets.join(
            targets.select("instance", "engine").unique().with_columns(gone=True),
            on=["instance", "engine"],
            how="left",
            maintain_order="left",
        )
        stay = mark["gone"].is_null().to_numpy()
        if stay.all():
            return self
        fewer: _Arrays = {
            name: np.compress(stay, getattr(self, name), axis) for name, axis in _OF_TARGETS.items()
        }
        return replace(
            self,
            targets=self.targets.filter(stay),
            uneven=self.uneven.kept(stay),
            peers=self.peers.without(targets.select("instance", "engine").unique()),
            **fewer,
        )

    def frames(self) -> dict[str, pl.DataFrame]:
        """Name → frame, to be kept in the store."""
        arrays = {name: getattr(self, name) for name in (*_OF_TARGETS, *_OF_POOLS, "grid", "hours")}
        for part in ("uneven", "shifted"):
            state: Watch = getattr(self, part)
            arrays |= {f"{part}.{n}": getattr(state, n) for n in Watch.__dataclass_fields__}
        arrays |= {"peaks": self.thresholds.peaks, "minutes": self.thresholds.minutes}
        arrays["values"] = np.array(self.thresholds.values)
        arrays["numbers"] = np.array([self.minute, self.thresholds.week])
        return {
            "arrays": _packed(arrays),
            "targets": self.targets,
            "pools": self.pools,
            "resets": self.thresholds.resets,
            **{f"peers.{name}": frame for name, frame in self.peers.frames().items()},
            **{f"contexts.{name}": frame for name, frame in self.contexts.frames().items()},
        }


def memory_from(frames: Mapping[str, pl.DataFrame]) -> Memory:
    """The memory that :meth:`Memory.frames` gave; a new one from no frames."""
    if "arrays" not in frames:
        return Memory()
    arrays = _unpacked(frames["arrays"])
    minute, week = (int(x) for x in arrays.pop("numbers"))
    peers, contexts = (float(x) for x in arrays.pop("values"))
    states: dict[str, Any] = {
        part: Watch(**{n: arrays.pop(f"{part}.{n}") for n in Watch.__dataclass_fields__})
        for part in ("uneven", "shifted")
    }
    thresholds = Thresholds(
        values=(peers, contexts),
        week=week,
        peaks=arrays.pop("peaks"),
        minutes=arrays.pop("minutes"),
        resets=frames["resets"].cast(pl.Schema(RESETS_SCHEMA)),
    )
    return Memory(
        minute=minute,
        targets=frames["targets"],
        pools=frames["pools"],
        thresholds=thresholds,
        peers=null_from(_under(frames, "peers.")),
        contexts=null_from(_under(frames, "contexts.")),
        **states,
        **arrays,
    )


def _under(frames: Mapping[str, pl.DataFrame], prefix: str) -> dict[str, pl.DataFrame]:
    return {n.removeprefix(prefix): f for n, f in frames.items() if n.startswith(prefix)}


def _per_signal(units: pl.DataFrame) -> pl.DataFrame:
    """Each unit with each signal: slot = place of the unit x signals + place of the signal."""
    return units.join(pl.DataFrame({"signal": SIGNALS}), how="cross", maintain_order="left_right")


def _grown(
    memory: Memory, axes: Mapping[str, int], more: int, fills: Mapping[str, float]
) -> _Arrays:
    found: _Arrays = {}
    for name, axis in axes.items():
        array = getattr(memory, name)
        shape = (*array.shape[:axis], more, *array.shape[axis + 1 :])
        fresh = np.full(shape, fills.get(name, 0), dtype=array.dtype)
        found[name] = np.concatenate([array, fresh], axis=axis)
    return found


def _packed(arrays: Mapping[str, npt.NDArray[Any]]) -> pl.DataFrame:
    rows = [
        (name, array.dtype.str, list(array.shape), np.ascontiguousarray(array).tobytes())
        for name, array in arrays.items()
    ]
    return pl.DataFrame(rows, schema=_PACKED, orient="row")


def _unpacked(frame: pl.DataFrame) -> _Arrays:
    return {
        name: np.frombuffer(data, dtype=np.dtype(dtype)).reshape(shape).copy()
        for name, dtype, shape, data in frame.select(*_PACKED).iter_rows()
    }
