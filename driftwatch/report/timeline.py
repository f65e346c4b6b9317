"""The week of a pool by half hours: speed, requests in target, throughput, and what happened. Pure.

Cells of ten minutes are folded, so that a week has as many points as a drawing has pixels.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

import polars as pl

from driftwatch.model import TargetKey
from driftwatch.numbers import clean, utc_text
from driftwatch.report.cells import CELL_LENGTH
from driftwatch.report.drift import done_text
from driftwatch.report.incidents import drifts, namer, of_week, short_names, targets_of
from driftwatch.report.material import Material

STEP = timedelta(minutes=30)
# so many pools are drawn: those with pages and tickets, then the busiest
MOST_POOLS = 8
SIGNALS = ("speed_median_ratio", "speed_lowest_ratio", "in_target_ratio", "tokens_per_second")
# a share of fewer requests jumps by itself
_LEAST_REQUESTS = 10
_LEAST_BASELINE_STEPS = 6
_MOST_EVENTS = 60
_TTFT, _TPOT = pl.col("ttft_over_high"), pl.col("tpot_over_high")


def drawn_pools(material: Material) -> list[str]:
    """The pools whose week is drawn, those with most pages and tickets first."""
    paged = Counter(one.target.get("pool") for one in of_week(material) if drifts(one))
    busy = material.cells.group_by("pool").agg(pl.col("generation_tokens_total").sum())
    ordered = sorted(busy.drop_nulls("pool").iter_rows(), key=lambda row: (-(row[1] or 0), row[0]))
    names = sorted((pool for pool, _ in ordered), key=lambda pool: -paged[pool])
    return names[:MOST_POOLS]


def timelines(material: Material) -> list[dict[str, Any]]:
    """A row a drawn pool, as JSON values; lists have one entry a half hour, null is unknown."""
    return [_timeline(material, pool) for pool in drawn_pools(material)]


def _timeline(material: Material, pool: str) -> dict[str, Any]:
    steps = math.ceil((material.until - material.since) / STEP)
    points = half_hours(material.cells.filter(pl.col("pool") == pool))
    at = {start: row for start, *row in points.select("start", *SIGNALS).iter_rows()}
    rows = [at.get(material.since + STEP * n, [None] * len(SIGNALS)) for n in range(steps)]
    slo = material.slos.get(pool)
    return {
        "pool": pool,
        "from": utc_text(material.since),
        "step_seconds": STEP.total_seconds(),
        **{name: [row[number] for row in rows] for number, name in enumerate(SIGNALS)},
        "in_target_reason": None if slo is not None else "no SLO",
        "target_share": None if slo is None else slo.share,
        "baseline": _bands(material.baseline_cells.filter(pl.col("pool") == pool)),
        "incidents": list(_spans(material, pool)),
        "events": sorted(
            [*_changes(material, pool), *_restarts(material, pool)], key=lambda one: one["at"]
        )[:_MOST_EVENTS],
    }


def half_hours(cells: pl.DataFrame) -> pl.DataFrame:
    """Cells of one pool → :data:`SIGNALS` by ``start`` of each half hour.

    Requests in target are those of the target that most missed; of a target inside a bucket all
    requests of that bucket count as late.
    """
    start = (pl.col("end") - pl.duration(microseconds=1)).dt.truncate(STEP).alias("start")
    servers = cells.group_by("instance", "engine", start, maintain_order=True).agg(
        pl.col("speed_at_equal_load_ratio").mean().alias("speed"),
        pl.col("generation_tokens_total").sum() / pl.col("duration_seconds").sum(),
        pl.col("ttft_seconds_count").sum().alias("requests"),
        *[
            pl.when(over.is_not_null().any()).then(over.sum()).alias(name)
            for name, over in (("ttft", _TTFT), ("tpot", _TPOT))
        ],
    )
    requests, late = pl.col("requests").sum(), pl.max_horizontal("ttft", "tpot")
    speed, rate = pl.col("speed"), pl.col("generation_tokens_total")
    over = [pl.when(pl.col(n).is_not_null().any()).then(pl.col(n).sum()) for n in ("ttft", "tpot")]
    return (
        servers.group_by("start", maintain_order=True)
        .agg(
            speed.median().alias(SIGNALS[0]),
            speed.min().alias(SIGNALS[1]),
            *over,
            requests.alias("requests"),
            pl.when(rate.is_finite().any()).then(rate.filter(rate.is_finite()).sum()),
        )
        .select(
            "start",
            *SIGNALS[:2],
            pl.when(pl.col("requests") >= _LEAST_REQUESTS)
            .then((1.0 - late / pl.col("requests")).clip(0.0, 1.0))
            .alias(SIGNALS[2]),
            rate.alias(SIGNALS[3]),
        )
        .sort("start")
    )


def _bands(cells: pl.DataFrame) -> dict[str, Any] | None:
    """Where each signal lay in nine of ten half hours of the baseline; None without minutes."""
    points = half_hours(cells)
    bands: dict[str, Any] = {}
    for name in (SIGNALS[0], *SIGNALS[2:]):
        values = points[name].drop_nulls()
        enough = len(values) >= _LEAST_BASELINE_STEPS
        bands[name] = [values.quantile(q, "linear") for q in (0.05, 0.95)] if enough else None
    if not any(bands.values()):
        return None
    first, last = cells["end"].min(), cells["end"].max()
    if not isinstance(first, datetime) or not isinstance(last, datetime):
        return None
    return {**bands, "from": utc_text(first - CELL_LENGTH), "to": utc_text(last)}


def _spans(material: Material, pool: str) -> Iterator[dict[str, Any]]:
    """Pages and tickets about drift, cut to the week."""
    name = namer(material)
    for one in of_week(material):
        if one.target.get("pool") == pool and drifts(one):
            ended = one.resolved_at or material.until
            yield {
                "id": one.id,
                "alert": one.alert,
                "severity": one.severity,
                "subject": name(one),
                "from": utc_text(max(one.started_at, material.since)),
                "to": utc_text(min(ended, material.until)),
            }


def _changes(material: Material, pool: str) -> Iterator[dict[str, Any]]:
    names = short_names(
        [*targets_of(material), *(TargetKey(v.instance, v.engine) for v in material.verifications)]
    )
    for one in material.verifications:
        change = one.change
        if one.pool != pool:
            continue
        if material.since <= change.at < material.until:
            text = f"{names[TargetKey(one.instance, one.engine)]}: {done_text([one])}"
            yield {"kind": "change", "at": utc_text(change.at), "text": text}


def _restarts(material: Material, pool: str) -> Iterator[dict[str, Any]]:
    names = short_names(targets_of(material))
    again = material.cells.filter((pl.col("pool") == pool) & pl.col("restarted").fill_null(False))
    for instance, engine, end in again.select("instance", "engine", "end").iter_rows():
        text = f"{clean(names[TargetKey(instance, engine)])} restarted"
        yield {"kind": "restart", "at": utc_text(end - CELL_LENGTH), "text": text}
