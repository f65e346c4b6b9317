"""Scrapes, windows and settings for tests of the pure middle, and the real recordings."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any

import polars as pl

from driftwatch.collect.recordings.text import RecordingSource
from driftwatch.collect.schema import scrape_frame
from driftwatch.diagnose.evidence_table import WINDOW_SCHEMA, evidence_table, rows_of_scrapes
from driftwatch.minutes.rows import minute_grid, minute_rows
from driftwatch.signals.rows import SERVING_SCHEMA

T0 = datetime(2026, 1, 2, 3, 0, tzinfo=UTC)
HOST = "h:8000"
KEY = ["instance", "engine"]
MINUTE = timedelta(minutes=1)


def at(seconds: float) -> datetime:
    """T0 plus seconds."""
    return T0 + timedelta(seconds=seconds)


def scrapes(
    rows: Sequence[Mapping[str, Any]], instance: str = HOST, engine: str = "0"
) -> pl.DataFrame:
    """Scrapes from rows with ``t`` (seconds after T0); ``ok`` unless said otherwise."""
    return scrape_frame(
        [
            {
                "instance": instance,
                "engine": engine,
                "time": at(row["t"]),
                "ok": True,
                "several_api_servers": False,
                **{name: value for name, value in row.items() if name != "t"},
            }
            for row in rows
        ]
    )


def windows(*spans: tuple[float, float], instance: str = HOST, engine: str = "0") -> pl.DataFrame:
    """Windows from (start, end) in seconds after T0."""
    return pl.DataFrame(
        [(instance, engine, at(start), at(end)) for start, end in spans],
        schema=WINDOW_SCHEMA,
        orient="row",
    )


def serving(frame: pl.DataFrame, **settings: Any) -> pl.DataFrame:
    """One row per target of ``frame``, all configured alike, in one pool."""
    targets = frame.select(KEY).unique().sort(KEY).rows()
    return pl.DataFrame(
        [
            {
                "instance": instance,
                "engine": engine,
                "pool": "pool",
                "max_num_seqs_inferred": False,
                "slo_share": 0.95,
                **settings,
            }
            for instance, engine in targets
        ],
        schema=SERVING_SCHEMA,
        orient="row",
    )


def floor_minute(time: datetime) -> datetime:
    return time.replace(second=0, microsecond=0)


def grid(frame: pl.DataFrame, minutes_after: int = 0) -> pl.DataFrame:
    """Every minute from a target's first scrape to its last (and some more)."""
    first, last = frame["time"].min(), frame["time"].max()
    assert isinstance(first, datetime)
    assert isinstance(last, datetime)
    until = floor_minute(last) + MINUTE * (1 + minutes_after)
    return minute_grid(frame.select(KEY), floor_minute(first), until)


def rows_of(frame: pl.DataFrame) -> pl.DataFrame:
    """The minute rows from the first scrape to the last."""
    asked = grid(frame)
    first, last = asked["start"].min(), asked["end"].max()
    assert isinstance(first, datetime)
    assert isinstance(last, datetime)
    return minute_rows(frame, frame.select(KEY), first, last).rows


def whole(frame: pl.DataFrame, start: float, end: float) -> pl.DataFrame:
    """The whole minutes that hold a span of unix seconds, for every target of ``frame``."""
    start, end = math.floor(start / 60) * 60, math.ceil(end / 60) * 60
    return (
        frame.select(KEY)
        .unique()
        .sort(KEY)
        .with_columns(
            start=pl.lit(datetime.fromtimestamp(start, UTC), dtype=WINDOW_SCHEMA["start"]),
            end=pl.lit(datetime.fromtimestamp(end, UTC), dtype=WINDOW_SCHEMA["end"]),
        )
    )


def evidence(
    frame: pl.DataFrame,
    asked: pl.DataFrame,
    settings: pl.DataFrame,
    inputs: tuple[str, ...] = (),
    **more: Any,
) -> pl.DataFrame:
    """Evidence rows of windows of whole minutes, from scrapes."""
    first, since, until = frame["time"].min(), asked["start"].min(), asked["end"].max()
    assert isinstance(since, datetime)
    assert isinstance(until, datetime)
    if isinstance(first, datetime):
        since = min(since, floor_minute(first))
    rows = rows_of_scrapes(frame, settings, since, until, inputs)
    return evidence_table(rows, asked, serving=settings, **more)


def within(frame: pl.DataFrame, start: float, end: float) -> pl.DataFrame:
    """The scrapes of a span of unix seconds, both ends included."""
    seconds = pl.col("time").dt.epoch("us") / 1e6
    return frame.filter(seconds.is_between(start, end))


@cache
def recording(folder: Path) -> pl.DataFrame:
    """All scrapes of a recording."""
    source = RecordingSource(folder)
    return source.collect(*source.span()).scrapes


@cache
def summary(folder: Path) -> list[dict[str, Any]]:
    """The truth beside a recording, per phase."""
    found: list[dict[str, Any]] = json.loads((folder / "phase_summary.json").read_text())
    return found


def same(left: Any, right: Any, tolerance: float = 1e-9) -> bool:
    """Equal, floats within rounding of sums made in another order; NULL equals NULL only."""
    if isinstance(left, float) and isinstance(right, float):
        return math.isclose(left, right, rel_tol=tolerance, abs_tol=1e-9)
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(same, left, right))
    return bool(left == right)


def differences(left: pl.DataFrame, right: pl.DataFrame) -> list[str]:
    """Where two evidence tables differ, in words; empty if they are the same."""
    assert left.columns == right.columns
    assert left.height == right.height
    found = []
    for one, other in zip(left.to_dicts(), right.to_dicts(), strict=True):
        for name, value in one.items():
            if not same(value, other[name]):
                where = f"{one['instance']}/{one['engine']} {one['end']:%H:%M:%S}"
                found.append(f"{where} {name}: {value} != {other[name]}")
    return found
