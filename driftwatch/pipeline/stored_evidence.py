"""Evidence of stored rows: minutes, or the longer rows that they become."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta

import polars as pl

from driftwatch.collect.schema import KEY, TIME
from driftwatch.diagnose.evidence_table import WINDOW_SCHEMA, evidence_table
from driftwatch.model import Target, TargetKey
from driftwatch.pipeline.plan import Plan
from driftwatch.store.minutes import MINUTE

TEN_MINUTES = timedelta(minutes=10)


def stored_evidence(
    rows: pl.DataFrame,
    windows: pl.DataFrame,
    targets: Mapping[TargetKey, Target],
    plan: Plan,
    reference: pl.DataFrame,
    recent: pl.DataFrame | None = None,
) -> pl.DataFrame:
    """Evidence rows of windows, in the windows' order, with the other columns of ``windows``.

    Args:
        rows: of :meth:`driftwatch.store.store.Store.past`.
        windows: :data:`driftwatch.diagnose.evidence_table.WINDOW_SCHEMA`, first.
        reference: :data:`driftwatch.detect.reference.REFERENCE_SCHEMA`.
        recent: these rows and those of the ten minutes before; None = ``rows`` has them.
    """
    serving = plan.serving_frame(targets.values())
    own = windows.select(*WINDOW_SCHEMA)
    evidence = evidence_table(rows, own, serving=serving, reference=reference, recent=recent)
    return evidence.hstack(windows.drop(*WINDOW_SCHEMA))


def minute_windows(rows: pl.DataFrame) -> pl.DataFrame:
    """Each row of a minute as a window."""
    minutes = rows.filter(pl.col("seconds") == MINUTE)
    start = (pl.col("end") - timedelta(minutes=1)).cast(TIME)
    return minutes.select(*KEY, start.alias("start"), "end")


def in_window(rows: pl.DataFrame, start: datetime, end: datetime) -> pl.DataFrame:
    """Stored rows that lie in (start, end] by half at least; else the one that contains ``end``."""
    length = pl.duration(seconds=pl.col("seconds"))
    begins = pl.col("end") - length
    inside = pl.min_horizontal("end", pl.lit(end, dtype=TIME)) - pl.max_horizontal(
        begins, pl.lit(start, dtype=TIME)
    )
    near = rows.filter(inside * 2 >= length)
    return near if len(near) else rows.filter((begins < end) & (pl.col("end") >= end))
