"""What was missed outside of pages and tickets: how much, and where most of it. Pure."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from driftwatch.collect.schema import KEY
from driftwatch.model import Slo
from driftwatch.report.cells import CELL
from driftwatch.report.costs import missed
from driftwatch.report.material import Material
from driftwatch.report.report import Outside

_CELL_KEY = [*KEY, "end"]


def outside(material: Material, covered: Sequence[pl.DataFrame]) -> Outside | None:
    """What requests missed in the cells that no page and no ticket covers; None where none did."""
    every = pl.concat([material.cells.clear(), *covered])
    usual = material.cells.join(every, on=_CELL_KEY, how="anti")
    late = missed(material, usual)
    if not late.high:
        return None
    shares = {name: slo.share for name, slo in material.slos.items()}
    allowed = 1 - pl.col("pool").replace_strict(shares, default=Slo().share)
    ten_minutes = usual.group_by("pool", "end").agg(
        pl.col("missed_low", "missed_high").sum(),
        requests=pl.col("ttft_seconds_count").sum(),
    )
    bad = ten_minutes.filter(pl.col("missed_low") > allowed * pl.col("requests")).sort(
        "pool", "end"
    )
    begins = (pl.col("end").diff().over("pool") != CELL).fill_null(value=True)
    worst = (
        bad.with_columns(run=begins.cum_sum())
        .group_by("run", "pool", maintain_order=True)
        .agg(pl.col("end").first(), pl.col("end").last().alias("last"), pl.col("missed_high").sum())
        .sort("missed_high", descending=True, maintain_order=True)
    )
    if worst.is_empty():
        return Outside(missed=late)
    _, pool, first, last, most = worst.row(0)
    return Outside(
        missed=late,
        pool=pool,
        start=first - CELL,
        end=last,
        missed_there=most,
    )
