"""The simulated servers do what the truth says of them, seen in their own scrapes.

Each scenario is run around its effect, one server of it; a figure is compared with the same
server's before the effect.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import timedelta

import polars as pl
import pytest
from fleet_cases import (
    AFTER,
    BEFORE,
    around_effect,
    before_and_after,
    between,
    figures,
    one_server,
    whole_run,
)

from driftwatch.fleet.scenario.file import shipped_scenarios

EFFECTS: dict[str, Callable[[dict[str, float], dict[str, float]], bool]] = {
    "prompts-x4": lambda before, after: (
        after["tokens_per_step"] > 0.95 * 512 > 4 * before["tokens_per_step"]
        and after["binds"] > 0.9 > 0.5 > after["kv"]
        and after["running"] < 128
        and after["ttft"] > 5 > before["ttft"] * 10
    ),
    "generations-x4": lambda before, after: (
        after["running"] == pytest.approx(64, rel=0.02)
        and before["running"] < 32
        and after["binds"] > 0.9 > 0.5 > after["kv"]
        and after["preemptions"] == 0
    ),
    "kv-pressure": lambda before, after: (
        before["preemptions"] == 0 < 50 < after["preemptions"]
        and before["kv"] < 0.4 < 0.74 < after["kv"]
        and after["running"] < 128  # far below max_num_seqs
    ),
    "demand-above-targets": lambda before, after: (
        after["itl"] > 1.3 * before["itl"]
        and after["running"] > 3 * before["running"]
        and after["binds"] < 0.5 > after["kv"]
        and after["ttft"] < 0.5
    ),
    "prefix-collapse": lambda before, after: (
        before["hits"] == pytest.approx(0.6, abs=0.05)
        and after["hits"] == 0
        and after["tokens_per_step"] > 2 * before["tokens_per_step"]
    ),
}


@pytest.mark.parametrize("name", EFFECTS)
def test_a_server_does_what_the_truth_says_of_it(name: str) -> None:
    before, after = before_and_after(name)
    assert EFFECTS[name](before, after), (before, after)


def test_deferred_admission_runs_3_and_lets_227_wait_at_21_percent() -> None:
    after = 5.0  # 227 are there within a minute
    made = around_effect("deferred-admission", after)
    chunk = one_server("deferred-admission", after=after)
    late = between(made, chunk.scrapes, BEFORE + 2, BEFORE + after)
    assert late["running_requests"].median() == 3
    assert late["waiting_requests"].median() == pytest.approx(227, abs=2)
    assert late["waiting_deferred_requests"].median() == pytest.approx(227, abs=3)
    assert late["kv_cache_usage_ratio"].mean() == pytest.approx(0.21, abs=0.03)
    assert between(made, chunk.scrapes, 3, BEFORE)["waiting_deferred_requests"].max() == 0


def test_a_wedged_engine_answers_and_stands_still() -> None:
    made, chunk = around_effect("wedged"), one_server("wedged", 1)
    after = between(made, chunk.scrapes, BEFORE + 1, BEFORE + AFTER).filter("ok")
    assert len(after) > 80  # the page is served
    assert after["running_requests"].min() > 0
    for name in ("generation_tokens_total", "running_requests", "iteration_tokens_count"):
        assert after[name].n_unique() == 1
    gpus = between(made, chunk.gpus, BEFORE + 2, BEFORE + AFTER)
    assert gpus["utilization_ratio"].min() > 0.9
    assert gpus["power_watts"].max() < 200  # it spins, it does not work


def test_every_scenario_is_healthy_before_its_effect() -> None:
    """Nobody waits, nothing is preempted, latencies are within the SLO: each pool once."""
    seen = set()
    for whole in shipped_scenarios():
        plain = whole.traffic.model_copy(update={"changes": ()})
        pool = (whole.pool.model_dump_json(), plain.model_dump_json())
        if pool in seen:
            continue
        seen.add(pool)
        assert whole.truth.baseline is not None and whole.pool.slo is not None
        start = whole.truth.baseline.until - 600.0
        made = whole.model_copy(
            update={
                "duration": 480.0,
                "start": whole.start + timedelta(seconds=start),
                "traffic": plain.model_copy(update={"offset": plain.offset + start}),
                "faults": (),
                "truth": whole.truth.model_copy(update={"baseline": None, "effects": ()}),
            }
        )
        chunk = whole_run(made)
        found = figures(made, chunk.scrapes, 3.0, 8.0)
        # by Little's law the queue may be as long as a tenth of the target makes it
        queue = chunk.scrapes["waiting_capacity_requests"].mean()
        rate = whole.traffic.requests_per_second / whole.pool.replicas
        assert found["preemptions"] == 0, whole.name
        assert queue < max(1.0, 0.1 * rate * whole.pool.slo.ttft_seconds), whole.name
        assert chunk.requests is not None
        ended = chunk.requests.filter(pl.col("status") == "finished")
        intervals = (pl.col("generated_tokens") - 1).clip(1)
        late = ended.select(
            ttft=pl.col("ttft_seconds") > whole.pool.slo.ttft_seconds,
            tpot=(pl.col("end_seconds") - pl.col("first_token_seconds")) / intervals
            > (whole.pool.slo.tpot_seconds or math.inf),
        ).mean()
        assert max(late.row(0)) < 0.01, whole.name
