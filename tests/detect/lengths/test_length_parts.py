"""Layouts on one grid, sums in one order, contexts of ordinary days and holidays, scales."""

from __future__ import annotations

from datetime import date

import numpy as np
import polars as pl
import pytest
from length_cases import minutes_of, told

from driftwatch.detect.lengths.layouts import (
    MOST_EDGES,
    ONLY_INF,
    read,
    wider,
)
from driftwatch.detect.settings import DetectSettings

INF = np.inf


def layouts(*pairs: tuple[list[float] | None, list[float] | None]) -> pl.DataFrame:
    """Minutes with these cumulative counts and edges, of both signals."""
    minutes = minutes_of(days=0.125).head(len(pairs))
    lists = {
        f"{signal}_{part}": pl.Series([p[i] for p in pairs], dtype=pl.List(pl.Float64))
        for signal in ("prompt_tokens", "generation_tokens")
        for i, part in enumerate(("buckets", "edges"))
    }
    return minutes.with_columns(**lists)


def test_what_is_no_histogram_is_unknown() -> None:
    edges = [1.0, 10, 100, INF]
    minutes = layouts(
        (None, None),
        ([1.0, 2, 3, 4], [1.0, 10, 100, 1000]),  # no +Inf
        ([4.0, 3, 5, 6], edges),  # falls
        ([1.0, 2], edges),  # too short
        ([0.0, 0, 0, 0], edges),  # nothing finished: known
    )
    _, sums, is_known = read(minutes, wider(ONLY_INF, minutes))
    assert is_known[:, 0].tolist() == [False, False, False, False, True]
    assert not np.isnan(sums).any()


def test_a_fleet_of_endless_layouts_keeps_its_bounds() -> None:
    grid = ONLY_INF
    for i in range(25):
        edges = [*np.arange(1.0, 6) + i / 50, INF]
        minutes = layouts(([1.0] * 6, edges))
        grid = wider(grid, minutes)
    assert len(grid) <= MOST_EDGES
    assert not read(minutes, grid)[2].any()


@pytest.mark.slow
def test_a_holiday_does_not_become_a_context() -> None:
    minutes = minutes_of(servers=3, days=2.25, per_server=0.5)
    settings = DetectSettings(holidays={date(2026, 11, 9): "founding day"})
    found, _ = told(minutes, settings=settings)
    ordinary, _ = told(minutes)
    after = pl.col("end").dt.day() == 11
    assert ordinary.filter(after)["prompt_tokens_drift_score"].null_count() == 0
    assert not found.filter(after)["prompt_tokens_drift_score"].equals(
        ordinary.filter(after)["prompt_tokens_drift_score"]
    )
