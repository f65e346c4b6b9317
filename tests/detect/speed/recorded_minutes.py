"""Minutes of the recorded runs, and what a detector of speed is asked of them."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path

import polars as pl

from driftwatch.cli.options import plan_from
from driftwatch.collect.recordings import open_recording
from driftwatch.detect.baselines import Baseline, Baselines
from driftwatch.detect.settings import DetectSettings
from driftwatch.detect.speed.columns import Memory, columns
from driftwatch.detect.speed.load_model import LoadModel
from driftwatch.diagnose.evidence_table import evidence_table, minute_windows
from driftwatch.signals.minutes import minutes

WATCHING = DetectSettings(accepts_proposals=True)
SERVING = DetectSettings()


def minutes_of(folder: Path) -> pl.DataFrame:
    """The minute table of a text recording."""
    source = open_recording(folder / "scrapes.jsonl.gz", instance="host:8000")
    first, last = source.span()
    collected = source.collect(first, last + timedelta(seconds=1))
    plan = plan_from(config=None)
    frames = plan.frames(plan.assign(dict(collected.targets), {}))
    windows = minute_windows(
        frames.serving.select("instance", "engine"),
        first.replace(second=0, microsecond=0),
        last.replace(second=0, microsecond=0),
    )
    table = evidence_table(
        collected.scrapes, windows, kind="chained", cut=False, serving=frames.serving
    )
    return minutes(table.rows)


def of_run(said: pl.DataFrame, before: timedelta = timedelta(minutes=23)) -> pl.DataFrame:
    """The first minutes of a run: run_slow is healthy for 22 min and its last half minute."""
    first: datetime = said.select(pl.col("end").min()).item()
    return said.filter(pl.col("end") < first + before)


def pinned(model: LoadModel, said: pl.DataFrame, scope: str = "target") -> Baselines:
    """A pin of the first target (or of its pool) with a law."""
    row = said.row(0, named=True)
    whose = (row["instance"], row["engine"]) if scope == "target" else (None, None)
    end = said["end"].max()
    assert isinstance(end, datetime)
    return Baselines(
        (
            Baseline(
                "p1",
                "target" if scope == "target" else "pool",
                *whose,
                row["pool"],
                row["end"],
                end,
                "somebody",
                end,
                "a quiet morning",
                model=model,
            ),
        )
    )


def told_of(
    said: pl.DataFrame, pins: Baselines, settings: DetectSettings, stride: timedelta | None = None
) -> tuple[pl.DataFrame, Memory]:
    """Columns beside instance and end, the minutes given at once or in pieces."""
    if stride is None:
        told, memory = columns(said, Memory(), pins, settings)
        return said.select("instance", "end").hstack(told), memory
    memory, found = Memory(), []
    at: datetime = said.select(pl.col("end").min()).item()
    last: datetime = said.select(pl.col("end").max()).item()
    while at <= last:
        piece = said.filter((pl.col("end") >= at) & (pl.col("end") < at + stride))
        told, memory = columns(piece, memory, pins, settings)
        found.append(piece.select("instance", "end").hstack(told))
        at += stride
    return pl.concat(found).sort("instance", "end"), memory
