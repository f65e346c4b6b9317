"""The evidence columns of this detector, minute by minute."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta

import polars as pl

from driftwatch.collect.schema import KEY
from driftwatch.detect.baselines import Baselines
from driftwatch.detect.settings import DetectSettings
from driftwatch.detect.speed.change import LOOKBACK
from driftwatch.detect.speed.load import load_of
from driftwatch.detect.speed.memory import Memory, memory_from
from driftwatch.detect.speed.output import SCHEMA
from driftwatch.detect.speed.stretch import MINUTE, Stretch

__all__ = ["Memory", "columns", "memory_from"]


def columns(
    minutes: pl.DataFrame, memory: Memory, baselines: Baselines, settings: DetectSettings
) -> tuple[pl.DataFrame, Memory]:
    """The detector's evidence columns, row for row beside the minutes.

    ``minutes``: MINUTE_SCHEMA, by instance, engine and end; how they are split changes nothing.
    """
    if minutes.is_empty():
        return pl.DataFrame(schema=SCHEMA), memory
    tables = []
    for rows in _stretches(minutes.with_row_index("row")):
        start: datetime = rows.select(pl.col("end").min()).item()
        last: datetime = rows.select(pl.col("end").max()).item()
        count = (last - start) // MINUTE + 1
        targets = rows.select(*KEY, "pool").unique(KEY, keep="last", maintain_order=True)
        accepts = settings.accepts_proposals
        stretch = Stretch(memory, targets, start, count, baselines, accepts=accepts)
        minute = (rows["end"] - start).dt.total_minutes().to_numpy()
        table, memory = stretch.fold(load_of(rows), rows.select(KEY), minute)
        tables.append(table.with_columns(rows["row"]))
    return pl.concat(tables).sort("row").drop("row"), memory


def _stretches(minutes: pl.DataFrame) -> Iterator[pl.DataFrame]:
    """The rows in stretches of time without a long gap, in each of which no target changes pool."""
    ends = minutes["end"].unique().sort()
    gaps = ends.diff() > timedelta(minutes=LOOKBACK)
    moves = minutes.filter(
        (pl.col("pool") != pl.col("pool").shift(1).over(KEY)).fill_null(value=False)
    )["end"]
    cuts = pl.concat([ends.filter(gaps.fill_null(value=False)), moves]).unique().sort()
    part = cuts.search_sorted(minutes["end"], side="right")
    for number in part.unique().sort():
        yield minutes.filter(part == number)
