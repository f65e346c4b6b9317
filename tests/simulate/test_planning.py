"""Ceilings, batches and the demand, against hand arithmetic and each other."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from driftwatch.lab.plan import (
    Fits,
    Mix,
    batch_speed,
    fits_together,
    mix_of,
)
from driftwatch.simulate.configuration import SchedulerConfiguration
from driftwatch.simulate.demand import (
    capacity_per_second,
)
from driftwatch.simulate.hardware import gpu, model
from driftwatch.simulate.kv_cache import MemoryPlan, memory_plan
from driftwatch.simulate.requests import make_requests
from driftwatch.simulate.step_time import StepTime
from driftwatch.simulate.workload.requests_file import read_requests

EIGHT = model("llama-3.1-8b")
PLAN = memory_plan(gpu("H100"), EIGHT, max_num_seqs=256, max_num_batched_tokens=2048)


def alike(prompt: int, made: int) -> Mix:
    return mix_of(np.full(4, prompt), np.full(4, made))


def fits_of(mix: Mix, plan: MemoryPlan = PLAN) -> Fits:
    return fits_together(plan, EIGHT, mix)


def test_ceilings_of_equal_requests_by_hand() -> None:
    fits = fits_of(alike(500, 300))
    tokens = PLAN.kv_tokens
    assert fits.mean_full == fits.longest_full == tokens // 800  # 50 whole blocks
    assert fits.resident_tokens == 500 + 150 + 8
    assert fits.running == int(tokens / 658)


def test_paging_on_a_real_mix(shared_data: Path) -> None:
    requests = read_requests(shared_data / "traces/azure_2023_conv.csv.gz")
    mix = mix_of(requests.prompt_tokens, requests.generation_tokens)
    fits = fits_of(mix)
    assert fits.longest_full < fits.running
    # residents of the trace, moment by moment, each token taking equal time: the same mean
    made = requests.generation_tokens
    contexts = np.repeat(requests.prompt_tokens, made) + np.concatenate(
        [np.arange(g) for g in made]
    )
    assert mix.context_tokens_mean == pytest.approx(contexts.mean() + 0.5)
    assert fits.resident_tokens < 0.15 * 16_384  # the rest of a reservation is never used


def test_the_capacity_of_a_constant_step_by_hand() -> None:
    law = StepTime(0.01, 0.0, 0.0, 0.0)
    requests = make_requests(np.zeros(40), np.full(40, 10), np.full(40, 20))
    # four at a time, 20 steps of 10 ms each
    found = capacity_per_second(requests, SchedulerConfiguration(4, 512), law)
    assert found == pytest.approx(4 / (20 * 0.01), rel=0.05)
    assert capacity_per_second(requests.take(slice(1)), SchedulerConfiguration(1, 512), law) is None


@pytest.mark.parametrize("hinge", [0, 128, 400])
def test_a_hinge_and_pairs_agree_with_the_simulation(hinge: int) -> None:
    law = StepTime(0.008, 1e-4, 3e-5, 5e-8, hinge, 1e-7)
    rng = np.random.default_rng(3)
    lengths = (rng.integers(50, 550, 600), rng.integers(20, 180, 600))
    mix = mix_of(*lengths, hinge)
    speed = batch_speed(32, law, mix, EIGHT)
    requests = make_requests(np.zeros(600), *lengths)
    capacity = capacity_per_second(requests, SchedulerConfiguration(32, 8192), law)
    assert capacity is not None
    assert capacity * mix.generation_tokens_mean == pytest.approx(speed.tokens_per_second, rel=0.03)
    unhinged = batch_speed(32, replace(law, hinge_tokens=0), mix, EIGHT)
    assert (unhinged.itl_seconds > 1.1 * speed.itl_seconds) == (hinge > 0)
