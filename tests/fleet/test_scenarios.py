"""The simulated servers do what the truth says of them, seen in their own scrapes.

Each scenario is run around its effect, one server of it; a figure is compared with the same
server's before the effect.
"""

from __future__ import annotations

import math
from datetime import timedelta

import numpy as np
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


def test_longer_prompts_fill_the_token_budget() -> None:
    before, after = before_and_after("prompts-x4")
    assert after["tokens_per_step"] > 0.95 * 512 > 4 * before["tokens_per_step"]
    assert after["binds"] > 0.9 and after["running"] < 128 and after["kv"] < 0.5
    assert after["preemptions"] == 0 and after["ttft"] > 5 > before["ttft"] * 10


def test_longer_answers_fill_the_sequence_cap() -> None:
    before, after = before_and_after("generations-x4")
    assert after["running"] == pytest.approx(64, rel=0.02) and before["running"] < 32
    assert after["binds"] > 0.9 and after["kv"] < 0.5 and after["preemptions"] == 0


def test_kv_pressure_preempts() -> None:
    before, after = before_and_after("kv-pressure")
    assert before["preemptions"] == 0 and after["preemptions"] > 50
    assert before["kv"] < 0.4 and after["kv"] > 0.74
    assert after["running"] < 128  # far below max_num_seqs


def test_demand_slows_every_token_and_no_limit_binds() -> None:
    before, after = before_and_after("demand-above-targets")
    assert after["itl"] > 1.3 * before["itl"] and after["running"] > 3 * before["running"]
    assert after["binds"] < 0.5 and after["running"] < 256 and after["kv"] < 0.5
    assert after["ttft"] < 0.5 and after["preemptions"] == 0


def test_prefix_hits_collapse_and_cost() -> None:
    before, after = before_and_after("prefix-collapse")
    assert before["hits"] == pytest.approx(0.6, abs=0.05) and after["hits"] == 0
    assert after["prompt"] / before["prompt"] == pytest.approx(1.0, rel=0.1)
    assert after["tokens_per_step"] > 2 * before["tokens_per_step"]


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


def test_slower_engines_are_slower_at_equal_load() -> None:
    """Steps are compared with the law at the load they had: batch and prompts move as well."""
    made, chunk = around_effect("slower-20"), one_server("slower-20")
    law_seconds = []
    for since, until in ((3.0, BEFORE), (BEFORE + 12, BEFORE + AFTER)):
        rows = between(made, chunk.scrapes, since, until).filter("ok")
        grown = {
            n: np.diff(rows[n].to_numpy())
            for n in ("iteration_tokens_count", "iteration_tokens_sum", "itl_seconds_sum",
                      "itl_seconds_count")
        }  # fmt: skip
        steps = grown["iteration_tokens_count"]
        batch = grown["itl_seconds_count"] / steps
        prefill = grown["iteration_tokens_sum"] / steps - batch
        itl = grown["itl_seconds_sum"] / grown["itl_seconds_count"]
        law_seconds.append(float(np.median(itl / (7.0e-3 + 2.8e-5 * prefill + 1.1e-4 * batch))))
    assert law_seconds[1] / law_seconds[0] == pytest.approx(1.25, abs=0.1)


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
        # deferred requests of a decode-only pool wait for no place; by Little's law the queue may
        # be as long as a tenth of the target makes it
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
