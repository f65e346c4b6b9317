"""What a reference remembers beyond means, and the distances of real phases to it."""

from __future__ import annotations

import json
import math
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from pipeline_cases import at, evidence, recording, serving, whole, within
from scipy.spatial.distance import jensenshannon

from driftwatch.detect.reference import (
    HISTOGRAMS,
    REFERENCE_SCHEMA,
    baseline_of_minutes,
)
from driftwatch.minutes.rows import minute_grid
from driftwatch.notify.shares import shares
from driftwatch.signals.minutes import MINUTE_SCHEMA, minutes, no_minutes

LENGTHS = ("prompt_tokens", "generation_tokens")


@cache
def run_main(shared_data: Path) -> tuple[pl.DataFrame, dict[str, Any]]:
    folder = shared_data / "vllm-0.32" / "run_main"
    phases = json.loads((folder / "phases.json").read_text())["phases"]
    return recording(folder), {phase["name"]: phase for phase in phases}


@cache
def phase(shared_data: Path, name: str, against: str | None = None) -> dict[str, Any]:
    """Evidence of a phase, its first 15 s left out."""
    frame, phases = run_main(shared_data)
    reference = (
        None if against is None else baseline_of_minutes(minutes(rows(shared_data, against)))
    )
    span = phases[name]["start"] + 15, phases[name]["end"]
    return dict(table(within(frame, *span), whole(frame, *span), reference).row(0, named=True))


@cache
def rows(shared_data: Path, name: str) -> pl.DataFrame:
    frame, phases = run_main(shared_data)
    span = phases[name]["start"] + 15, phases[name]["end"]
    return table(within(frame, *span), whole(frame, *span))


def table(
    frame: pl.DataFrame, asked: pl.DataFrame, reference: pl.DataFrame | None = None
) -> pl.DataFrame:
    return evidence(frame, asked, serving(frame), reference=reference)


def sent(shared_data: Path, name: str) -> tuple[np.ndarray[Any, Any], ...]:
    """Shares of a phase's requests by cell, from its own histograms."""
    row = phase(shared_data, name)
    return tuple(np.diff(row[f"{n}_buckets"], prepend=0.0) for n in LENGTHS)


def test_run_main_s_lengths_are_apart_where_they_were_sent_so_and_nowhere_else(
    shared_data: Path,
) -> None:
    """Prompts ×4, generations ×4, a quarter of the rate, and baselines between them."""
    before = sent(shared_data, "baseline")
    changed = {("prompt_drift_4x", 0): 4.0, ("gen_drift_4x", 1): 4.0}
    for name in ("prompt_drift_4x", "baseline2", "gen_drift_4x", "baseline3", "rate_drop_to_25pct"):
        row = phase(shared_data, name, "baseline")
        for i, length in enumerate(LENGTHS):
            found = shares(row, length)
            assert found is not None
            js = found.js_distance
            assert js == pytest.approx(
                jensenshannon(sent(shared_data, name)[i], before[i], base=2), abs=1e-9
            )
            ratio = changed.get((name, i), 1.0)
            assert found.w1_ratio == pytest.approx(ratio, rel=0.1), (name, length)
            assert (js > 0.5) is (ratio > 1), (name, length)


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
