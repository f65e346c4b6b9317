"""Inputs that were there and are gone: named, counted by minutes, remembered for a day."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import polars as pl
from pipeline_cases import KEY, at, evidence, grid, scrapes, serving, windows

INPUTS = ("running_requests", "itl_seconds")
SECONDS, NAMED = "coverage_missing_seconds", "coverage_missing_inputs"


def page(t: float, *missing: str, ok: bool = True) -> dict[str, Any]:
    there = {"running_requests": 1.0, "itl_seconds_count": 5.0}
    return {"t": t, "ok": ok, **{n: v for n, v in there.items() if n not in missing and ok}}


def down(t: float) -> dict[str, Any]:
    return page(t, ok=False)


def coverage(frame: pl.DataFrame, asked: pl.DataFrame) -> pl.DataFrame:
    return evidence(frame, asked, serving(asked.select(KEY)), INPUTS)


def of(rows: Iterable[dict[str, Any]], *spans: tuple[float, float]) -> list[tuple[Any, Any]]:
    """(seconds missing, inputs named) per window."""
    return coverage(scrapes(list(rows)), windows(*spans)).select(SECONDS, NAMED).rows()


def test_one_family_disappears() -> None:
    rows = [page(t, *(["itl_seconds_count"] if t >= 100 else [])) for t in range(0, 400, 5)]
    found = of(rows, (60, 120), (180, 240), (300, 360))
    assert found == [(60.0, None), (180.0, "itl_seconds"), (300.0, "itl_seconds")]


def test_down_for_fifteen_minutes_counts_failed_scrapes() -> None:
    rows = [page(t) if t < 60 else down(t) for t in range(0, 1200, 5)]
    assert of(rows, (900, 960), (960, 1020)) == [
        (900.0, "running_requests, itl_seconds"),
        (960.0, "running_requests, itl_seconds"),
    ]


def test_time_in_which_nobody_looked_is_no_evidence() -> None:
    """driftwatch itself was away for 20 minutes; the input is missing when it returns."""
    rows = [page(t) for t in range(0, 60, 5)] + [down(t) for t in range(1260, 1400, 5)]
    assert of(rows, (1260, 1320), (1320, 1380)) == [
        (60.0, None),
        (120.0, "running_requests, itl_seconds"),
    ]


def test_the_pool_counts_those_gone_for_five_minutes() -> None:
    frames = []
    for i in range(10):
        gone_from = 60 if i < 2 else 600 if i == 2 else 10_000
        frames.append(
            scrapes(
                [page(t) if t < gone_from else down(t) for t in range(0, 720, 15)],
                instance=f"h{i}:8000",
            )
        )
    frame = pl.concat(frames)
    found = coverage(frame, grid(frame)).filter(pl.col("end") == at(720))
    assert found["pool_coverage_missing_ratio"].unique().to_list() == [0.2]
    alone = frame.filter(pl.col("instance") != "h0:8000")
    found = coverage(alone, grid(alone)).filter(pl.col("end") == at(720))
    assert found["pool_coverage_missing_ratio"].unique().to_list() == [0.0]
