"""Minutes added up to hours: counters, gauges times seconds, and histograms by layout of edges."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from driftwatch.arrays import Flags, Floats, Indices, Integers
from driftwatch.detect.memory import Array
from driftwatch.detect.trend.memory import (
    BATCH,
    FIELDS,
    LENGTHS,
    LN_SPEED,
    SIGNALS,
    SUMS,
    TRENDS,
    Layouts,
    Memory,
)
from driftwatch.signals.histograms import by_layout

# ln of a median of few tokens says little; H2's speed is NULL then, so every known value counts.
_PASSES = (pl.col("forward_passes") > 0) & ~pl.col("forward_passes_overcounted").fill_null(False)
_IS_SPEED = np.array([[name == "speed"] for name in TRENDS])
_TOKENS = pl.col("itl_seconds_count") + pl.col("ttft_seconds_count")


@dataclass(frozen=True, slots=True)
class Sums:
    """What is read of some minutes, row for row."""

    target: Indices  # row of the memory's targets, rising
    sums: Floats  # [n, len(SUMS)], 0 where unknown
    cells: Mapping[str, Floats]  # per signal cumulative counts [n, width], 0 where unknown
    # per signal the number of the layout of each row, -1 where unknown
    layout: Mapping[str, npt.NDArray[np.int16]]
    bins: Mapping[str, Integers]  # per sketch the bin of each row, -1 where unknown

    def only(self, rows: Flags) -> Sums:
        """Some of the rows."""
        return Sums(
            self.target[rows],
            self.sums[rows],
            {s: c[rows] for s, c in self.cells.items()},
            {s: n[rows] for s, n in self.layout.items()},
            {s: b[rows] for s, b in self.bins.items()},
        )


def sums_of(minutes: pl.DataFrame, target: Indices, layouts: Layouts) -> tuple[Sums, Layouts]:
    """What is added up of minutes, and the layouts with those that are new."""
    sums = minutes.select(_sums(_speed(minutes), _slow(minutes))).to_numpy().astype(float)
    sums = np.nan_to_num(sums, nan=0.0, posinf=0.0, neginf=0.0)
    cells, numbers = {}, {}
    all_layouts = dict(layouts)
    for signal in SIGNALS:
        cells[signal], numbers[signal], all_layouts[signal] = _histograms(
            minutes[f"{signal}_buckets"], minutes[f"{signal}_edges"], all_layouts.get(signal, ())
        )
    lines = minutes.select(
        requests_per_forward_pass=pl.when(_PASSES & (_TOKENS > 0)).then(
            _TOKENS / pl.col("forward_passes")
        ),
        ln_speed=_speed(minutes).log(),
    )
    bins = {
        name: (LN_SPEED if name == "ln_speed" else BATCH).index(
            lines[name].cast(pl.Float64).to_numpy()
        )
        for name in lines.columns
    }
    return Sums(target, sums, cells, numbers, bins), all_layouts


def _speed(minutes: pl.DataFrame) -> pl.Expr:
    """Speed at equal load of a minute; unknown where that detector has not spoken."""
    if "speed_at_equal_load_ratio" not in minutes.columns:
        return pl.lit(None, dtype=pl.Float64)
    speed = pl.col("speed_at_equal_load_ratio").cast(pl.Float64)
    # with preemptions it is a bound from below: no creep is told from it
    preempting = (pl.col("preemptions_total") > 0).fill_null(value=False)
    return pl.when((speed > 0) & ~preempting).then(speed)


def _slow(minutes: pl.DataFrame) -> pl.Expr:
    """Whether a detector called a minute slow."""
    more = [
        name for name in ("slower_at_equal_load", "slower_than_pool") if name in minutes.columns
    ]
    return pl.any_horizontal(pl.lit(False), *(pl.col(name).fill_null(False) for name in more))


def _sums(speed: pl.Expr, slow: pl.Expr) -> list[pl.Expr]:
    seconds = pl.col("duration_seconds")
    gpus = pl.col("gpu_count") > 0
    summed = {
        "passed_tokens": pl.when(_PASSES).then(_TOKENS),
        "forward_passes": pl.when(_PASSES & _TOKENS.is_not_null()).then(pl.col("forward_passes")),
        "gpu_seconds": pl.when(gpus).then(pl.col("gpu_count") * seconds),
        "gpu_tokens": pl.when(gpus).then(pl.col("generation_tokens_total")),
        "minutes": (pl.col("scrapes") > 0).cast(pl.Float64),
        "slo_minutes": pl.col("slo_missed").is_not_null().cast(pl.Float64),
        "slo_missed_minutes": pl.col("slo_missed").cast(pl.Float64),
        "interruptions": (
            pl.col("restarted").fill_null(False) | pl.col("configuration_changed").fill_null(False)
        ).cast(pl.Float64),
        "ln_speed": speed.log(),
        "speed_minutes": speed.is_not_null().cast(pl.Float64),
        "slow_minutes": slow.cast(pl.Float64),
    }
    return [summed.get(name, pl.col(name)).cast(pl.Float64).alias(name) for name in SUMS]


def _histograms(
    buckets: pl.Series, edges: pl.Series, layouts: tuple[tuple[float, ...], ...]
) -> tuple[Floats, npt.NDArray[np.int16], tuple[tuple[float, ...], ...]]:
    """Matrix of counts, number of the layout of each row, and the layouts."""
    numbers = np.full(len(buckets), -1, dtype=np.int16)
    parts = []
    for rows, edges_of_rows, matrix in by_layout(buckets, edges):
        layout = tuple(edges_of_rows.tolist())
        if len(layout) < 2:
            continue
        if layout not in layouts:
            layouts = (*layouts, layout)
        numbers[rows] = layouts.index(layout)
        parts.append((rows, matrix))
    cells = np.zeros((len(buckets), max((len(layout) for layout in layouts), default=1)))
    for rows, matrix in parts:
        cells[rows, : matrix.shape[1]] = matrix
    return np.nan_to_num(cells, nan=0.0), numbers, layouts


def with_minutes(memory: Memory, more: Sums, minute: Integers) -> Memory:
    """The memory with some minutes of its open hour added.

    Nothing is compared across a change of layout: a target whose edges change begins anew.
    """
    starts = np.flatnonzero(np.diff(more.target, prepend=-1))
    if any(_mixed(more.layout[s], more.target, starts) for s in SIGNALS):
        for one in np.unique(minute):
            rows = minute == one
            memory = with_minutes(memory, more.only(rows), minute[rows])
        return memory
    targets = more.target[starts]
    arrays = dict(memory.arrays)

    def own(name: str) -> Array:
        arrays[name] = arrays[name].copy()
        return arrays[name]

    layouts = own("layouts")
    for i, signal in enumerate(SIGNALS):
        number = np.maximum.reduceat(more.layout[signal], starts)
        there = number >= 0
        before = layouts[targets, i]
        changed = targets[there & (before >= 0) & (number != before)]
        layouts[targets[there], i] = number[there]
        sums = own(f"hour_{signal}")
        sums[changed] = 0.0
        cells = np.add.reduceat(more.cells[signal], starts, axis=0)
        sums[targets, : cells.shape[1]] += cells
        if len(changed):
            _forget(arrays, signal, changed)
    own("hour_sums")[targets] += np.add.reduceat(more.sums, starts, axis=0)
    for name, bins in more.bins.items():
        is_known = bins >= 0
        np.add.at(own(f"day_{name}"), (more.target[is_known], bins[is_known]), 1)
    return memory.with_arrays(arrays)


def _mixed(number: npt.NDArray[np.int16], target: Indices, starts: Indices) -> bool:
    """Whether a target has more than one layout in these rows."""
    if (number == number[0]).all():
        return False
    lowest = np.minimum.reduceat(np.where(number < 0, np.iinfo(np.int16).max, number), starts)
    highest = np.maximum.reduceat(number, starts)
    return bool(((highest >= 0) & (lowest != highest)).any())


def _forget(arrays: dict[str, npt.NDArray[np.generic]], signal: str, targets: Indices) -> None:
    spans = ("day", "last_hours", "last_days", "usual")
    for name in (n for span in spans if (n := f"{span}_{signal}") in arrays):
        copied = arrays[name].copy()
        copied[targets] = FIELDS[name].fill
        arrays[name] = copied
    if signal not in (*LENGTHS, "e2e_seconds"):
        return
    # Other edges put the same requests' quantiles elsewhere, p99 by 5 to 20 %: a step that the
    # days from before would make a slope of. Speed is a mean, and keeps its days.
    for name in ("day_hours", "equal_lengths", "within_days"):  # [..., trends, sums]
        copied = arrays[name].copy()
        copied[targets] = np.where(_IS_SPEED, copied[targets], FIELDS[name].fill)
        arrays[name] = copied
