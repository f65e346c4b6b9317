"""The evidence columns of this detector, minute by minute."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta

import numpy as np
import polars as pl

from driftwatch.collect.schema import KEY
from driftwatch.detect.baselines import Baselines
from driftwatch.detect.settings import DetectSettings
from driftwatch.detect.speed.change import LOOKBACK
from driftwatch.detect.speed.load import load_of
from driftwatch.detect.speed.memory import Memory, memory_from
from driftwatch.detect.speed.output import COLUMNS
from driftwatch.detect.speed.stretch import MINUTE, Stretch

__all__ = ["Memory", "columns", "memory_from"]


def columns(
    minutes: pl.DataFrame, memory: Memory, baselines: Baselines, settings: DetectSettings
) -> tuple[pl.DataFrame, Memory]:
    """The detector's evidence columns, row for row beside the minutes.

    ``minutes``: :data:`driftwatch.signals.minutes.MINUTE_SCHEMA`, by instance, engine and end;
    whatever was evaluated in this tick (and, for later detectors, the columns of earlier ones);
    ``memory``: from the minutes before. How minutes are split over calls changes nothing; ``pins``:
    in force for all of these minutes; ``settings``: what a person set.
    """
    if minutes.is_empty():
        return pl.DataFrame(schema=COLUMNS), memory
    numbered = minutes.with_row_index("row")
    tables = []
    for rows in _stretches(numbered):
        start: datetime = rows.select(pl.col("end").min()).item()
        last: datetime = rows.select(pl.col("end").max()).item()
        targets = rows.select(*KEY, "pool").unique(KEY, keep="last", maintain_order=True)
        count = (last - start) // MINUTE + 1
        stretch = Stretch(
            memory, targets, start, count, baselines, accepts=settings.accepts_proposals
        )
        places = stretch.targets.select(KEY).with_row_index("target")
        target = rows.join(places, on=KEY, how="left", maintain_order="left")["target"]
        at = target.to_numpy().astype(np.intp)
        minute = ((rows["end"] - start).dt.total_minutes()).to_numpy().astype(np.intp)
        stretch.place(load_of(rows), at, minute)
        memory = stretch.run()
        tables.append(stretch.output.frame(stretch.why, at, minute).with_columns(rows["row"]))
    table = tables[0] if len(tables) == 1 else pl.concat(tables).sort("row")
    return table.drop("row").select(*COLUMNS), memory


def _stretches(minutes: pl.DataFrame) -> Iterator[pl.DataFrame]:
    """The rows in stretches of time without a long gap, in each of which no target changes pool."""
    ends = minutes["end"].unique().sort()
    gaps = ends.diff() > timedelta(minutes=LOOKBACK)
    moves = minutes.filter(
        (pl.col("pool") != pl.col("pool").shift(1).over(KEY)).fill_null(value=False)
    )["end"]
    cuts = pl.concat([ends.filter(gaps.fill_null(value=False)), moves]).unique().sort()
    if cuts.is_empty():
        yield minutes
        return
    part = cuts.search_sorted(minutes["end"], side="right")
    for number in part.unique().sort():
        yield minutes.filter(part == number)
