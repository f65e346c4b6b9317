"""Minutes of real recordings, and many days made of them."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from functools import cache
from itertools import pairwise
from pathlib import Path

import polars as pl
from pipeline_cases import recording, serving

from driftwatch.detect.baselines import Baseline, Baselines
from driftwatch.detect.reference_minutes import baseline_of_minutes
from driftwatch.detect.settings import DetectSettings
from driftwatch.detect.trend import columns as trend
from driftwatch.detect.trend.memory import Memory
from driftwatch.diagnose.evidence_table import evidence_table, minute_windows
from driftwatch.signals.minutes import minutes

MONDAY = datetime(2026, 11, 9, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
DAY = timedelta(days=1)
PLAIN = DetectSettings()


@cache
def recorded(folder: Path) -> pl.DataFrame:
    """Every whole minute of a recording, on one GPU."""
    frame = recording(folder)
    settings = serving(frame)
    times = frame["time"].sort()
    first = times[0].replace(second=0, microsecond=0) + MINUTE
    last = times[-1].replace(second=0, microsecond=0)
    rows = evidence_table(
        frame, minute_windows(settings, first, last), kind="chained", cut=False, serving=settings
    ).rows
    return minutes(rows).with_columns(gpu_count=pl.lit(1.0))


def tiled(
    minute: pl.DataFrame,
    since: datetime,
    until: datetime,
    instance: str = "host:8000",
    pool: str = "chat",
) -> pl.DataFrame:
    """Minutes of [since, until) that repeat those of a recording, one after the other."""
    count = int((until - since) / MINUTE)
    copies = pl.concat([minute] * (count // len(minute) + 1)).head(count)
    ends = pl.datetime_range(since + MINUTE, until, "1m", time_unit="us", eager=True)
    return copies.with_columns(
        instance=pl.lit(instance), engine=pl.lit("0"), pool=pl.lit(pool), end=ends
    )


def together(*parts: pl.DataFrame) -> pl.DataFrame:
    """Minutes of several targets, in the order in which a tick has them."""
    return pl.concat(parts).sort("instance", "engine", "end")


def folded(
    every: pl.DataFrame,
    cuts: Iterable[datetime] = (),
    pins: Baselines | None = None,
    settings: DetectSettings = PLAIN,
    memory: Memory | None = None,
    kept: bool = False,
) -> tuple[pl.DataFrame, Memory]:
    """The columns beside their minutes, evaluated in pieces.

    Args:
        every: minutes.
        cuts: where one call ends and the next begins.
        pins: in force.
        settings: of detection.
        memory: from the minutes before.
        kept: give the memory to the store and back between any two calls.
    """
    memory = memory or Memory()
    bounds = [every["end"].min() - MINUTE, *sorted(cuts), every["end"].max()]
    found = []
    for first, last in pairwise(bounds):
        part = every.filter((pl.col("end") > first) & (pl.col("end") <= last))
        if part.is_empty():
            continue
        told, memory = trend.columns(part, memory, pins or Baselines(), settings)
        found.append(part.select("instance", "engine", "end").hstack(told))
        if kept:
            memory = trend.memory_from(memory.frames())
    return pl.concat(found).sort("instance", "engine", "end"), memory


def pin_of(window: pl.DataFrame, since: datetime, until: datetime, name: str = "p1") -> Baseline:
    """A pin of the minutes of one target."""
    inside = window.filter((pl.col("end") > since) & (pl.col("end") <= until))
    return Baseline(
        id=name,
        scope="target",
        instance=window["instance"][0],
        engine=window["engine"][0],
        pool=window["pool"][0] or "",
        since=since,
        until=until,
        accepted_by="ana",
        accepted_at=until,
        why="a quiet day",
        reference=baseline_of_minutes(inside),
    )
