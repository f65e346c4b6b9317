"""Latency targets: met, missed, or not known."""

from __future__ import annotations

import math
from typing import Any

import polars as pl
import pytest

from driftwatch.signals.slo import slo_columns


def slo(
    counts: list[float] | None,
    ttft: float | None,
    tpot: float | None = None,
    tpot_counts: list[float] | None = None,
    ttft_sum: float | None = None,
    tpot_sum: float | None = None,
) -> dict[str, Any]:
    edges = [0.5, 1.0, 2.0, math.inf]
    lists = pl.List(pl.Float64)

    def histogram(
        name: str, values: list[float] | None, total: float | None = None
    ) -> list[pl.Series]:
        le = None if values is None else edges[-len(values) :]
        return [
            pl.Series(f"{name}_buckets", [values], dtype=lists),
            pl.Series(f"{name}_edges", [le], dtype=lists),
            pl.Series(f"{name}_count", [values[-1] if values else None], dtype=pl.Float64),
            pl.Series(f"{name}_sum", [total], dtype=pl.Float64),
        ]

    totals = pl.DataFrame(
        histogram("ttft_seconds", counts, ttft_sum)
        + histogram("tpot_seconds", tpot_counts, tpot_sum)
    )
    targets = pl.DataFrame(
        {"slo_ttft_seconds": [ttft], "slo_tpot_seconds": [tpot], "slo_share": [0.95]},
        schema=dict.fromkeys(("slo_ttft_seconds", "slo_tpot_seconds", "slo_share"), pl.Float64),
    )
    return slo_columns(totals, targets).row(0, named=True)


OPEN, INSIDE = [100.0], [0.0, 0.0, 100.0, 100.0]
GOOD, BAD, FEW = [96.0, 100.0, 100.0, 100.0], [90.0, 94.0, 100.0, 100.0], [0.0, 0.0, 0.0, 19.0]


@pytest.mark.parametrize(
    ("case", "missed"),
    [
        (slo(GOOD, 0.5), False),
        (slo(BAD, 1.0), True),
        (slo([94.0, 96.0, 100.0, 100.0], 0.7), None),  # inside a bucket that decides
        (slo(BAD, 0.7), True),  # both bounds below the share
        (slo(GOOD, 0.7), False),  # both bounds above it
        (slo(FEW, 0.5), None),  # fewer than 20 requests decide nothing
        (slo(None, 0.5), None),
        (slo(BAD, None), None),  # no target
        (slo(GOOD, 0.5, 1.0, BAD), True),
        (slo(GOOD, 0.5, 0.5, GOOD), False),
        (slo(BAD, 1.0, 0.5, None), True),  # one missed target is enough
        (slo(GOOD, 0.5, 0.5, None), False),  # TTFT decides on waiting, whatever TPOT is
        (slo(GOOD, 0.5, 0.05, OPEN), False),  # TPOT without buckets
        (slo(BAD, 1.0, 0.05, OPEN), True),
        (slo(None, 0.5, 0.5, GOOD), None),  # TPOT says nothing about waiting
        (slo(GOOD, None, 0.5, GOOD), False),
        (slo(None, 0.5, 0.5, BAD), True),
        # the target inside a bucket: of 100 in (1, 2] with a mean of 1.02 s at least 96 are
        # within 1.5 s; with a mean of 1.6 s at most 80 are; with one of 1.3 s nobody knows
        (slo(INSIDE, 1.5, ttft_sum=102.0), False),
        (slo(INSIDE, 1.5, ttft_sum=160.0), True),
        (slo(INSIDE, 1.5, ttft_sum=130.0), None),
        (slo(None, None, 1.5, OPEN, tpot_sum=5.0), False),  # a mean of 1/30 of the target
        (slo(None, None, 1.5, OPEN, tpot_sum=150.0), None),
        (slo(GOOD, None, 1.0, BAD), True),
    ],
)
def test_targets_missed_or_met_or_not_known(case: dict[str, Any], missed: bool | None) -> None:
    assert case["slo_missed"] is missed
