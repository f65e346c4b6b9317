"""max_num_seqs inferred from the plateau of running requests, or not, and what ends it."""

from __future__ import annotations

import gzip
import json
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from pipeline_cases import KEY, at, evidence, floor_minute, grid, recording, scrapes, serving

from driftwatch.diagnose.evidence_table import rows_of_scrapes
from driftwatch.diagnose.limits import CAP_BAND_RATIO


def page(t: float, running: float | None, waiting: float, **more: Any) -> dict[str, Any]:
    return {
        "t": t,
        "running_requests": running,
        "waiting_requests": waiting,
        "waiting_capacity_requests": waiting,
        "waiting_deferred_requests": 0.0,
        "kv_cache_usage_ratio": 0.2,
        "preemptions_total": 0.0,
        "generation_tokens_total": 100.0 * t,
        "process_start_time_seconds": 1000.0,
        **more,
    }


def inferred(frame: pl.DataFrame, **settings: Any) -> pl.DataFrame:
    """instance, engine, end, cap (NULL = not shown) of every minute."""
    asked = grid(frame)
    first, last = asked["start"].min(), asked["end"].max()
    assert isinstance(first, datetime) and isinstance(last, datetime)
    rows = rows_of_scrapes(frame, serving(frame, **settings), first, last)
    return rows.select(*KEY, "end", cap="inferred_max_num_seqs")


def caps(frame: pl.DataFrame, **settings: Any) -> set[float]:
    """Every cap that any minute of any target inferred."""
    return set(inferred(frame, **settings)["cap"].drop_nulls().to_list())


def test_run_cap_shows_eight_until_the_restart_and_nothing_after(shared_data: Path) -> None:
    frame = recording(shared_data / "vllm-0.32" / "run_cap")
    restart = frame.filter(~pl.col("ok"))["time"].min()
    assert isinstance(restart, datetime)
    rows = inferred(frame)
    before = rows.filter(pl.col("end") <= floor_minute(restart))["cap"]
    back = frame.filter(pl.col("ok") & (pl.col("time") > restart))["time"].min()
    assert set(before.drop_nulls().to_list()) == {8.0}
    assert before[-1] == 8.0  # it holds through the light minutes after
    assert before[:3].null_count() == 3  # nothing queued in the light minutes before
    assert rows.filter(pl.col("end") > back)["cap"].is_null().all()
    # a cap that never binds is not inferred wrongly
    assert caps(recording(shared_data / "vllm-0.32" / "run_main")) <= {64.0}


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
                for i, step in enumerate(range(offset, len(steps), per_scrape))
            ]
            frames.append(scrapes(rows, instance=f"{seconds}-{offset}"))
    return pl.concat(frames)


@pytest.mark.parametrize(
    ("name", "cap"),
    [
        ("seqs_16_binds", 16.0),
        ("active_24_of_256", 24.0),
        # bound by the KV cache, by the budget: no cap, or the true one
        ("preempt_seqs_24", None),
        ("budget_64_seqs_32", None),
    ],
)
def test_vllms_own_scheduler(shared_data: Path, name: str, cap: float | None) -> None:
    with gzip.open(shared_data / "scheduler" / "vllm_0.32_golden_2.json.gz", "rt") as file:
        (case,) = (one for one in json.load(file) if one["name"] == name)
    found = inferred(from_steps(case))
    shown = set(found["cap"].drop_nulls().to_list())
    if cap is None:
        assert shown <= {float(case["max_num_seqs"])}
    else:
        assert shown == {cap}
        assert found.group_by("instance").agg(pl.col("cap").is_not_null().any())["cap"].all()


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
    assert cap > 64 or set(last.to_list()) == {float(cap)}
    assert all(CAP_BAND_RATIO * cap <= value <= cap for value in found["cap"].drop_nulls())


def wandering(mean: float, every: float, budget: float, seed: int) -> pl.DataFrame:
    """Half an hour bound by the token budget: requests wait, KV is free, the level wanders."""
    rng = np.random.default_rng(seed)
    level, tokens, rows = mean, 0.0, []
    for i in range(int(1800 / every)):
        level = max(1.0, mean + 0.7 * (level - mean) + rng.normal(0, 0.25 * mean))
        # a full budget shows 0.78 to 1.0 of it
        tokens += 50.0 * budget * rng.uniform(0.78, 1.0)
        steps = {"iteration_tokens_sum": tokens, "iteration_tokens_count": 50.0 * (i + 1)}
        rows.append(page(every * i, float(round(level)), 10.0, **steps))
    return scrapes(rows, instance=f"h{seed}")


@pytest.mark.parametrize(
    ("mean", "every", "budget", "settings", "most"),
    [
        # running 3 to 18 of 64, as on a real server with a budget of 256
        (6.0, 15.0, 256.0, {}, 0),
        # long prompts, two or three at once: without the budget's size some look like a cap; the
        # band of two levels alone shows 9 to 36
        (1.5, 5.0, 8192.0, {}, 4),
        (1.5, 5.0, 8192.0, {"max_num_batched_tokens": 8192.0}, 0),
    ],
)
def test_a_server_bound_by_its_budget_hardly_ever_shows_a_cap(
    mean: float, every: float, budget: float, settings: dict[str, Any], most: int
) -> None:
    frame = pl.concat([wandering(mean, every, budget, seed) for seed in range(40)])
    found = inferred(frame, **settings)
    shown = found.group_by("instance").agg(pl.col("cap").is_not_null().any())
    assert shown["cap"].sum() <= most


RUNS = [page(5.0 * i, 8.0, 5.0) for i in range(60)]


@pytest.mark.parametrize(
    ("rows", "found"),
    [
        # too few queued scrapes, and enough
        ([row | {"waiting_capacity_requests": 5.0 * (i < 7)}
          for i, row in enumerate(RUNS[:24])], set()),
        ([row | {"waiting_capacity_requests": 5.0 * (i < 8)}
          for i, row in enumerate(RUNS[:24])], {8.0}),
        ([row | {"kv_cache_usage_ratio": None} for row in RUNS], set()),
        ([row | {"preemptions_total": float(i)} for i, row in enumerate(RUNS)], set()),
        ([row | {"waiting_capacity_requests": 0.0, "waiting_deferred_requests": 5.0}
          for row in RUNS], set()),
        # more ran once: no lower plateau
        ([page(-5.0, 40.0, 0.0), *RUNS], set()),
    ],
    ids=["seven", "eight", "KV unknown", "preempted", "deferred", "more once"],
)  # fmt: skip
def test_what_shows_a_plateau(rows: list[dict[str, Any]], found: set[float]) -> None:
    assert caps(scrapes(rows)) == found


@pytest.mark.parametrize(
    ("level", "budget", "bursts", "found"),
    [(30, 4096, 8, {30.0}), (30, 4096, 7, set()), (30, None, 8, set()), (12, 4096, 8, set())],
)
def test_bursts_that_return_to_one_level_show_a_cap(
    level: float, budget: float | None, bursts: int, found: set[float]
) -> None:
    """A burst every three minutes: no ten minutes are a plateau."""
    full = [i > 0 and i % 36 == 0 and i <= 36 * bursts for i in range(360)]
    pages = [page(5.0 * i, level if on else 5.0, 9.0 * on) for i, on in enumerate(full)]
    assert caps(scrapes(pages), max_num_batched_tokens=budget) == found


AFTER = [page(180 + 5.0 * i, 2.0, 0.0) for i in range(60)]


@pytest.mark.parametrize(
    "after",
    [
        [
            row | {"process_start_time_seconds": 2000.0, "generation_tokens_total": float(i)}
            for i, row in enumerate(AFTER)
        ],
        [row | {"cache_config": '{"n":"2"}'} for row in AFTER],
        [row | ({"running_requests": 9.0} if i == 3 else {}) for i, row in enumerate(AFTER)],
    ],
    ids=["restart", "another cache configuration", "more run"],
)
def test_what_ends_a_plateau(after: list[dict[str, Any]]) -> None:
    before = [row | {"cache_config": '{"n":"1"}'} for row in RUNS[:36]]
    after = [{"cache_config": '{"n":"1"}', **row} for row in after]
    found = inferred(scrapes([*before, *after]))
    assert found.filter(pl.col("end") <= at(180))["cap"][-1] == 8.0
    assert found.filter(pl.col("end") > at(180))["cap"].null_count() == 5


def test_a_known_cap_is_not_replaced_and_a_missing_gauge_borrows_no_level() -> None:
    frame = scrapes(RUNS)
    rows = evidence(frame, grid(frame), serving(frame, max_num_seqs=64.0))
    assert rows.select("max_num_seqs", "max_num_seqs_inferred").unique().rows() == [(64.0, False)]
    # a configured one that more requests exceed is another one
    rows = evidence(frame, grid(frame), serving(frame, max_num_seqs=4.0))
    assert rows["max_num_seqs"].unique().to_list() == [8.0]
    # the second engine's first page lacks the gauge: its level is unknown, not the first's
    big = scrapes([page(5.0 * i, 200.0, 0.0) for i in range(60)])
    own = scrapes([RUNS[0] | {"running_requests": None}, *RUNS[1:]], engine="1")
    frame = pl.concat([big, own])
    found = evidence(frame, grid(frame), serving(frame))
    assert found.filter(pl.col("engine") == "1")["max_num_seqs"][-1] == 8.0
