"""BLIND: minutes without a verdict on an engine, by reason and server; what they hide. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any

import polars as pl

from driftwatch.model import TargetKey
from driftwatch.report.cells import CELL_LENGTH, MINUTE_SECONDS, REASONS
from driftwatch.report.incidents import short_names, targets_of
from driftwatch.report.material import Material

# a doubling of lengths is what the reports promise to show
DOUBLED = 2.0
MOST_SERVERS = 20
_STEMS = ("prompt_tokens", "generation_tokens")


def blind(material: Material) -> dict[str, Any]:
    """Server-minutes without a verdict on the engine, by reason; who cannot show a doubling."""
    cells = material.cells
    seconds = {r: float(cells[f"{r.replace(' ', '_')}_seconds"].sum()) for r in REASONS}
    missed = _nobody_watched(material)
    seconds["no data"] += missed
    total = float(cells["seconds"].sum()) + missed
    names = short_names(targets_of(material))
    return {
        "server_minutes": total / MINUTE_SECONDS,
        "without_verdict_ratio": sum(seconds.values()) / total if total else None,
        "without_verdict_reason": None if total else "no minute of the week is kept",
        "by_reason": {r: s / total if total else None for r, s in seconds.items()},
        "cannot_show_doubled_lengths": _cannot_show(cells, names),
        "servers": len(targets_of(material)),
        "longest_gap_hours": max((b - a for a, b in _gaps(material)), default=timedelta(0))
        / timedelta(hours=1),
    }


def _gaps(material: Material) -> list[tuple[datetime, datetime]]:
    """Stretches of whole cells of which no target has a row: nobody watched."""
    ends = material.cells["end"].unique().sort().to_list()
    return [(a, b - CELL_LENGTH) for a, b in pairwise(ends) if b - a > CELL_LENGTH]


def _nobody_watched(material: Material) -> float:
    """Server-seconds of those stretches, of the servers that were there before and after."""
    spans = material.cells.group_by("instance", "engine").agg(
        first=pl.col("end").min(), last=pl.col("end").max()
    )
    total = 0.0
    for began, ended in _gaps(material):
        there = spans.filter((pl.col("first") <= began) & (pl.col("last") > ended)).height
        total += there * (ended - began).total_seconds()
    return total


def _cannot_show(cells: pl.DataFrame, names: Mapping[TargetKey, str]) -> dict[str, Any]:
    """Servers whose lengths would not show a doubling, or of which that is not known."""
    least = {s: pl.col(f"{s}_usual_ratio").drop_nulls().last() for s in _STEMS}
    servers = cells.group_by("instance", "engine").agg(
        **{stem: (ratio > DOUBLED).fill_null(True) for stem, ratio in least.items()}
    )
    servers = servers.with_columns(either=pl.any_horizontal(*_STEMS)).sort("instance", "engine")
    cannot = servers.filter("either").select("instance", "engine")
    return {
        **{name: int(servers[name].sum()) for name in (*_STEMS, "either")},
        "servers": [names[TargetKey(*key)] for key in cannot.head(MOST_SERVERS).iter_rows()],
    }
