from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest
from truth_judge.healthy import (
    counters_of,
    summary,
    wander,
)
from truth_judge.recordings import recorded_case

from driftwatch.collect.recordings import open_recording
from tests.compact_recording import write_compact


def scraped(
    ln_r: np.ndarray,
    *,
    seed: int,
    restart: int | None = None,
    preempted: np.ndarray | None = None,
) -> pl.DataFrame:
    """Counters of a server whose step time follows a law of its load, times exp(ln_r)."""
    draw = np.random.default_rng(seed)
    count = len(ln_r)
    n = draw.uniform(2, 60, count)
    prefill = draw.uniform(5, 400, count)
    usage = np.repeat(draw.uniform(0.05, 0.5, count // 2 + 1), 2)[: count + 1]
    held = (usage[1:] + usage[:-1]) / 2
    itl = (0.01 + 2e-5 * prefill + 1e-4 * n + 0.008 * held) * np.exp(ln_r)
    steps = 30 / itl
    grown = {
        "itl_seconds_sum": n * steps * itl,
        "itl_seconds_count": n * steps,
        "iteration_tokens_count": steps,
        "prompt_tokens_computed_total": prefill * steps,
        "preemptions_total": np.zeros(count) if preempted is None else preempted,
    }
    level = {name: np.concatenate(([0.0], np.cumsum(values))) for name, values in grown.items()}
    if restart is not None:
        level = {
            k: np.where(np.arange(count + 1) >= restart, v - v[restart], v)
            for k, v in level.items()
        }
    at = pl.Series(1_700_000_000 + 30 * np.arange(count + 1)).cast(pl.Int64)
    return pl.DataFrame(
        {
            "instance": "a:8000",
            "engine": "0",
            "time": (at * 1_000_000).cast(pl.Datetime("us", "UTC")),
            "ok": True,
            "kv_cache_usage_ratio": usage,
            **level,
        }
    )


def test_it_measures_the_noise_that_is_there_and_not_the_load() -> None:
    draw = np.random.default_rng(2)
    (found,) = wander(scraped(draw.normal(0, 0.03, 4000), seed=3, restart=1500))
    assert found.sd == pytest.approx(0.03, rel=0.06)
    assert found.robust_sd == pytest.approx(0.03, rel=0.06)
    assert found.correlation_1h == pytest.approx(0.0, abs=0.06)
    assert found.intervals == 3999  # the one across the restart is not used


def test_a_slow_wander_is_seen_as_correlation_and_a_stall_is_not() -> None:
    draw = np.random.default_rng(4)
    keep = 0.5 ** (30 / 3600)  # half is left after an hour
    value, slow = 0.0, []
    for shock in draw.normal(0, 1, 20_000):
        value = keep * value + shock
        slow.append(value)
    ln_r = 0.03 * np.array(slow) / np.std(slow)
    ln_r[draw.choice(20_000, 20, replace=False)] = 1.5
    (found,) = wander(scraped(ln_r, seed=5))
    assert found.correlation_1h == pytest.approx(0.5, abs=0.12)
    assert found.robust_sd == pytest.approx(0.03, rel=0.15)
    assert found.sd > 1.3 * found.robust_sd


def test_a_slowdown_that_is_excluded_adds_nothing() -> None:
    draw = np.random.default_rng(6)
    ln_r = draw.normal(0, 0.02, 3000)
    ln_r[2000:] += np.log(1.3)
    rows = scraped(ln_r, seed=7)
    start = 1_700_000_000.0 + 30 * 2000
    (kept,) = wander(rows, [("a:8000", start, start + 30 * 1001)])
    (all_of_it,) = wander(rows)
    assert kept.sd == pytest.approx(0.02, rel=0.06)
    assert all_of_it.sd > 4 * kept.sd
    assert len(wander(rows, [(None, 0.0, np.inf)])) == 0
    assert summary([])["sd_median"] is None


def test_of_the_real_server_the_recovered_phase_is_as_fast_as_before(
    shared_data: Path, tmp_path: Path
) -> None:
    """Its recorder says that the engine's own step wanders by about 15 %."""
    case = recorded_case(shared_data / "vllm-0.32" / "run_slow")
    write_compact(open_recording(case.recording), tmp_path / "compact")
    rows = counters_of(tmp_path / "compact")
    slow = [(None, e.start_seconds, e.end_seconds) for e in case.episodes]
    assert len(slow) == 1
    (healthy,) = wander(rows, slow)
    (with_slow,) = wander(rows)
    assert 0.03 <= healthy.sd <= 0.20
    assert with_slow.sd > 1.15 * healthy.sd


def test_an_interval_with_a_preemption_is_not_of_speed() -> None:
    """Waiting to be admitted again lies between two tokens, and is in no step."""
    draw = np.random.default_rng(8)
    ln_r, preempted = draw.normal(0, 0.03, 3000), np.zeros(3000)
    preempted[::10] = 2.0
    ln_r[::10] += np.log(2.0)
    (found,) = wander(scraped(ln_r, seed=9, preempted=preempted))
    assert found.intervals == 2700
    assert found.sd == pytest.approx(0.03, rel=0.06)
