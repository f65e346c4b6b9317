"""What this detector remembers: arrays by target, the open hour and day, and the days before.

All arrays have a row per target of ``targets``. :data:`FIELDS` says what each is, and how much a
target costs: with vLLM's default buckets about 20 kB (measured in docs/methods/trends.md).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from driftwatch.detect.trend.sketches import BATCH, LN_SPEED

Array = npt.NDArray[Any]

# Histograms that an hour and a day add up.
SIGNALS = ("prompt_tokens", "generation_tokens", "e2e_seconds", "ttft_seconds", "queue_seconds")
LENGTHS = ("prompt_tokens", "generation_tokens")

# Sums that an hour and a day add up: counters as they are, gauges times seconds.
SUMS = (
    "prompt_tokens_sum",
    "prompt_tokens_count",
    "generation_tokens_sum",
    "generation_tokens_count",
    "e2e_seconds_sum",
    "e2e_seconds_count",
    "queue_seconds_sum",
    "queue_seconds_count",
    "ttft_seconds_sum",
    "ttft_seconds_count",
    "generation_tokens_total",
    "duration_seconds",
    "finished_requests_total",
    "forward_passes",
    "passed_tokens",  # those of minutes whose forward passes are known
    "gpu_seconds",
    "gpu_tokens",  # those of minutes whose GPUs are known
    "kv_seconds",
    "kv_usage_seconds",
    "minutes",  # with a usable scrape
    "slo_minutes",
    "slo_missed_minutes",
    "interruptions",  # restarts and knob changes
    "ln_speed",  # of minutes with a known speed at equal load
    "speed_minutes",
    "slow_minutes",  # of which another detector said that the target was slow
)
SUM = {name: i for i, name in enumerate(SUMS)}

HOURS = 24  # whole hours that are compared with the pin
DAYS = 28  # whole days that a trend is sought in: four of every weekday
PAST_DAYS = 7  # whole days whose lengths today's are compared with, for what is usual
# What trends are sought in, with the quantile of the lengths that go with it.
TRENDS = {"speed": 0.5, "e2e_p50": 0.5, "e2e_p99": 0.99}
COVARIATES = 5  # ln of prompt and generation lengths, mean and quantile; of the batch
# per hour: how many, y, x, and the products of x with x and y
HOURLY = 2 + 2 * COVARIATES + COVARIATES**2
RECENT = 9  # minutes before this one: ten with it
RECENT_SUMS = (
    "itl_seconds_sum",
    "itl_seconds_count",
    "ttft_seconds_count",
    "duration_seconds",
    "gpu_seconds",
    "gpu_known_seconds",
    "interrupted",  # by a restart or a change of a knob: what came before is another window
)
# What is said of every minute until the next hour, or the next day.
HELD = (
    *(
        f"{name}_{part}"
        for name in TRENDS
        for part in ("slope_14d_ratio", "slope_14d_lower_ratio", "slope_14d_upper_ratio")
    ),
    "latency_creeps",
    "prompt_tokens_pin_score",
    "generation_tokens_pin_score",
    "prompt_tokens_pin_ratio",
    "generation_tokens_pin_ratio",
    "pin_lengths_moved",
)
HOLD = {name: i for i, name in enumerate(HELD)}


@dataclass(frozen=True, slots=True)
class Field:
    """One array.

    Attributes:
        shape: of a target's share; -1 is the width of the histograms of ``signal``.
        dtype: NumPy's name.
        fill: of a target that has just come.
        signal: whose histograms these are.
    """

    shape: tuple[int, ...]
    dtype: str = "float64"
    fill: float = 0.0
    signal: str | None = None


FIELDS: Mapping[str, Field] = {
    "hour_sums": Field((len(SUMS),)),
    **{f"hour_{s}": Field((-1,), signal=s) for s in SIGNALS},
    # number of the layout of edges in use, -1 before the first; of the hour, and of what follows
    "layouts": Field((len(SIGNALS),), "int16", -1),
    "day_sums": Field((len(SUMS),)),
    **{f"day_{s}": Field((-1,), signal=s) for s in SIGNALS},
    "day_hours": Field((len(TRENDS), HOURLY)),
    "day_requests_per_forward_pass": Field((BATCH.count,), "uint16"),
    "day_effective_batch_size": Field((BATCH.count,), "uint16"),
    "day_ln_speed": Field((LN_SPEED.count,), "uint16"),
    **{f"last_hours_{s}": Field((HOURS, -1), "float32", signal=s) for s in LENGTHS},
    "last_hours_sums": Field((HOURS, 5)),
    **{f"last_days_{s}": Field((PAST_DAYS, -1), "float32", signal=s) for s in LENGTHS},
    **{f"usual_{s}": Field((DAYS,), "float32", np.nan) for s in LENGTHS},
    "ln_speed": Field((DAYS,), "float64", np.nan),
    "speed_minutes": Field((DAYS,), "float32"),
    "speed_reference": Field((DAYS,), "int64", -1),
    "equal_lengths": Field((DAYS, len(TRENDS), 2 + COVARIATES), "float32"),
    "within_days": Field((len(TRENDS), 1 + COVARIATES + COVARIATES**2)),
    "recent": Field((RECENT, len(RECENT_SUMS)), "float64", np.nan),
    "held": Field((len(HELD),), "float64", np.nan),
    "moved_hours": Field((), "int16"),
    "pin": Field((), "int64", -1),
}

_Schema = dict[str, pl.DataType | type[pl.DataType]]
_TARGETS: _Schema = {"instance": pl.String, "engine": pl.String, "pool": pl.String}
_CLOCK: _Schema = {"hour": pl.Int64, "minute": pl.Int64}
_LAYOUTS: _Schema = {"signal": pl.String, "number": pl.Int64, "edges": pl.List(pl.Float64)}


@dataclass(frozen=True, slots=True)
class Memory:
    """What outlives the minutes it was learnt from. A value: nothing changes it in place.

    Attributes:
        targets: instance, engine, pool, by instance and engine.
        arrays: by name of :data:`FIELDS`.
        layouts: bucket edges by signal, in the order in which they came.
        hour: the hour that is being added up, since 1970; None before the first.
        minute: end of the last minute, in minutes since 1970.
        finished: whole rows of the last two finished days, from :mod:`.daily`.
        pinned: what was made of the pins in force; not kept in the store, as it can be made again.
    """

    targets: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=_TARGETS))
    arrays: Mapping[str, Array] = field(default_factory=lambda: _empty(0, {}))
    layouts: Mapping[str, tuple[tuple[float, ...], ...]] = field(default_factory=dict)
    hour: int | None = None
    minute: int | None = None
    finished: pl.DataFrame = field(default_factory=pl.DataFrame)
    pinned: Any = None

    def frames(self) -> dict[str, pl.DataFrame]:
        """Name → frame, to be kept in the store."""
        columns = {}
        for name, array in self.arrays.items():
            flat = (
                array.reshape(len(array), math.prod(array.shape[1:])) if array.ndim > 1 else array
            )
            series = pl.Series(name, flat)
            columns[name] = series.arr.to_list() if array.ndim > 1 else series
        layouts = [
            {"signal": signal, "number": number, "edges": list(edges)}
            for signal, known in self.layouts.items()
            for number, edges in enumerate(known)
        ]
        return {
            "targets": self.targets.with_columns(**columns),
            "clock": pl.DataFrame([{"hour": self.hour, "minute": self.minute}], schema=_CLOCK),
            "layouts": pl.DataFrame(layouts, schema=_LAYOUTS),
            "finished": self.finished,
        }

    def without(self, targets: pl.DataFrame) -> Memory:
        """Less what is known of some targets (instance, engine)."""
        gone = self.targets.join(
            targets.select("instance", "engine").with_columns(gone=True),
            on=["instance", "engine"],
            how="left",
            maintain_order="left",
        )["gone"]
        stays = gone.is_null().to_numpy()
        if stays.all():
            return self
        return replace(
            self,
            targets=self.targets.filter(stays),
            arrays={name: array[stays] for name, array in self.arrays.items()},
            pinned=None,
        )

    def with_targets(self, targets: pl.DataFrame) -> Memory:
        """With room for these targets, and their pools as they are now.

        Args:
            targets: instance, engine, pool; each target once.
        """
        if targets.equals(self.targets):
            return self
        every = pl.concat([targets, self.targets.join(targets, on=_KEY, how="anti")]).sort(_KEY)
        known = self.targets.select(_KEY).with_row_index("row")
        rows = every.join(known, on=_KEY, how="left", maintain_order="left")["row"]
        new = rows.is_null().to_numpy()
        source = rows.fill_null(0).to_numpy()
        fresh = _empty(len(every), self.layouts)
        arrays = {}
        for name, array in self.arrays.items():
            grown = fresh[name] if len(array) == 0 else array[source]
            if len(array):
                grown[new] = FIELDS[name].fill
            arrays[name] = grown
        return replace(self, targets=every, arrays=arrays, pinned=None)

    def widened(self, layouts: Mapping[str, tuple[tuple[float, ...], ...]]) -> Memory:
        """With histograms wide enough for these layouts."""
        arrays = dict(self.arrays)
        for name, spec in FIELDS.items():
            if spec.signal is None:
                continue
            more = width(layouts, spec.signal) - arrays[name].shape[-1]
            if more > 0:
                pad = [(0, 0)] * (arrays[name].ndim - 1) + [(0, more)]
                arrays[name] = np.pad(arrays[name], pad)
        return replace(self, arrays=arrays, layouts=layouts)


_KEY = ["instance", "engine"]


def width(layouts: Mapping[str, tuple[tuple[float, ...], ...]], signal: str) -> int:
    """Cells of the widest layout of a signal."""
    return max((len(edges) for edges in layouts.get(signal, ())), default=1)


def _empty(targets: int, layouts: Mapping[str, tuple[tuple[float, ...], ...]]) -> dict[str, Array]:
    return {
        name: np.full((targets, *_shape(spec, layouts)), spec.fill, dtype=np.dtype(spec.dtype))
        for name, spec in FIELDS.items()
    }


def _shape(spec: Field, layouts: Mapping[str, tuple[tuple[float, ...], ...]]) -> tuple[int, ...]:
    cells = width(layouts, spec.signal) if spec.signal else -1
    return tuple(cells if size == -1 else size for size in spec.shape)


def memory_from(frames: Mapping[str, pl.DataFrame]) -> Memory:
    """The memory that :meth:`Memory.frames` gave; an empty one where there are none."""
    if not frames:
        return Memory()
    layouts: dict[str, tuple[tuple[float, ...], ...]] = {}
    for signal, _, edges in frames["layouts"].sort("signal", "number").iter_rows():
        layouts[signal] = (*layouts.get(signal, ()), tuple(edges))
    told = frames["targets"]
    arrays = {}
    for name, spec in FIELDS.items():
        shape = (len(told), *_shape(spec, layouts))
        arrays[name] = np.full(shape, spec.fill, dtype=np.dtype(spec.dtype))
        if name not in told.columns:
            continue
        column = told[name]
        flat = column.explode() if isinstance(column.dtype, pl.List) else column
        # what a version with other fields kept of another shape begins anew
        if len(flat) == arrays[name].size:
            arrays[name] = flat.to_numpy().astype(spec.dtype).reshape(shape)
    hour, minute = frames["clock"].row(0)
    return Memory(told.select(_TARGETS.keys()), arrays, layouts, hour, minute, frames["finished"])
