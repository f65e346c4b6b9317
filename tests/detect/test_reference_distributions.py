"""What a reference remembers beyond means."""

from __future__ import annotations

import math
from datetime import timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from pipeline_cases import at, evidence, recording, serving

from driftwatch.detect.reference import (
    HISTOGRAMS,
    REFERENCE_SCHEMA,
    baseline_of_minutes,
)
from driftwatch.minutes.rows import minute_grid
from driftwatch.signals.minutes import MINUTE_SCHEMA, minutes, no_minutes

# --- from stored minutes


@pytest.fixture(scope="module")
def slow_baseline(shared_data: Path) -> pl.DataFrame:
    """run_slow's baseline of 20 minutes."""
    folder = shared_data / "vllm-0.32" / "run_slow"
    frame = recording(folder)
    first = frame["time"].min()
    assert first is not None
    start = first.replace(second=0, microsecond=0) + timedelta(minutes=1)  # type: ignore[union-attr]
    end = start + timedelta(minutes=20)
    settings = serving(frame, gpus_per_replica=2.0)
    return minutes(evidence(frame, minute_grid(settings, start, end), settings))


def test_minutes_without_scrapes_and_unknown_parts_count_in_neither(
    slow_baseline: pl.DataFrame,
) -> None:
    grid = slow_baseline
    expected = baseline_of_minutes(grid).row(0, named=True)
    unseen = grid.head(5).with_columns(
        scrapes=pl.lit(0.0), end=pl.col("end") - timedelta(minutes=60)
    )
    assert baseline_of_minutes(pl.concat([unseen, grid])).row(0, named=True) == expected
    # half the minutes do not know their steps: the ratio of the others, not twice it
    half = grid.with_columns(
        forward_passes=pl.when(pl.int_range(pl.len()) % 2 == 0).then("forward_passes")
    )
    found = baseline_of_minutes(half).row(0, named=True)
    assert found["reference_requests_per_forward_pass"] == pytest.approx(
        expected["reference_requests_per_forward_pass"], rel=0.1
    )
    nothing = baseline_of_minutes(grid.with_columns(forward_passes=pl.lit(None, pl.Float64)))
    assert nothing["reference_requests_per_forward_pass"].to_list() == [None]
    few = baseline_of_minutes(grid.with_columns(prompt_tokens_count=pl.lit(1.0))).row(0, named=True)
    for name in ("prompt_tokens_mean", *HISTOGRAMS):
        assert few[f"reference_{name}"] is None
    assert baseline_of_minutes(no_minutes()).schema == pl.Schema(REFERENCE_SCHEMA)


def test_the_layout_that_holds_most_is_remembered_for_each_target() -> None:
    def row(instance: str, minute: int, buckets: list[float], edges: list[float]) -> dict[str, Any]:
        return {
            "instance": instance,
            "engine": "0",
            "end": at(60 * minute),
            "scrapes": 4.0,
            "prompt_tokens_count": buckets[-1],
            "prompt_tokens_buckets": buckets,
            "prompt_tokens_edges": edges,
        }

    old, new = [1.0, 2.0, math.inf], [1.0, 2.0, 5.0, math.inf]
    frame = pl.DataFrame(
        [
            row("a", 1, [0.0, 50.0, 60.0], old),
            row("a", 2, [10.0, 60.0, 70.0], old),
            row("a", 3, [0.0, 90.0, 90.0, 100.0], new),
            row("b", 1, [0.0, 50.0, 60.0], old),
            row("b", 2, [0.0, 90.0, 90.0, 100.0], new),
        ],
        schema=MINUTE_SCHEMA,
    )
    found = baseline_of_minutes(frame)
    assert found["reference_prompt_tokens_buckets"].to_list() == [
        [10.0, 110.0, 130.0],
        [0.0, 90.0, 90.0, 100.0],
    ]
    assert found["reference_prompt_tokens_edges"].to_list() == [old, new]
    assert found["reference_generation_tokens_buckets"].to_list() == [None, None]
