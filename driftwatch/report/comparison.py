"""This week beside the last one: the same figures of both, counted the same way. Pure."""

from __future__ import annotations

from typing import Any

import polars as pl

from driftwatch.report.cells import HOUR_SECONDS, REASONS
from driftwatch.report.drift import gpu_hours_lost, requests_over
from driftwatch.report.material import Material


def comparison(material: Material) -> dict[str, Any]:
    """Figures of both weeks as JSON values: of the fleet, and of each pool of this week.

    ``last`` is null without a minute of the last week.
    """
    pools = sorted(material.cells["pool"].drop_nulls().unique().to_list())
    weeks = (material.cells, material.last_cells)
    of_fleet = dict(zip(("this", "last"), (_figures(material, w) for w in weeks), strict=True))
    return {
        "last_week": material.week.before.name,
        "last_week_reason": None if len(material.last_cells) else "no minute of it is kept",
        "fleet": of_fleet,
        "pools": [
            {
                "pool": pool,
                **{
                    name: _figures(material, week.filter(pl.col("pool") == pool))
                    for name, week in zip(("this", "last"), weeks, strict=True)
                },
            }
            for pool in pools
        ],
    }


def _figures(material: Material, cells: pl.DataFrame) -> dict[str, Any] | None:
    if cells.is_empty():
        return None
    (low, high), reason = requests_over(material, cells)
    judged = cells.filter(pl.col("pool").is_in(sorted(material.slos)))
    requests = float(judged["ttft_seconds_count"].sum() or 0.0)
    lost, lost_reason = gpu_hours_lost(cells)
    blind = sum(float(cells[f"{r.replace(' ', '_')}_seconds"].sum()) for r in REASONS)
    total = float(cells["seconds"].sum())
    return {
        "server_hours": total / HOUR_SECONDS,
        "requests": float(cells["ttft_seconds_count"].sum() or 0.0),
        "requests_over_target_low": low,
        "requests_over_target_high": high,
        "requests_over_target_low_ratio": _share(low, requests),
        "requests_over_target_high_ratio": _share(high, requests),
        "requests_over_target_reason": reason,
        "prompt_tokens_mean": _mean(cells, "prompt_tokens"),
        "generation_tokens_mean": _mean(cells, "generation_tokens"),
        "generation_tokens": float(cells["generation_tokens_total"].sum() or 0.0),
        "speed_at_equal_load_ratio": _median(cells, "speed_at_equal_load_ratio"),
        "gpu_hours_lost": lost,
        "gpu_hours_lost_reason": lost_reason,
        "without_verdict_ratio": blind / total if total else None,
    }


def _share(over: float | None, requests: float) -> float | None:
    return None if over is None or not requests else over / requests


def _mean(cells: pl.DataFrame, stem: str) -> float | None:
    number = float(cells[f"{stem}_count"].sum() or 0.0)
    return float(cells[f"{stem}_sum"].sum()) / number if number else None


def _median(cells: pl.DataFrame, column: str) -> float | None:
    value = cells[column].median()
    return float(value) if isinstance(value, int | float) else None
