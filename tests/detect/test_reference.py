"""What "before" means: measured or declared, how many requests it takes, and the ratios to it."""

from __future__ import annotations

import math
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from pipeline_cases import (
    HOST,
    at,
    evidence,
    recording,
    scrapes,
    serving,
    windows,
)

from driftwatch.collect.gpus import gpu_frame
from driftwatch.collect.pages import PageParser
from driftwatch.detect.reference import (
    HISTOGRAMS,
    MEASURED,
    REFERENCE_SCHEMA,
    baseline_of_minutes,
    combined,
    declared,
    no_reference,
)
from driftwatch.diagnose.evidence_table import evidence_table, rows_of_scrapes
from driftwatch.minutes.rows import minute_grid
from driftwatch.signals.gpu_links import GPU_TARGET_SCHEMA
from driftwatch.signals.minutes import MINUTE_SCHEMA, minutes, no_minutes


def history(before: int, after: int, prompt: float = 100.0, longer: float = 200.0) -> pl.DataFrame:
    """``before`` requests in the first ten minutes, ``after`` longer ones in the next ten."""
    rows: list[dict[str, Any]] = []
    for i in range(80):
        first = before * min(i, 39) / 39
        second = after * max(0, i - 39) / 40
        rows.append(
            {
                "t": 15.0 * i,
                "prompt_tokens_count": first + second,
                "prompt_tokens_sum": prompt * first + longer * second,
                "generation_tokens_count": first + second,
                "generation_tokens_sum": 50.0 * (first + second),
                "generation_tokens_total": 50.0 * (first + second),
                "finished_requests_total": first + second,
                "process_start_time_seconds": 1000.0,
            }
        )
    return scrapes(rows)


def table(
    frame: pl.DataFrame,
    start: float,
    end: float,
    reference: pl.DataFrame | None = None,
    gpus: list[dict[str, Any]] | None = None,
) -> pl.DataFrame:
    settings, asked = serving(frame), windows((start, end))
    rows = rows_of_scrapes(
        frame,
        settings,
        at(0),
        at(end),
        gpus=None if gpus is None else gpu_frame(gpus),
        gpu_targets=gpu_targets(),
    )
    return evidence_table(rows, asked, serving=settings, reference=reference)


def gpu_targets() -> pl.DataFrame:
    """The server in a pod of its own, with two GPUs declared."""
    known = {"instance": HOST, "engine": "0", "namespace": "prod", "pod": "a", "gpus_declared": 2.0}
    return pl.DataFrame([known], schema=dict(GPU_TARGET_SCHEMA), orient="row")


def compared(frame: pl.DataFrame, reference: pl.DataFrame) -> dict[str, Any]:
    return dict(table(frame, 600, 1200, reference).to_dicts()[0])


def measured(frame: pl.DataFrame) -> pl.DataFrame:
    return baseline(table(frame, 0, 600))


def baseline(rows: pl.DataFrame) -> pl.DataFrame:
    """Of the window as one long minute."""
    return baseline_of_minutes(minutes(rows))


def test_a_baseline_remembers_and_compares() -> None:
    frame = history(1000, 500)
    reference = measured(frame)
    assert reference.height == 1
    assert reference.row(0, named=True)["until"] == at(600)
    row = compared(frame, reference)
    assert row["reference_kind"] == "baseline"
    assert row["prompt_tokens_mean_ratio"] == pytest.approx(2.0)
    assert row["generation_tokens_mean_ratio"] == pytest.approx(1.0)
    assert row["requests_per_second_ratio"] == pytest.approx(0.4875)  # 39 and 40 intervals
    assert row["tokens_per_second_per_gpu_ratio"] == pytest.approx(0.4875)
    assert row["reference_prompt_tokens_mean"] == pytest.approx(100.0)
    for name in MEASURED:
        assert f"reference_{name}" in row


def test_a_clock_is_compared_with_the_baselines() -> None:
    frame = history(1000, 500)
    clocks = [
        {"exporter": "x:9400", "uuid": "GPU-a", "namespace": "prod", "pod": "a", "time": at(t)}
        | {"origin": "DCGM", "sm_clock_hertz": 1.98e9 if t < 600 else 1.155e9}
        | {"utilization_ratio": 0.97}
        for t in range(5, 1200, 30)
    ]
    reference = baseline(table(frame, 0, 600, gpus=clocks))
    assert reference["reference_gpu_sm_clock_hertz"].to_list() == [pytest.approx(1.98e9)]
    row = table(frame, 600, 1200, reference, clocks).row(0, named=True)
    assert row["gpu_sm_clock_ratio"] == pytest.approx(1.155 / 1.98)
    assert row["gpu_count_source"] == "declared 2, DCGM shows 1"
    row = table(frame, 600, 1200, reference).row(0, named=True)
    assert row["gpu_sm_clock_ratio"] is None


def test_a_hundred_requests_are_compared_and_fewer_are_not() -> None:
    reference = measured(history(1000, 0))
    # the window of 600 to 1200 s holds all requests but none of the first ten minutes
    assert compared(history(1000, 100), reference)["prompt_tokens_mean_ratio"] is not None
    few = compared(history(1000, 99), reference)
    assert few["prompt_tokens_mean_ratio"] is None
    assert few["generation_tokens_mean_ratio"] is None
    assert few["prompt_tokens_mean"] == pytest.approx(200.0)  # known, only not compared
    assert few["requests_per_second_ratio"] is not None  # a rate needs no hundred requests


def test_of_a_minute_the_last_ten_are_compared() -> None:
    frame = history(1000, 500)
    reference = measured(frame)
    # the first half of the ten minutes finished 500 of 1,000 prompts of 100 tokens, the other 250
    # of 200: the minute itself has 50 requests, too few
    row = table(frame, 840, 900, reference).row(0, named=True)
    assert row["finished_requests"] < 100
    assert row["prompt_tokens_mean"] == pytest.approx(200.0)
    assert row["prompt_tokens_mean_ratio"] == pytest.approx((500 + 2 * 250) / 750, rel=0.02)


def test_a_baseline_of_few_requests_has_no_lengths() -> None:
    reference = measured(history(99, 0))
    row = reference.row(0, named=True)
    assert row["reference_prompt_tokens_mean"] is None
    assert row["reference_finished_requests"] == pytest.approx(99)
    assert measured(history(100, 0)).row(0, named=True)[
        "reference_prompt_tokens_mean"
    ] == pytest.approx(100.0)
    assert compared(history(99, 500), reference)["prompt_tokens_mean_ratio"] is None


TUNED = {"instance": HOST, "engine": "0", "reference_prompt_tokens_mean": 400.0}


def test_tuned_for_is_compared_where_it_declares() -> None:
    row = compared(history(1000, 500), declared([TUNED]))
    assert row["reference_kind"] == "tuned_for"
    assert row["prompt_tokens_mean_ratio"] == pytest.approx(0.5)
    assert row["generation_tokens_mean_ratio"] is None  # not declared
    assert row["requests_per_second_ratio"] is None
    assert row["tokens_per_second_per_gpu_ratio"] is None


def test_what_was_measured_wins_over_what_was_declared() -> None:
    frame = history(1000, 500)
    both = combined(measured(frame), declared([TUNED, TUNED | {"instance": "other:1"}]))
    assert both.select("instance", "kind").rows() == [(HOST, "baseline"), ("other:1", "tuned_for")]
    assert compared(frame, both)["prompt_tokens_mean_ratio"] == pytest.approx(2.0)
    assert combined(no_reference(), declared([TUNED])).height == 1
    assert combined(measured(frame), no_reference()).height == 1


@pytest.mark.parametrize(
    "reference", [no_reference(), declared([TUNED | {"engine": "1"}])], ids=["none", "another's"]
)
def test_without_a_reference_no_ratio(reference: pl.DataFrame) -> None:
    row = compared(history(1000, 500), reference)
    assert row["reference_kind"] is None
    ratios = [c for c in row if c.endswith(("_mean_ratio", "per_second_ratio"))]
    assert len(ratios) >= 3
    assert all(row[c] is None for c in ratios)


# --- pages of several engines and several API servers


def during_and_after(shared_data: Path, name: str) -> pl.DataFrame:
    parser = PageParser()
    pages = [
        (HOST, at(60 * i), (shared_data / "vllm-0.32" / f"metrics_{name}_{when}.txt").read_bytes())
        for i, when in enumerate(("during", "after"))
    ]
    return parser.parse_many(pages).scrapes


def over(frame: pl.DataFrame, **settings: Any) -> list[dict[str, Any]]:
    asked = pl.concat([windows((0, 120), engine=e) for e in sorted(frame["engine"].unique())])
    return evidence(frame, asked, serving(frame, **settings)).to_dicts()


@pytest.mark.parametrize(
    ("page", "marked"), [("dp2", [True, True]), ("api2", [True]), ("dp2_api1", [False, False])]
)
def test_steps_that_several_front_ends_count_are_marked(
    shared_data: Path, page: str, marked: list[bool]
) -> None:
    rows = over(during_and_after(shared_data, page))
    assert [row["forward_passes_overcounted"] for row in rows] == marked


def test_a_known_count_of_api_servers_halves_the_steps(shared_data: Path) -> None:
    frame = during_and_after(shared_data, "dp2")
    for one, two in zip(over(frame), over(frame, api_server_count=2.0), strict=True):
        assert two["forward_passes_overcounted"] is False
        assert one["requests_per_forward_pass"] is not None
        assert two["requests_per_forward_pass"] == pytest.approx(
            2 * one["requests_per_forward_pass"]
        )
        assert two["forward_passes"] == pytest.approx(one["forward_passes"] / 2)
        # the time-weighted batch needs no count of steps
        assert two["effective_batch_size"] == one["effective_batch_size"]


def test_minutes_without_scrapes_and_unknown_parts_count_in_neither(shared_data: Path) -> None:
    """Of run_slow's baseline of 20 minutes."""
    frame = recording(shared_data / "vllm-0.32" / "run_slow")
    first = frame["time"].min()
    assert isinstance(first, datetime)
    start = first.replace(second=0, microsecond=0) + timedelta(minutes=1)
    settings = serving(frame, gpus_per_replica=2.0)
    asked = minute_grid(settings, start, start + timedelta(minutes=20))
    grid = minutes(evidence(frame, asked, settings))
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
