"""Score: minutes and references in, the detectors' evidence columns out. Nothing is fitted here."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

import numpy as np
import polars as pl

from driftwatch.detect.baselines import Baselines
from driftwatch.detect.lengths import LENGTHS, length_columns
from driftwatch.detect.references import DAY_COLUMNS, PoolHour, References
from driftwatch.detect.speed.grid import Grid, grid_of
from driftwatch.detect.speed.verdicts import (
    LOOKBACK,
    Comparison,
    Verdicts,
    compared_with,
    verdicts,
)
from driftwatch.evidence import TEXTS

# The hour at whose end slow servers are recorded, and the look-back of its first minute.
KEPT = timedelta(minutes=60 + LOOKBACK)

SCHEMA: dict[str, pl.DataType | type[pl.DataType]] = {
    **dict.fromkeys(
        (
            "speed_at_equal_load_ratio",
            "speed_threshold_ratio",
            "speed_smallest_detectable_loss_ratio",
            "pool_speed_at_equal_load_ratio",
            "speed_against_pool_ratio",
        ),
        pl.Float64,
    ),
    **dict.fromkeys(("slower_at_equal_load", "slower_than_pool"), pl.Boolean),
    **dict.fromkeys(TEXTS, pl.String),
    **{f"{name}_usual_ratio": pl.Float64 for name in LENGTHS},
    **{f"{name}_drift": pl.String for name in LENGTHS},  # longer, shorter or none
    **DAY_COLUMNS,
}


@dataclass(frozen=True, slots=True)
class Scored:
    """The columns, and what :func:`driftwatch.detect.learn.learn` needs at the end of an hour."""

    columns: pl.DataFrame  # SCHEMA, row for row beside the scored rows of work
    grid: Grid
    compared: list[Comparison]  # of each target of the grid
    verdicts: Verdicts


def score(
    work: pl.DataFrame,
    references: References,
    baselines: Baselines,
    reference: pl.DataFrame,
    since: datetime,
    *,
    accepts: bool,
) -> Scored:
    """The columns of the rows that end after ``since``, in their order.

    The answer is the same however many minutes are scored at once.

    Args:
        work: :data:`driftwatch.detect.speed.load.WORK_SCHEMA`, at least one row, from :data:`KEPT`
            before the end of the last full hour on.
        reference: :data:`driftwatch.detect.reference.REFERENCE_SCHEMA`, to compare lengths with.
        accepts: take a proposed baseline where no person has accepted one.
    """
    grid = grid_of(_needed(work, references))
    first = min(max(grid.at(since) + 1, 0), grid.minutes)
    compared = compared_with(grid.targets, baselines, references, accepts=accepts)
    found = verdicts(grid, compared, references, first)
    values = {**found.columns, **length_columns(grid, reference, first)}
    rows = np.flatnonzero(grid.minute >= first)
    target, minute = grid.target[rows], grid.minute[rows] - first
    columns = [
        pl.Series(name, values[name][target, minute].tolist(), dtype)
        if dtype == pl.String
        else pl.Series(name, values[name][target, minute].astype(float), nan_to_null=True)
        for name, dtype in SCHEMA.items()
        if name not in DAY_COLUMNS
    ]
    days = grid.targets.with_columns(pl.col("pool").fill_null("")).join(
        references.day_columns, on=grid.targets.columns, how="left", maintain_order="left"
    )
    columns += days.select(*DAY_COLUMNS)[target].get_columns()
    return Scored(pl.DataFrame(columns).cast(pl.Schema(SCHEMA)), grid, compared, found)


def _needed(work: pl.DataFrame, references: References) -> pl.DataFrame:
    """The rows of the hour that is not recorded whole, and the look-back of its first minute."""
    pools = work["pool"].unique().cast(pl.String).fill_null("")
    hours = [references.find(PoolHour, pool) for pool in pools]
    ends = [hour[1] for hour in hours if hour is not None]
    if len(ends) < len(hours):
        return work
    hour = min(ends).replace(minute=0, second=0)  # early fits are recorded inside an hour
    needed = work.filter(pl.col("end") > hour - timedelta(minutes=LOOKBACK))
    return needed if len(needed) else work
