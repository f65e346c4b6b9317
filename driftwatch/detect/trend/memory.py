"""What this detector remembers: arrays by target, the open hour and day, and the days before.

All arrays have a row per target of ``targets``. :data:`FIELDS` says what each is, and how much a
target costs: with vLLM's default buckets about 13 kB.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import polars as pl

from driftwatch.arrays import Flags, Floats, Integers
from driftwatch.detect.baselines import Baselines
from driftwatch.detect.memory import Array, Arrays, Field, arrays_from, named, no_arrays, part_of
from driftwatch.detect.null import Bins
from driftwatch.detect.settings import DetectSettings

_RELATIVE_ERROR = 0.01
_GAMMA_LN = float(np.log((1 + _RELATIVE_ERROR) / (1 - _RELATIVE_ERROR)))

# Requests per forward pass: from a hundredth to ten thousand.
BATCH = Bins(lowest=float(np.log(0.01)), width=_GAMMA_LN, count=691, logarithmic=True)
# ln of speed at equal load: a third to three times.
LN_SPEED = Bins(lowest=-1.1, width=0.004, count=550, logarithmic=False)
# Histograms that an hour adds up, and of which a day too.
SIGNALS = ("prompt_tokens", "generation_tokens", "ttft_seconds", "e2e_seconds")
OF_DAYS = SIGNALS[:3]
LENGTHS = SIGNALS[:2]

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
    "forward_passes",
    "passed_tokens",  # those of minutes whose forward passes are known
    "gpu_seconds",
    "gpu_tokens",  # those of minutes whose GPUs are known
    "minutes",  # with a usable scrape
    "slo_minutes",
    "slo_missed_minutes",
    "interruptions",  # restarts and knob changes
    "ln_speed",  # of minutes with a known speed at equal load
    "speed_minutes",
    "slow_minutes",  # of which another detector said that the target was slow
)
SUM = {name: i for i, name in enumerate(SUMS)}

HOURS = 24  # whole hours that are compared with the baseline
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
HOURLY_COLUMNS = (
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
HOLD = {name: i for i, name in enumerate(HOURLY_COLUMNS)}


FIELDS: Mapping[str, Field] = {
    "hour_sums": Field((len(SUMS),)),
    **{f"hour_{s}": Field((-1,)) for s in SIGNALS},
    # number of the layout of edges in use, -1 before the first; of the hour, and of what follows
    "layouts": Field((len(SIGNALS),), "int16", -1),
    "day_sums": Field((len(SUMS),)),
    **{f"day_{s}": Field((-1,)) for s in OF_DAYS},
    "day_hours": Field((len(TRENDS), HOURLY)),
    "day_requests_per_forward_pass": Field((BATCH.count,), "uint16"),
    "day_ln_speed": Field((LN_SPEED.count,), "uint16"),
    **{f"last_hours_{s}": Field((HOURS, -1), "float32") for s in LENGTHS},
    "last_hours_sums": Field((HOURS, 5)),
    **{f"last_days_{s}": Field((PAST_DAYS, -1), "float32") for s in LENGTHS},
    **{f"usual_{s}": Field((DAYS,), "float32", np.nan) for s in LENGTHS},
    "ln_speed": Field((DAYS,), "float64", np.nan),
    "speed_minutes": Field((DAYS,), "float32"),
    "speed_reference": Field((DAYS,), "int64", -1),
    "equal_lengths": Field((DAYS, len(TRENDS), 2 + COVARIATES), "float32"),
    "within_days": Field((len(TRENDS), 1 + COVARIATES + COVARIATES**2)),
    "recent": Field((RECENT, len(RECENT_SUMS)), "float64", np.nan),
    "held": Field((len(HOURLY_COLUMNS),), "float64", np.nan),
    "moved_hours": Field((), "int16"),
    "pin": Field((), "int64", -1),
}

# name → the signal whose histograms it holds
HISTOGRAMS = {
    **{f"hour_{s}": s for s in SIGNALS},
    **{f"day_{s}": s for s in OF_DAYS},
    **{f"{span}_{s}": s for span in ("last_hours", "last_days") for s in LENGTHS},
}
Layouts = Mapping[str, tuple[tuple[float, ...], ...]]
_CLOCK: dict[str, Any] = {"hour": pl.Int64, "minute": pl.Int64}
_LAYOUTS: dict[str, Any] = {
    "signal": pl.String,
    "number": pl.Int64,
    "edges": pl.List(pl.Float64),
}


def _no_targets() -> Arrays:
    return no_arrays(("instance", "engine"), FIELDS, {"pool": None})


@dataclass(frozen=True, slots=True)
class Beside:
    """The baselines in force, beside the targets; without one NaN, -1 and False."""

    baselines: Baselines  # what this was made from
    targets: pl.DataFrame  # whose rows these are
    settings: DetectSettings  # it was made with
    of: Integers  # [targets] place of the target's baseline in ``cells``
    number: Integers  # [targets] of the baseline's id, stable over runs
    until_minute: Floats  # [targets] end of the baseline's window, in minutes since 1970
    is_whole_day: Flags  # [targets] whether it is long enough to compare 24 h with
    parts: Flags  # [targets, 2] whether it has working days, and weekends or holidays
    scalars: Floats  # [targets, len(baselines.SCALARS)]
    # per signal [baselines] cumulative counts and edges; None where the baseline has none
    cells: dict[str, list[tuple[Floats, Floats] | None]]


@dataclass(frozen=True, slots=True)
class Memory:
    """What outlives the minutes it was learnt from. A value: nothing changes it in place."""

    # by instance and engine, with ``pool``; arrays of :data:`FIELDS`
    targets: Arrays = field(default_factory=_no_targets)
    # bucket edges by signal, in the order in which they came
    layouts: Layouts = field(default_factory=dict)
    hour: int | None = None  # the hour that is being added up, since 1970; None before the first
    minute: int | None = None  # end of the last minute, in minutes since 1970
    # whole rows of the last two finished days, from :mod:`.days`
    finished: pl.DataFrame = field(default_factory=pl.DataFrame)
    beside: Beside | None = None  # what was made of the baselines in force; not stored, made anew

    @property
    def arrays(self) -> Mapping[str, Array]:
        """The targets' arrays by name."""
        return self.targets.values

    def with_arrays(self, arrays: Mapping[str, Array], **others: Any) -> Memory:
        """With some other arrays, and other attributes."""
        return replace(self, targets=self.targets.with_arrays(**arrays), **others)

    def frames(self) -> dict[str, pl.DataFrame]:
        """Name → frame, to be kept in the store."""
        layouts = [
            {"signal": signal, "number": number, "edges": list(edges)}
            for signal, of_signal in self.layouts.items()
            for number, edges in enumerate(of_signal)
        ]
        return {
            "clock": pl.DataFrame([{"hour": self.hour, "minute": self.minute}], schema=_CLOCK),
            "layouts": pl.DataFrame(layouts, schema=_LAYOUTS),
            "finished": self.finished,
            **named(self.targets.frames(), "targets"),
        }

    def without(self, targets: pl.DataFrame) -> Memory:
        """Less what is known of some targets (instance, engine)."""
        staying = self.targets.without(targets.select("instance", "engine"))
        return self if staying is self.targets else replace(self, targets=staying, beside=None)

    def with_targets(self, targets: pl.DataFrame) -> Memory:
        """With room for these (instance, engine, pool; once each), and their pools as now."""
        if targets.equals(self.targets.keys):
            return self
        return replace(self, targets=self.targets.with_keys(targets, in_order=True), beside=None)

    def widened(self, layouts: Layouts) -> Memory:
        """With histograms wide enough for these layouts."""
        wider = {}
        for name, signal in HISTOGRAMS.items():
            array = self.arrays[name]
            more = max((len(edges) for edges in layouts.get(signal, ())), default=1)
            more -= array.shape[-1]
            if more > 0:
                wider[name] = np.pad(array, [(0, 0)] * (array.ndim - 1) + [(0, more)])
        return self.with_arrays(wider, layouts=layouts)


def memory_from(frames: Mapping[str, pl.DataFrame]) -> Memory:
    """The memory that :meth:`Memory.frames` gave; an empty one where there are none."""
    if "targets.arrays" not in frames:
        return Memory()
    layouts: dict[str, tuple[tuple[float, ...], ...]] = {}
    for signal, _, edges in frames["layouts"].sort("signal", "number").iter_rows():
        layouts[signal] = (*layouts.get(signal, ()), tuple(edges))
    hour, minute = frames["clock"].row(0)
    targets = arrays_from(part_of(frames, "targets"), _no_targets())
    memory = Memory(targets, hour=hour, minute=minute, finished=frames["finished"])
    return memory.widened(layouts)
