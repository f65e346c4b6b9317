"""What a change of throughput is made of: factors that multiply to it.

tokens/s/GPU = effective batch / mean ITL x (1 + first tokens per later token) / GPUs (evidence.md):
the batch over the inter-token latency is the rate of later tokens, and first tokens come on top.
The latency is that of the load model over the speed at equal load, so its change has two factors:
what a step has to do (load), and how fast it does it (speed). The pinned window is where the model
was fitted: there the speed is 1, and the model's latency is the measured one.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import polars as pl

from driftwatch.detect.trend.memory import RECENT, RECENT_SUMS
from driftwatch.detect.trend.pinned import SCALARS, Pinned

Floats = npt.NDArray[np.float64]
FACTORS = tuple(
    f"throughput_factor_{name}_ratio" for name in ("batch", "load", "speed", "first_tokens", "gpus")
)
_SUM = {name: i for i, name in enumerate(RECENT_SUMS)}
_OF_PIN = {name: i for i, name in enumerate(SCALARS)}


def attributed(
    minutes: pl.DataFrame,
    target: npt.NDArray[np.intp],
    minute: npt.NDArray[np.int64],
    recent: Floats,
    last: int | None,
    pinned: Pinned,
) -> tuple[dict[str, Floats], Floats]:
    """The factors of every minute, over the ten minutes that end with it.

    Those ten minutes begin anew after a restart or a change of a knob.

    Args:
        minutes: with the columns of the detectors before.
        target: row of each minute's target.
        minute: end of each, in minutes since 1970.
        recent: [targets, RECENT, len(RECENT_SUMS)], the minutes up to ``last``.
        last: end of the last minute before these; None before the first.
        pinned: pins beside the targets.

    Returns:
        Column → values [n], NaN where unknown; and the new ``recent``.
    """
    first, count = int(minute.min()), int(minute.max() - minute.min()) + 1
    grid = np.full((len(recent), RECENT + count, len(RECENT_SUMS)), np.nan)
    gap = RECENT if last is None or first <= last else min(first - last - 1, RECENT)
    grid[:, : RECENT - gap] = recent[:, gap:]
    at = RECENT + minute - first
    grid[target, at] = minutes.select(_told()).cast(pl.Float64).to_numpy()
    interrupted = np.nan_to_num(grid[:, :, _SUM["interrupted"]])
    # the minute of an interruption is of neither window
    grid[interrupted > 0, : _SUM["interrupted"]] = np.nan
    window = np.cumsum(interrupted, axis=1)
    total = np.zeros((len(minute), len(RECENT_SUMS)))
    for back in range(RECENT + 1):  # always in this order: the same sums however minutes are split
        same = window[target, at - back] == window[target, at]
        total += np.where(same[:, None], np.nan_to_num(grid[target, at - back]), 0.0)
    return _factors(minutes, total, target, pinned), grid[:, -RECENT:].copy()


def _told() -> list[pl.Expr]:
    """What :data:`RECENT_SUMS` names; NULL throughout where the batch is unknown."""
    seconds, gpus = pl.col("duration_seconds"), pl.col("gpu_count")
    known = (
        pl.col("itl_seconds_sum").is_not_null()
        & pl.col("itl_seconds_count").is_not_null()
        & pl.col("ttft_seconds_count").is_not_null()
    )
    told = {
        "gpu_seconds": gpus * seconds,
        "gpu_known_seconds": pl.when(gpus > 0).then(seconds),
    }
    return [
        *(
            pl.when(known).then(told.get(name, pl.col(name))).alias(name)
            for name in RECENT_SUMS[:-1]
        ),
        (
            pl.col("restarted").fill_null(False) | pl.col("configuration_changed").fill_null(False)
        ).alias("interrupted"),
    ]


def _factors(
    minutes: pl.DataFrame, total: Floats, target: npt.NDArray[np.intp], pinned: Pinned
) -> dict[str, Floats]:
    of = pinned.of[target]
    before = np.full((len(target), len(SCALARS)), np.nan)
    before[of >= 0] = pinned.scalars[of[of >= 0]]
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
            batch / before[:, _OF_PIN["effective_batch_size"]],
            before[:, _OF_PIN["itl_seconds_mean"]] / (latency * speed),
            speed,
            (1 + first) / (1 + before[:, _OF_PIN["first_tokens_ratio"]]),
            before[:, _OF_PIN["gpu_count"]] / gpus,
        )
    # without a pinned window there is nothing that a factor changes from
    there = np.isfinite(before[:, _OF_PIN["itl_seconds_mean"]])
    return {
        name: np.where(there & np.isfinite(v) & (v > 0), v, np.nan)
        for name, v in zip(FACTORS, values, strict=True)
    }
