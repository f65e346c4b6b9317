"""max_num_seqs inferred from the plateau of running requests, or not."""

from __future__ import annotations

import gzip
import json
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from pipeline_cases import (
    floor_minute,
    recording,
    scrapes,
)
from plateau_cases import caps, inferred, page

from driftwatch.diagnose.limits import CAP_BAND_RATIO

# --- real servers


def test_run_cap_shows_eight_until_the_restart_and_nothing_after(shared_data: Path) -> None:
    frame = recording(shared_data / "vllm-0.32" / "run_cap")
    restart = frame.filter(~pl.col("ok"))["time"].min()
    assert isinstance(restart, datetime)
    rows = inferred(frame)
    before = rows.filter(pl.col("end") <= floor_minute(restart))
    back = frame.filter(pl.col("ok") & (pl.col("time") > restart))["time"].min()
    after = rows.filter(pl.col("end") > back)
    assert set(before["cap"].drop_nulls().to_list()) == {8.0}
    assert before["cap"][-1] == 8.0  # it holds through the light minutes after
    assert before["cap"][:3].null_count() == 3  # nothing queued in the light minutes before
    assert after["cap"].null_count() == after.height


def test_a_cap_that_never_binds_is_not_inferred_wrongly(shared_data: Path) -> None:
    assert caps(recording(shared_data / "vllm-0.32" / "run_main")) <= {64.0}


# --- vLLM's own scheduler, step by step


@cache
def golden(folder: Path) -> dict[str, dict[str, Any]]:
    with gzip.open(folder / "vllm_0.32_golden_2.json.gz", "rt") as file:
        return {case["name"]: case for case in json.load(file)}


def from_steps(case: dict[str, Any]) -> pl.DataFrame:
    """What monitors would have scraped of the traced scheduler, each on another rhythm.

    The gauges are those after ``schedule()``. The trace has no time a step, so that a scrape is
    due every so many steps (steps are of similar length where requests queue); a step that gave
    no output, a partial prefill alone, is not counted.
    """
    steps = np.array(case["trace"], dtype=float)
    column = dict(zip(case["trace_columns"], steps.T, strict=True))
    prefill, decode = column["prefill_tokens"], column["decode_seqs"]
    tokens, counted = np.cumsum(prefill + decode), np.cumsum((decode > 0) | (prefill > 0))
    preempted = np.cumsum(column["preempted"])
    blocks = case["num_gpu_blocks"] - 1
    frames = []
    for seconds in (0.5, 1.0, 2.0):
        per_scrape = max(1, round(seconds * case["steps"] / case["end_s"]))
        for offset in range(0, per_scrape, max(1, per_scrape // 4)):
            chosen = range(offset, len(steps), per_scrape)
            rows = [
                page(
                    5.0 * i,
                    column["running_after"][step],
                    column["waiting_after"][step],
                    kv_cache_usage_ratio=1 - column["free_blocks_after"][step] / blocks,
                    preemptions_total=preempted[step],
                    iteration_tokens_sum=tokens[step],
                    iteration_tokens_count=float(counted[step]),
                )
                for i, step in enumerate(chosen)
            ]
            frames.append(scrapes(rows, instance=f"{seconds}-{offset}"))
    return pl.concat(frames)


@pytest.mark.parametrize(("name", "cap"), [("seqs_16_binds", 16.0), ("active_24_of_256", 24.0)])
def test_the_scheduler_at_its_cap_shows_it(shared_data: Path, name: str, cap: float) -> None:
    found = inferred(from_steps(golden(shared_data / "scheduler")[name]))
    assert set(found["cap"].drop_nulls().to_list()) == {cap}
    shown = found.group_by("instance").agg(pl.col("cap").is_not_null().any())
    assert shown["cap"].all()


@pytest.mark.parametrize(
    "name",
    [
        "preempt_seqs_24",
        "budget_64_seqs_32",
    ],
)
def test_the_scheduler_below_its_cap_shows_no_other(shared_data: Path, name: str) -> None:
    """KV-bound and budget-bound schedulers: no cap, or the true one."""
    case = golden(shared_data / "scheduler")[name]
    assert caps(from_steps(case)) <= {float(case["max_num_seqs"])}


# --- synthetic servers


def capped(cap: int, leavers: float, every: float, seed: int) -> pl.DataFrame:
    """A queue always waits; the gauge is read after a Poisson number of requests has left."""
    rng = np.random.default_rng(seed)
    left = np.minimum(rng.poisson(leavers, size=int(1200 / every)), cap)
    rows = [page(every * i, float(cap - n), 30.0) for i, n in enumerate(left)]
    return scrapes(rows, instance=f"h{seed}")


@pytest.mark.parametrize(("cap", "every"), [(1, 5.0), (64, 30.0), (256, 5.0)])
def test_a_cap_with_leavers_is_inferred(cap: int, every: float) -> None:
    """Generations of 100 tokens: a step frees one place in a hundred."""
    frame = pl.concat([capped(cap, cap / 100, every, seed) for seed in range(10)])
    found = inferred(frame)
    last = found.group_by("instance").agg(pl.col("cap").last())["cap"]
    # a large cap may never show itself whole in 20 or 40 scrapes; then it shows a little less
    assert all(value is not None and CAP_BAND_RATIO * cap <= value <= cap for value in last)
    if cap <= 64:
        assert set(last.to_list()) == {float(cap)}
    assert all(CAP_BAND_RATIO * cap <= value <= cap for value in found["cap"].drop_nulls())


def wandering(mean: float, every: float, budget: float, seed: int) -> pl.DataFrame:
    """Half an hour bound by the token budget: requests wait, KV is free, the level wanders."""
    rng = np.random.default_rng(seed)
    level, tokens, steps = mean, 0.0, 0.0
    rows = []
    for i in range(int(1800 / every)):
        level = max(1.0, mean + 0.7 * (level - mean) + rng.normal(0, 0.25 * mean))
        # a full budget shows 0.78 to 1.0 of it
        steps += 50.0
        tokens += 50.0 * budget * rng.uniform(0.78, 1.0)
        rows.append(
            page(
                every * i,
                float(round(level)),
                10.0,
                iteration_tokens_sum=tokens,
                iteration_tokens_count=steps,
            )
        )
    return scrapes(rows, instance=f"h{seed}")


@pytest.mark.parametrize(("mean", "every"), [(6.0, 15.0), (30.0, 5.0)])
def test_a_budget_bound_server_shows_no_cap(mean: float, every: float) -> None:
    """Running 3 to 18 of 64, as on a real server with a budget of 256."""
    frame = pl.concat([wandering(mean, every, 256.0, seed) for seed in range(20)])
    assert caps(frame) == set()


def test_a_budget_that_lets_few_run_is_hardly_ever_a_cap() -> None:
    """Long prompts: two or three at once. Without the budget's size some look like a cap."""
    frame = pl.concat([wandering(1.5, 5.0, 8192.0, seed) for seed in range(40)])
    shown = inferred(frame).group_by("instance").agg(pl.col("cap").is_not_null().any())
    assert shown["cap"].sum() <= 4  # of 40; the band of two levels alone shows 9 to 36


def test_a_known_budget_that_is_full_shows_no_cap() -> None:
    frame = pl.concat([wandering(1.5, 5.0, 8192.0, seed) for seed in range(40)])
    assert inferred(frame, max_num_batched_tokens=8192.0)["cap"].null_count() == 40 * 30


def test_too_few_queued_scrapes_show_nothing() -> None:
    rows = [page(5.0 * i, 8.0, 5.0 if i < 7 else 0.0) for i in range(24)]
    assert caps(scrapes(rows)) == set()
    rows = [page(5.0 * i, 8.0, 5.0 if i < 8 else 0.0) for i in range(24)]
    assert caps(scrapes(rows)) == {8.0}


@pytest.mark.parametrize(
    "pressure",
    [{"kv_cache_usage_ratio": 0.9}, {"preempting": True}, {"kv_cache_usage_ratio": None}],
)
def test_kv_pressure_shows_no_cap(pressure: dict[str, Any]) -> None:
    preempting = pressure.pop("preempting", False)
    rows = [
        page(
            5.0 * i, 8.0, 5.0, **pressure, **({"preemptions_total": float(i)} if preempting else {})
        )
        for i in range(60)
    ]
    found = inferred(scrapes(rows))["cap"]
    assert found.null_count() == found.len()
    pressure["preempting"] = preempting


def test_deferred_requests_show_no_cap() -> None:
    rows = [
        page(5.0 * i, 3.0, 0.0, waiting_requests=227.0, waiting_deferred_requests=227.0)
        for i in range(120)
    ]
    assert caps(scrapes(rows)) == set()
