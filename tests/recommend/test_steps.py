"""Step times from minutes: of engines whose model is known, and of real GPUs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from engine_minutes import BLOCKS, H100_8B, engine_minutes, requests_of, server_with
from gpu_runs import RUNS, end_to_end_error, gpu_run

from driftwatch.recommend.demand import rebuild_demand
from driftwatch.recommend.steps import StepTimes, prior_of, step_times, work_met
from driftwatch.recommend.window import undisturbed
from driftwatch.simulate.configuration import SchedulerConfiguration
from driftwatch.simulate.hardware import shipped_hardware
from driftwatch.simulate.step_time import StepTime

SETTINGS = SchedulerConfiguration(128, 2048, BLOCKS)
REQUESTS = requests_of(9.0, 600.0, 200.0)
# slower than the datasheet has it, each part of it by another factor
SLOW = replace(
    H100_8B,
    c0_seconds=1.4 * H100_8B.c0_seconds,
    c1_seconds_per_prefill_token=1.2 * H100_8B.c1_seconds_per_prefill_token,
    c2_seconds_per_decode_seq=4.0 * H100_8B.c2_seconds_per_decode_seq,
    c3_seconds_per_kv_token=1.3 * H100_8B.c3_seconds_per_kv_token,
)


def fitted(truth: StepTime, **told: str | None) -> StepTimes:
    window = undisturbed(engine_minutes(REQUESTS, SETTINGS, truth))
    server = server_with(SETTINGS, **told)
    demand = rebuild_demand(window, server, 0)
    prior = prior_of(server, window, demand, shipped_hardware())
    found = step_times(work_met(window, demand), prior, draws=16, seed=0)
    assert found is not None
    return found


@pytest.mark.parametrize("truth", [H100_8B, SLOW], ids=["as the datasheet", "slower"])
def test_the_model_is_found_from_minutes(truth: StepTime) -> None:
    found = fitted(truth)
    fit = found.fit
    assert fit.is_known and fit.minutes == 20 and fit.misfit_ratio < 0.03
    assert "H100-80GB" in fit.source
    # steps as they were, and of twice the batch, which no minute had
    for prefill, decode, context in ((0, 10, 700), (100, 20, 700), (600, 40, 700), (0, 80, 700)):
        seconds = found.likeliest.seconds(prefill, decode, decode * context)
        assert seconds == pytest.approx(truth.seconds(prefill, decode, decode * context), rel=0.1)


def test_the_draws_differ_as_far_as_minutes_leave_it_open() -> None:
    found = fitted(H100_8B)

    def spread(decode: int) -> float:
        seconds = [one.seconds(0, decode, 700 * decode) for one in found.draws]
        return float(np.std(np.log(seconds)))

    assert len(found.draws) == 16
    assert spread(16) < 0.05 < 0.4  # as it ran
    assert spread(256) > spread(16)  # as it never ran
    low, high = (f([d.seconds(0, 256, 256 * 700) for d in found.draws]) for f in (min, max))
    assert low <= H100_8B.seconds(0, 256, 256 * 700) <= high


def test_without_a_datasheet_the_minutes_say_it_alone() -> None:
    found = fitted(SLOW, gpu="Acme X1")
    assert not found.fit.is_known and "Acme X1" in found.fit.source
    at = (80, 20, 20 * 700)  # as it ran
    assert found.likeliest.seconds(*at) == pytest.approx(SLOW.seconds(*at), rel=0.1)


@pytest.mark.parametrize("name", RUNS)
def test_a_real_gpus_second_half_follows_from_its_first(shared_data: Path, name: str) -> None:
    run = gpu_run(shared_data, name)
    assert end_to_end_error(run, run.fitted) <= 0.035
    assert end_to_end_error(run, run.prior.step_times[0]) <= 0.25
