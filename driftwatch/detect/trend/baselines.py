"""The baselines in force beside the memory's targets, and where throughput went since.

tokens/s/GPU = effective batch / mean ITL x (1 + first tokens per later token) / GPUs: the batch
over the inter-token latency is the rate of later tokens, and first tokens come on top. The latency
is that of the step-time model over the speed at equal load, so its change has two factors: what a
step has to do (load), and how fast it does it (speed). The baseline window is where the model was
fitted: there the speed is 1, and the model's latency is the measured one.
"""

from __future__ import annotations

import zlib
from datetime import timedelta

import numpy as np
import polars as pl

from driftwatch.arrays import Floats, Indices, Integers
from driftwatch.detect.baselines import Baseline, Baselines
from driftwatch.detect.settings import DetectSettings
from driftwatch.detect.trend.creep import part_of_week
from driftwatch.detect.trend.memory import LENGTHS, RECENT, RECENT_SUMS, Beside

# What the baseline window measured, for attribution and for means of lengths.
SCALARS = (
    "effective_batch_size",
    "itl_seconds_mean",
    "first_tokens_ratio",
    "gpu_count",
    "prompt_tokens_mean",
    "generation_tokens_mean",
)
# A baseline of less is no day to compare 24 h with: its hours are not those of a day.
LEAST_HOURS = 23.0


def beside_of(baselines: Baselines, targets: pl.DataFrame, settings: DetectSettings) -> Beside:
    """The baselines beside these targets (instance, engine, pool)."""
    places: dict[str, int] = {}
    in_use: list[Baseline] = []
    of = np.full(len(targets), -1, dtype=np.int64)
    for row, key in enumerate(targets.iter_rows() if baselines.every else ()):
        if (one := baselines.of_target(*key)) is not None:
            if one.id not in places:
                places[one.id] = len(in_use)
                in_use.append(one)
            of[row] = places[one.id]
    spans = [(one.until - one.since).total_seconds() / 3600 for one in in_use]
    none = [np.nan] * len(SCALARS)
    # the last one stands for having none: it is what -1 finds
    return Beside(
        baselines=baselines,
        targets=targets,
        settings=settings,
        of=of,
        number=np.array([*(zlib.crc32(one.id.encode()) for one in in_use), -1])[of],
        until_minute=np.array([*(one.until.timestamp() // 60 for one in in_use), np.nan])[of],
        is_whole_day=np.array([*(hours >= LEAST_HOURS for hours in spans), False])[of],
        parts=np.array([*(_parts(one, settings) for one in in_use), (False, False)])[of],
        scalars=np.array([*(_scalars(one.reference) for one in in_use), none])[of],
        cells={signal: [_cells(one.reference, signal) for one in in_use] for signal in LENGTHS},
    )


def _parts(baseline: Baseline, settings: DetectSettings) -> tuple[bool, bool]:
    """Which parts of the week the window has at least six hours of."""
    hours = [0.0, 0.0]
    at = baseline.since
    while at < baseline.until:
        day = int(at.timestamp() // 86400)
        midnight = at + timedelta(seconds=86400 - at.timestamp() % 86400)
        end = min(midnight, baseline.until)
        hours[part_of_week(day, settings)] += (end - at).total_seconds() / 3600
        at = end
    return hours[0] >= 6.0, hours[1] >= 6.0


def _scalars(reference: pl.DataFrame) -> list[float]:
    if reference.is_empty():
        return [np.nan] * len(SCALARS)
    row = reference.row(0, named=True)
    values = [row.get(f"reference_{name}") for name in SCALARS]
    return [np.nan if value is None else float(value) for value in values]


def _cells(reference: pl.DataFrame, signal: str) -> tuple[Floats, Floats] | None:
    columns = [f"reference_{signal}_{part}" for part in ("buckets", "edges")]
    if reference.is_empty() or any(c not in reference.columns for c in columns):
        return None
    buckets, edges = (reference[c][0] for c in columns)
    if buckets is None or edges is None or len(buckets) != len(edges) or len(edges) < 2:
        return None
    return buckets.cast(pl.Float64).to_numpy(), edges.cast(pl.Float64).to_numpy()


FACTORS = tuple(
    f"throughput_factor_{name}_ratio" for name in ("batch", "load", "speed", "first_tokens", "gpus")
)
_SUM = {name: i for i, name in enumerate(RECENT_SUMS)}
_SCALAR = {name: i for i, name in enumerate(SCALARS)}


def attributed(
    minutes: pl.DataFrame,
    target: Indices,
    minute: Integers,
    recent: Floats,
    last: int | None,
    beside: Beside,
) -> tuple[dict[str, Floats], Floats]:
    """The factors of every minute over the ten minutes that end with it, and the new ``recent``.

    Those begin anew after a restart or a change of a knob. ``recent``: [targets, RECENT, sums], the
    minutes up to ``last``, all in minutes since 1970.
    """
    first, count = int(minute.min()), int(minute.max() - minute.min()) + 1
    grid = np.full((len(recent), RECENT + count, len(RECENT_SUMS)), np.nan)
    gap = RECENT if last is None or first <= last else min(first - last - 1, RECENT)
    grid[:, : RECENT - gap] = recent[:, gap:]
    at = RECENT + minute - first
    grid[target, at] = minutes.select(_recent_sums()).cast(pl.Float64).to_numpy()
    interrupted = np.nan_to_num(grid[:, :, _SUM["interrupted"]])
    # the minute of an interruption is of neither window
    grid[interrupted > 0, : _SUM["interrupted"]] = np.nan
    window = np.cumsum(interrupted, axis=1)
    total = np.zeros((len(minute), len(RECENT_SUMS)))
    for back in range(RECENT + 1):  # always in this order: the same sums however minutes are split
        same = window[target, at - back] == window[target, at]
        total += np.where(same[:, None], np.nan_to_num(grid[target, at - back]), 0.0)
    return _factors(minutes, total, target, beside), grid[:, -RECENT:].copy()


def _recent_sums() -> list[pl.Expr]:
    """What :data:`RECENT_SUMS` names; NULL throughout where the batch is unknown."""
    seconds, gpus = pl.col("duration_seconds"), pl.col("gpu_count")
    is_known = (
        pl.col("itl_seconds_sum").is_not_null()
        & pl.col("itl_seconds_count").is_not_null()
        & pl.col("ttft_seconds_count").is_not_null()
    )
    composed = {
        "gpu_seconds": gpus * seconds,
        "gpu_known_seconds": pl.when(gpus > 0).then(seconds),
    }
    return [
        *(
            pl.when(is_known).then(composed.get(name, pl.col(name))).alias(name)
            for name in RECENT_SUMS[:-1]
        ),
        (
            pl.col("restarted").fill_null(False) | pl.col("configuration_changed").fill_null(False)
        ).alias("interrupted"),
    ]


def _factors(
    minutes: pl.DataFrame, total: Floats, target: Indices, beside: Beside
) -> dict[str, Floats]:
    before = beside.scalars[target]
    now = {name: total[:, i] for name, i in _SUM.items()}
    speed = np.full(len(target), np.nan)
    if "speed_at_equal_load_ratio" in minutes.columns:
        speed = minutes["speed_at_equal_load_ratio"].cast(pl.Float64).to_numpy()
    with np.errstate(invalid="ignore", divide="ignore"):
        batch = now["itl_seconds_sum"] / now["duration_seconds"]
        latency = now["itl_seconds_sum"] / now["itl_seconds_count"]
        first = now["ttft_seconds_count"] / now["itl_seconds_count"]
        gpus = now["gpu_seconds"] / now["gpu_known_seconds"]
        values = (
            batch / before[:, _SCALAR["effective_batch_size"]],
            before[:, _SCALAR["itl_seconds_mean"]] / (latency * speed),
            speed,
            (1 + first) / (1 + before[:, _SCALAR["first_tokens_ratio"]]),
            before[:, _SCALAR["gpu_count"]] / gpus,
        )
    # without a baseline window there is nothing that a factor changes from
    there = np.isfinite(before[:, _SCALAR["itl_seconds_mean"]])
    return {
        name: np.where(there & np.isfinite(v) & (v > 0), v, np.nan)
        for name, v in zip(FACTORS, values, strict=True)
    }
