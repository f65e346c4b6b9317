"""The pins in force beside the memory's targets, as arrays: what a minute's columns need."""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from datetime import datetime, timedelta

import numpy as np
import numpy.typing as npt
import polars as pl

from driftwatch.detect.pins import Pin, Pins
from driftwatch.detect.settings import DetectSettings
from driftwatch.detect.trend.creep import part_of_week
from driftwatch.detect.trend.memory import LENGTHS

Floats = npt.NDArray[np.float64]

# What the pinned window measured, for attribution and for means of lengths.
SCALARS = (
    "effective_batch_size",
    "itl_seconds_mean",
    "first_tokens_ratio",
    "gpu_count",
    "prompt_tokens_mean",
    "generation_tokens_mean",
)
# A pin of less is no day to compare 24 h with: its hours are not those of a day.
LEAST_HOURS = 23.0


@dataclass(frozen=True, slots=True)
class Pinned:
    """The pins in force, by target.

    Attributes:
        pins: what this was made from.
        targets: whose rows these are.
        settings: it was made with.
        of: [targets] place of the target's pin in the arrays below, -1 without one.
        number: [pins] of the pin's id, stable over runs.
        until_minute: [pins] end of the pinned window, in minutes since 1970.
        whole_days: [pins] whether the window is long enough to compare 24 h with.
        parts: [pins, 2] whether the window has working days, and weekends or holidays.
        scalars: [pins, len(SCALARS)], NaN where unknown.
        cells: per signal [pins] cumulative counts and edges; None where the pin has none.
    """

    pins: Pins
    targets: pl.DataFrame
    settings: DetectSettings
    of: npt.NDArray[np.int64]
    number: npt.NDArray[np.int64]
    until_minute: npt.NDArray[np.int64]
    whole_days: npt.NDArray[np.bool_]
    parts: npt.NDArray[np.bool_]
    scalars: Floats
    cells: dict[str, list[tuple[Floats, Floats] | None]]


def pinned(pins: Pins, targets: pl.DataFrame, settings: DetectSettings) -> Pinned:
    """The pins beside these targets.

    Args:
        pins: in force.
        targets: instance, engine, pool.
        settings: holidays.
    """
    found: list[Pin] = []
    places: dict[int, int] = {}
    of = np.full(len(targets), -1, dtype=np.int64)
    if pins.pins:
        for row, (instance, engine, pool) in enumerate(targets.iter_rows()):
            pin = pins.of_target(instance, engine, pool)
            if pin is None:
                continue
            if id(pin) not in places:
                places[id(pin)] = len(found)
                found.append(pin)
            of[row] = places[id(pin)]
    return Pinned(
        pins=pins,
        targets=targets,
        settings=settings,
        of=of,
        number=np.array([zlib.crc32(pin.id.encode()) for pin in found], dtype=np.int64),
        until_minute=np.array([_minutes(pin.until) for pin in found], dtype=np.int64),
        whole_days=np.array(
            [(pin.until - pin.since).total_seconds() >= LEAST_HOURS * 3600 for pin in found],
            dtype=bool,
        ),
        parts=np.array([_parts(pin, settings) for pin in found], dtype=bool).reshape(-1, 2),
        scalars=np.array([_scalars(pin.reference) for pin in found], dtype=float).reshape(
            -1, len(SCALARS)
        ),
        cells={s: [_cells(pin.reference, s) for pin in found] for s in LENGTHS},
    )


def _minutes(at: datetime) -> int:
    return int(at.timestamp() // 60)


def _parts(pin: Pin, settings: DetectSettings) -> tuple[bool, bool]:
    """Which parts of the week the window has at least six hours of."""
    hours = [0.0, 0.0]
    at = pin.since
    while at < pin.until:
        day = int(at.timestamp() // 86400)
        midnight = at + timedelta(seconds=86400 - at.timestamp() % 86400)
        end = min(midnight, pin.until)
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
