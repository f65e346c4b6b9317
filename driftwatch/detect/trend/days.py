"""Hours into days, and days into what is kept of them: one row per target and day for reports.

Quantiles of a day come from sketches and histograms, so a day is bounded however it is scraped.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import polars as pl

from driftwatch.arrays import Floats
from driftwatch.detect.memory import Array
from driftwatch.detect.output import frame_of
from driftwatch.detect.settings import DetectSettings
from driftwatch.detect.trend import equal_lengths, stale
from driftwatch.detect.trend.creep import trend_columns
from driftwatch.detect.trend.memory import (
    BATCH,
    LENGTHS,
    LN_SPEED,
    OF_DAYS,
    SIGNALS,
    SUM,
    TRENDS,
    Beside,
    Memory,
)

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# Integers rows that are kept here; the store has them for as long as reports reach back.
_KEPT_DAYS = 2
PROVISIONAL = 0  # what a speed is compared with where there is no baseline

DAY_SCHEMA: dict[str, pl.DataType | type[pl.DataType]] = {
    "instance": pl.String,
    "engine": pl.String,
    "pool": pl.String,
    "day": pl.Datetime("us", "UTC"),  # its start
    "minutes": pl.Float64,  # with a usable scrape
    "finished_requests": pl.Float64,
    "prompt_tokens_mean": pl.Float64,
    "generation_tokens_mean": pl.Float64,
    "tokens_per_second_per_gpu": pl.Float64,
    "requests_per_forward_pass_p50": pl.Float64,
    "speed_at_equal_load_ratio": pl.Float64,  # median of its minutes
    "slo_missed_ratio": pl.Float64,  # share of the minutes that could tell
    **{f"{s}_{part}": pl.List(pl.Float64) for s in OF_DAYS for part in ("buckets", "edges")},
}


def finished_days(memory: Memory) -> pl.DataFrame:
    """Rows of :data:`DAY_SCHEMA` of the last finished days, by day, instance and engine."""
    return memory.finished if memory.finished.width else pl.DataFrame(schema=DAY_SCHEMA)


def at_hour(memory: Memory, hour: int, beside: Beside, settings: DetectSettings) -> Memory:
    """The memory with ``hour`` (since 1970) as its open hour: those before it are finished."""
    if memory.hour is None:
        return replace(memory, hour=hour)
    if hour <= memory.hour:  # a minute that comes late counts in the hour that is open
        return memory
    arrays = dict(memory.arrays)
    ended = memory.hour
    _finish_hour(memory, arrays, beside, settings, ended)
    today, next_day = ended // 24, hour // 24
    finished = memory.finished
    if next_day > today:
        row = day_rows(memory, arrays, today)
        _finish_day(memory, arrays, beside, settings, today, next_day)
        oldest = _EPOCH + timedelta(days=today - _KEPT_DAYS + 1)
        recent = finished_days(memory).filter(pl.col("day") >= oldest)
        finished = pl.concat([recent, row])
    for name in [f"last_hours_{s}" for s in LENGTHS] + ["last_hours_sums"]:
        arrays[name] = _shifted(arrays[name], hour - ended - 1, 0.0)
    return memory.with_arrays(arrays, hour=hour, finished=finished)


def _shifted(array: Array, by: int, fill: float) -> Array:
    """The array with so many empty places at the end of its second axis, as many lost in front."""
    if by <= 0:
        return array
    by = min(by, array.shape[1])
    moved = np.full_like(array, fill)
    if by < array.shape[1]:
        moved[:, :-by] = array[:, by:]
    return moved


def _appended(array: Array, last: Array) -> Array:
    moved = _shifted(array, 1, 0.0)
    moved[:, -1] = last
    return moved


def _finish_hour(
    memory: Memory,
    arrays: dict[str, Array],
    beside: Beside,
    settings: DetectSettings,
    hour: int,
) -> None:
    sums = arrays["hour_sums"]
    for signal in LENGTHS:
        arrays[f"last_hours_{signal}"] = _appended(
            arrays[f"last_hours_{signal}"], arrays[f"hour_{signal}"]
        )
    last = [f"{s}_{part}" for s in LENGTHS for part in ("sum", "count")]
    arrays["last_hours_sums"] = _appended(
        arrays["last_hours_sums"], sums[:, [SUM[c] for c in (*last, "minutes")]]
    )
    stale.write_pin_columns(memory, arrays, beside, settings, hour)
    arrays["day_hours"] = arrays["day_hours"] + _hour_at_equal_lengths(memory, arrays)
    arrays["day_sums"] = arrays["day_sums"] + sums
    arrays["hour_sums"] = np.zeros_like(sums)
    for signal in OF_DAYS:
        arrays[f"day_{signal}"] = arrays[f"day_{signal}"] + arrays[f"hour_{signal}"]
    for signal in SIGNALS:
        arrays[f"hour_{signal}"] = np.zeros_like(arrays[f"hour_{signal}"])


def _hour_at_equal_lengths(memory: Memory, arrays: dict[str, Array]) -> Floats:
    """The hour's share of the covariance analysis, per trend [n, trends, HOURLY]."""
    sums = arrays["hour_sums"]

    def ratio(over: str, under: str) -> Floats:
        with np.errstate(invalid="ignore", divide="ignore"):
            ratios: Floats = sums[:, SUM[over]] / sums[:, SUM[under]]
        return np.where(np.isfinite(ratios) & (ratios > 0), ratios, np.nan)

    waits = sums[:, SUM["queue_seconds_sum"]] > (
        equal_lengths.MOST_WAIT_RATIO * sums[:, SUM["e2e_seconds_sum"]]
    )
    # a wait that nobody counts may be any
    unclear = sums[:, SUM["queue_seconds_count"]] < 0.99 * sums[:, SUM["e2e_seconds_count"]]
    means = [ratio(f"{s}_sum", f"{s}_count") for s in LENGTHS]
    per_pass = ratio("passed_tokens", "forward_passes")
    interrupted = sums[:, SUM["interruptions"]] > 0
    # a sudden loss is told as such: in the middle of the days it would make a slope of them
    paged = sums[:, SUM["slow_minutes"]] > 0
    sums_of_trends = []
    for name, q in TRENDS.items():
        if name == "speed":
            few = sums[:, SUM["speed_minutes"]] < equal_lengths.LEAST_SPEED_MINUTES
            y = sums[:, SUM["ln_speed"]] / np.where(few, np.nan, sums[:, SUM["speed_minutes"]])
        else:
            few = sums[:, SUM["e2e_seconds_count"]] < equal_lengths.LEAST_FINISHED[name]
            unusable = few | waits | unclear | interrupted | paged
            y = np.where(unusable, np.nan, _ln_quantile(memory, arrays, "e2e_seconds", q))
        lengths = (_ln_quantile(memory, arrays, s, q) for s in LENGTHS)
        x = np.stack([*np.log(means), *lengths, np.log(per_pass)], axis=1)
        sums_of_trends.append(equal_lengths.hourly(y, x))
    return np.stack(sums_of_trends, axis=1)


def _ln_quantile(memory: Memory, arrays: dict[str, Array], signal: str, q: float) -> Floats:
    """ln of the open hour's quantile [n]."""
    number = arrays["layouts"][:, SIGNALS.index(signal)]
    quantiles = np.full(len(number), np.nan)
    for one in np.unique(number[number >= 0]):
        edges = np.array(memory.layouts[signal][one])
        rows = np.flatnonzero(number == one)
        cells = arrays[f"hour_{signal}"][rows, : len(edges)]
        quantiles[rows] = equal_lengths.ln_quantile(cells, edges, q)
    return quantiles


def _histograms(
    memory: Memory, arrays: dict[str, Array], signal: str
) -> tuple[pl.Series, pl.Series]:
    """The open day's cumulative counts and edges as lists, NULL where no layout is known."""
    layouts = [list(edges) for edges in memory.layouts.get(signal, ())]
    edges = [layouts[n] if n >= 0 else None for n in arrays["layouts"][:, SIGNALS.index(signal)]]
    cells = zip(arrays[f"day_{signal}"], edges, strict=True)
    buckets = [None if of is None else row[: len(of)].tolist() for row, of in cells]
    dtype = pl.List(pl.Float64)
    return pl.Series(buckets, dtype=dtype), pl.Series(edges, dtype=dtype)


def day_rows(memory: Memory, arrays: dict[str, Array], day: int) -> pl.DataFrame:
    """The open day (since 1970) as rows of :data:`DAY_SCHEMA`; none of targets without a scrape.

    ``arrays``: the day's, with every hour added.
    """
    sums = arrays["day_sums"]

    def over(top: str, bottom: str) -> Floats:
        with np.errstate(invalid="ignore", divide="ignore"):
            ratios: Floats = sums[:, SUM[top]] / sums[:, SUM[bottom]]
        return np.where(np.isfinite(ratios), ratios, np.nan)

    keys = memory.targets.keys
    values: dict[str, Any] = {
        **{name: keys[name] for name in keys.columns},
        "day": pl.Series([_EPOCH + timedelta(days=day)]).new_from_index(0, len(keys)),
        "minutes": sums[:, SUM["minutes"]],
        "finished_requests": sums[:, SUM["prompt_tokens_count"]],
        "prompt_tokens_mean": over("prompt_tokens_sum", "prompt_tokens_count"),
        "generation_tokens_mean": over("generation_tokens_sum", "generation_tokens_count"),
        "tokens_per_second_per_gpu": over("gpu_tokens", "gpu_seconds"),
        "requests_per_forward_pass_p50": BATCH.quantile(
            arrays["day_requests_per_forward_pass"], 0.5
        ),
        "speed_at_equal_load_ratio": np.exp(LN_SPEED.quantile(arrays["day_ln_speed"], 0.5)),
        "slo_missed_ratio": over("slo_missed_minutes", "slo_minutes"),
    }
    for signal in OF_DAYS:
        values[f"{signal}_buckets"], values[f"{signal}_edges"] = _histograms(memory, arrays, signal)
    return frame_of(values, DAY_SCHEMA).filter(pl.col("minutes") > 0)


def _finish_day(
    memory: Memory,
    arrays: dict[str, Array],
    beside: Beside,
    settings: DetectSettings,
    day: int,
    next_day: int,
) -> None:
    gap = next_day - day - 1
    minutes = arrays["day_ln_speed"].sum(axis=1)
    reference = np.where(beside.of >= 0, beside.number, PROVISIONAL)
    of_hours, within = equal_lengths.daily(arrays["day_hours"])
    arrays["within_days"] = arrays["within_days"] * equal_lengths.REMEMBERED + within
    daily = {
        "ln_speed": LN_SPEED.quantile(arrays["day_ln_speed"], 0.5),
        "speed_minutes": minutes,
        "speed_reference": np.where(minutes > 0, reference, -1),
        "equal_lengths": of_hours,
    }
    for signal in LENGTHS:
        distances = stale.day_distances(memory, arrays, signal, day, settings)
        daily[f"usual_{signal}"] = distances
        daily[f"last_days_{signal}"] = arrays[f"day_{signal}"]
    fills = {"ln_speed": np.nan, "speed_reference": -1.0, **{f"usual_{s}": np.nan for s in LENGTHS}}
    for name, value in daily.items():
        arrays[name] = _shifted(_appended(arrays[name], value), gap, fills.get(name, 0.0))
    for name in list(arrays):
        if name.startswith("day_"):
            arrays[name] = np.zeros_like(arrays[name])
    arrays["held"] = trend_columns(arrays, next_day, settings)
