"""What a stretch of cells cost: requests that missed a target, GPU time that a slow engine lost.

Pure. Every figure has the bounds that the data leave. A request counts once, in the cell in which
it was found to miss, so that days add up to the week.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import polars as pl

from driftwatch.collect.schema import KEY
from driftwatch.minutes.engine import STUCK_SECONDS
from driftwatch.model import TargetKey
from driftwatch.report.cells import CELL, HOUR_SECONDS
from driftwatch.report.material import Material
from driftwatch.report.report import Range

# A speed is a median of six minutes, and a small loss takes more of them: the begin and the end of
# a slow stretch are found so late.
_EDGE_SECONDS = 900.0
# How far a healthy engine's speed wanders, where the week has no healthy hour of it.
_UNKNOWN_WANDER = 0.05
_SIGMAS = 2.0
_CELLS_BEFORE = 12  # two hours: how many requests came before a hang
_STUCK = pl.col("stuck_seconds") > 0


def of_pool(material: Material, pool: str, keys: Sequence[TargetKey] = ()) -> pl.DataFrame:
    """The cells of a pool; only of some of its servers where they are named."""
    cells = material.cells.filter(pl.col("pool") == pool)
    if not keys:
        return cells
    mine = pl.DataFrame(keys, schema=[*KEY], orient="row")
    return cells.join(mine, on=KEY, how="semi")


def between(cells: pl.DataFrame, start: datetime, end: datetime) -> pl.DataFrame:
    """The cells that a stretch touches."""
    return cells.filter((pl.col("end") > start) & (pl.col("end") - CELL < end))


def total(cells: pl.DataFrame, name: str) -> float | None:
    """The sum of a column; None where no cell knows it."""
    return None if cells[name].is_null().all() else float(cells[name].sum())


def with_unanswered(cells: pl.DataFrame) -> pl.DataFrame:
    """Add to each cell how many requests a hang left without an answer, as bounds.

    No metric counts what is sent to an engine that hangs. Lower bound: requests that vLLM began
    and never finished, and those inside when the process ended. Upper bound: the rate of the
    busiest ten minutes in the two hours before, or of another server of the pool meanwhile.
    """
    stands_before, stands_after = _STUCK.shift(1).over(KEY), _STUCK.shift(-1).over(KEY)
    begins = _STUCK & ~stands_before.fill_null(value=False)
    again = pl.col("restarted").fill_null(value=False)
    dies = _STUCK & (again | stands_after.is_null() | (~stands_after & again.shift(-1).over(KEY)))
    scatter = _SIGMAS * (pl.col("running_requests").fill_null(0.0) + 1).sqrt()
    given_up = (pl.col("given_up_requests") - scatter).clip(0.0)
    held = pl.col("held_requests").fill_null(0.0)
    low = pl.when(_STUCK | stands_before).then(given_up.fill_null(0.0)).otherwise(0.0) + pl.when(
        dies
    ).then(held).otherwise(0.0)
    came = pl.when(~_STUCK).then(pl.col("ttft_seconds_count") / pl.col("seconds"))
    busiest = came.rolling_max(_CELLS_BEFORE, min_samples=1).forward_fill().backward_fill()
    rate = pl.max_horizontal(busiest.over(KEY), came.max().over("pool", "end")).fill_null(0.0)
    late = pl.col("stuck_seconds") + pl.when(begins).then(_edge()).otherwise(0.0)
    most = rate * late + pl.when(begins).then(held).otherwise(0.0)
    return cells.with_columns(
        unanswered_low=low,
        unanswered_high=pl.max_horizontal(low, pl.when(_STUCK).then(most)),
    )


def _edge() -> pl.Expr:
    """How much longer a hang may be than its stuck seconds: two minutes, and a row at each end."""
    return STUCK_SECONDS + 2 * pl.col("row_seconds").fill_null(60.0)


def unanswered(cells: pl.DataFrame) -> Range:
    """Requests that a hang left without an answer."""
    return Range(low=total(cells, "unanswered_low"), high=total(cells, "unanswered_high"))


def missed(material: Material, cells: pl.DataFrame) -> Range:
    """Requests over one of their targets, and those that got no answer in a hang.

    A target inside a bucket leaves a range, and so do two targets: which requests missed both no
    metric says.
    """
    if cells.is_empty():
        return Range(reason="no minute of it is stored")
    with_target = cells.filter(pl.col("pool").is_in(sorted(material.slos)))
    if with_target.is_empty():
        return Range(reason="no latency target (slo in driftwatch.yaml, -c)")
    low, high = (total(with_target, f"missed_{end}") for end in ("low", "high"))
    if low is None or high is None:
        is_scraped = float(with_target["duration_seconds"].sum()) > 0
        return Range(reason="no histogram of it" if is_scraped else "not scraped then")
    lost = unanswered(with_target)
    return Range(low=low + (lost.low or 0.0), high=high + (lost.high or 0.0))


def in_target(material: Material, cells: pl.DataFrame) -> Range:
    """The share of requests that met every target."""
    late, requests = missed(material, cells), float(cells["ttft_seconds_count"].sum() or 0.0)
    if late.low is None or late.high is None or not requests:
        return Range(reason=late.reason or "no request")
    lost = unanswered(cells)
    least, most = (requests + (one or 0.0) for one in (lost.low, lost.high))
    return Range(low=max(0.0, 1 - late.high / most), high=max(0.0, 1 - late.low / least))


def missing_stretch(
    material: Material, cells: pl.DataFrame, start: datetime, end: datetime
) -> tuple[datetime, datetime]:
    """The stretch, with the cells next to it in which the pool missed its target too.

    The condition of a rule becomes true after users have begun to wait, and false before the last
    of the queue is served.
    """
    slo = None if cells.is_empty() else material.slos.get(cells["pool"][0])
    if slo is None:
        return start, end
    is_bad = pl.col("missed_low").sum() > (1 - slo.share) * pl.col("ttft_seconds_count").sum()
    bad = set(cells.group_by("end").agg(is_bad=is_bad).filter("is_bad")["end"])
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

    Its bounds are as wide as the healthy speed of the same servers wanders.
    """
    slow = cells.filter((pl.col("slow_seconds") > 0) & ~_STUCK)
    if slow.is_empty():
        return Range(reason="no verdict on speed")
    mean = float(slow["lost_seconds"].sum()) / float(slow["slow_seconds"].sum())
    error = wander(material.cells.join(slow, on=KEY, how="semi"))
    return Range(low=max(0.0, mean - error), high=min(1.0, mean + error))


def wander(cells: pl.DataFrame) -> float:
    """How far the speed of servers at equal load wanders while nothing is wrong."""
    usual = cells.filter((pl.col("slow_seconds") == 0) & ~_STUCK)
    spread = usual["speed_at_equal_load_ratio"].std()
    return _SIGMAS * (spread if isinstance(spread, float) else _UNKNOWN_WANDER)


def gpu_hours_lost(material: Material, cells: pl.DataFrame) -> Range:
    """Σ (1 - speed) · GPUs · hours of a slower or stuck engine."""
    lost, judged = (float(cells[f"{name}_seconds"].sum()) for name in ("lost", "verdict"))
    if not lost:
        return Range(low=0.0, high=0.0) if judged else Range(reason="no verdict on speed")
    if ((cells["lost_seconds"] > 0) & cells["lost_gpu_seconds"].is_null()).any():
        return Range(reason="GPU count unknown (gpus_per_replica)")
    gpus = float(cells["lost_gpu_seconds"].sum()) / lost / HOUR_SECONDS
    stuck, slow = (float(cells[f"{name}_seconds"].sum()) for name in ("stuck", "slow"))
    slower, share = max(0.0, slow - stuck), loss(material, cells)
    edge = _EDGE_SECONDS * len(_begins(cells, pl.col("lost_seconds") > 0)) if slower else 0.0
    late = float(_begins(cells, _STUCK).select(_edge().sum()).item() or 0.0)
    return Range(
        low=gpus * ((share.low or 0.0) * max(0.0, slower - edge) + stuck),
        high=gpus * ((share.high or 0.0) * (slower + edge) + stuck + late),
    )


def hangs(cells: pl.DataFrame) -> int:
    """How many stretches without a token they hold."""
    return len(_begins(cells, _STUCK))


def _begins(cells: pl.DataFrame, condition: pl.Expr) -> pl.DataFrame:
    """The cells with which each stretch of a condition begins."""
    held = cells.filter(condition).sort(*KEY, "end")
    return held.filter((pl.col("end").diff().over(KEY) != CELL).fill_null(value=True))


def busiest_hour(cells: pl.DataFrame) -> tuple[datetime, float] | None:
    """End of the hour in which most requests/s came to a server, and how many; a queue that grew
    counts. Hours with a slow engine do not: no recommendation is made for them. None without one.
    """
    grown = pl.col("waiting_requests").diff().over(KEY).fill_null(0.0)
    ends = (pl.col("end") - pl.duration(microseconds=1)).dt.truncate("1h") + pl.duration(hours=1)
    # a restart drops the queue
    grew = pl.when(pl.col("restarted").fill_null(value=False)).then(0.0).otherwise(grown)
    arrived = cells.sort(*KEY, "end").with_columns(pl.col("ttft_seconds_count") + grew, end=ends)
    rate = pl.col("ttft_seconds_count").sum() / pl.col("seconds").sum()
    hours = arrived.drop_nulls("ttft_seconds_count").group_by("end")
    by_rate = hours.agg(pl.col("slow_seconds").sum(), rate=rate).sort("rate", "end")
    newest = by_rate.filter(slow_seconds=0.0).select("end", "rate").tail(1).rows()
    return newest[0] if newest else None
