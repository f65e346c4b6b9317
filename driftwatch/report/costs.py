"""What a stretch of cells cost: requests that missed a target, GPU time that a slow engine lost.

Pure. Every figure has the bounds that the data leave.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import polars as pl

from driftwatch.model import TargetKey
from driftwatch.report.cells import CELL, HOUR_SECONDS
from driftwatch.report.material import Material
from driftwatch.report.report import Range

# A speed is a median of six minutes, and the smaller a loss the more of them it takes: a slow
# stretch is found, and its end, so late.
_EDGE_SECONDS = 900.0
# How far the speed of an engine wanders from the baseline's where no hour of it shows that.
_UNKNOWN_WANDER = 0.05
_SIGMAS = 2.0


def of_pool(material: Material, pool: str, keys: Sequence[TargetKey] = ()) -> pl.DataFrame:
    """The cells of a pool; only of some of its servers where they are named."""
    cells = material.cells.filter(pl.col("pool") == pool)
    if not keys:
        return cells
    mine = pl.DataFrame(keys, schema=["instance", "engine"], orient="row")
    return cells.join(mine, on=["instance", "engine"], how="semi")


def between(cells: pl.DataFrame, start: datetime, end: datetime) -> pl.DataFrame:
    """The cells that a stretch touches."""
    return cells.filter((pl.col("end") > start) & (pl.col("end") - CELL < end))


def total(cells: pl.DataFrame, name: str) -> float | None:
    """The sum of a column; None where no cell knows it."""
    return None if cells[name].is_null().all() else float(cells[name].sum())


def missed(material: Material, cells: pl.DataFrame) -> Range:
    """Requests over one of their targets.

    A target inside a bucket leaves a range, and so do two targets: which requests missed both no
    metric says. What a server counted between its last scrape and a restart is lost: all of it may
    have missed.
    """
    if cells.is_empty():
        return Range(reason="no minute of it is stored")
    with_target = cells.filter(pl.col("pool").is_in(sorted(material.slos)))
    if with_target.is_empty():
        return Range(reason="no latency target (slo)")
    lows, highs = (
        [
            n
            for stem in ("ttft", "tpot")
            if (n := total(with_target, f"{stem}_over_{b}")) is not None
        ]
        for b in ("low", "high")
    )
    if not lows:
        return Range(reason="no histogram of it")
    low, high = max(lows), sum(highs)
    most = total(with_target, "ttft_seconds_count") or high
    lost = pl.col("ttft_seconds_count") * (pl.col("seconds") / pl.col("duration_seconds") - 1)
    unseen = with_target.filter(pl.col("duration_seconds") > 0).select(lost.clip(0).sum()).item()
    return Range(low=low, high=max(low, min(high, most)) + unseen)


def in_target(material: Material, cells: pl.DataFrame) -> Range:
    """The share of requests that met every target."""
    late, requests = missed(material, cells), float(cells["ttft_seconds_count"].sum() or 0.0)
    if late.low is None or late.high is None or not requests:
        return Range(reason=late.reason or "no request")
    return Range(low=max(0.0, 1 - late.high / requests), high=max(0.0, 1 - late.low / requests))


def missing_stretch(
    material: Material, pool: str, start: datetime, end: datetime
) -> tuple[datetime, datetime]:
    """The stretch and what adjoins it in which the pool missed its target as well.

    The condition of a rule becomes true after users have begun to wait, and false before the last
    of the queue is served.
    """
    slo = material.slos.get(pool)
    if slo is None:
        return start, end
    late = pl.max_horizontal(pl.col(f"{stem}_over_low").sum() for stem in ("ttft", "tpot"))
    is_bad = late > (1 - slo.share) * pl.col("ttft_seconds_count").sum()
    by_end = of_pool(material, pool).group_by("end").agg(is_bad=is_bad)
    bad = set(by_end.filter("is_bad")["end"])
    while (first := _cell_end(start) - CELL) in bad:
        start = first - CELL
    while (last := _cell_end(end)) in bad:
        end = last
    return start, end


def _cell_end(at: datetime) -> datetime:
    """The end of the cell that begins at a time or holds it."""
    step = CELL.total_seconds()
    return datetime.fromtimestamp((at.timestamp() // step + 1) * step, at.tzinfo)


def loss(material: Material, cells: pl.DataFrame) -> Range:
    """The share of its speed that an engine lost while it was slower.

    It is as uncertain as the speed of the same servers wanders while nothing is wrong.
    """
    slow = cells.filter((pl.col("slow_seconds") > 0) & (pl.col("stuck_seconds") == 0))
    if slow.is_empty():
        return Range(reason="no verdict on speed")
    mean = float(slow["lost_seconds"].sum()) / float(slow["slow_seconds"].sum())
    usual = material.cells.join(slow, on=["instance", "engine"], how="semi").filter(
        (pl.col("slow_seconds") == 0) & (pl.col("stuck_seconds") == 0)
    )
    spread = usual["speed_at_equal_load_ratio"].std()
    error = _SIGMAS * (spread if isinstance(spread, float) else _UNKNOWN_WANDER)
    return Range(low=max(0.0, mean - error), high=min(1.0, mean + error))


def gpu_hours_lost(material: Material, cells: pl.DataFrame) -> Range:
    """Σ (1 - speed) · GPUs · hours of a slower or stuck engine."""
    lost, judged = (float(cells[f"{name}_seconds"].sum()) for name in ("lost", "verdict"))
    if not lost:
        return Range(low=0.0, high=0.0) if judged else Range(reason="no verdict on speed")
    if ((cells["lost_seconds"] > 0) & cells["lost_gpu_seconds"].is_null()).any():
        return Range(reason="GPU count unknown (gpus_per_replica)")
    gpus = float(cells["lost_gpu_seconds"].sum()) / lost
    stuck, slow = (float(cells[f"{name}_seconds"].sum()) for name in ("stuck", "slow"))
    slower, share = max(0.0, slow - stuck), loss(material, cells)
    ends = cells.filter(pl.col("lost_seconds") > 0).sort("instance", "engine", "end")
    gap = pl.col("end").diff().over("instance", "engine") != CELL
    edge = _EDGE_SECONDS * ends.select(gap.fill_null(True).sum()).item() / (slower + stuck)
    low, high = (
        gpus * ((s or 0.0) * slower + stuck) / HOUR_SECONDS for s in (share.low, share.high)
    )
    return Range(low=low * max(0.0, 1 - edge), high=high * (1 + edge))
