from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from recorded_runs import (
    AT,
    cpu_server,
    first_half,
    gpu_run,
    phases,
    rows_between,
    seen_in,
)

from driftwatch.recommend.calibration.calibrate import calibrate
from driftwatch.recommend.calibration.prior import prior_of
from driftwatch.recommend.scenarios import configurations_of
from driftwatch.recommend.traffic.from_minutes import observed_from_minutes
from driftwatch.simulate.engine import Observe
from driftwatch.simulate.trial import simulate


@pytest.mark.parametrize(
    ("name", "num_gpu_blocks"),
    [("RTX4090_Llama-3.1-8B", 2588), ("RTXPRO6000_Llama-3.1-8B", None)],
)
def test_a_real_gpus_second_half_follows_from_its_first(
    shared_data: Path, name: str, num_gpu_blocks: int | None
) -> None:
    run = gpu_run(shared_data, name)
    configuration = run.configuration(num_gpu_blocks)
    observed = first_half(run)
    prior = prior_of(run.server, observed, configuration)
    assert prior.is_known
    found = calibrate(observed, configuration, prior, at=AT)
    assert found.identifiable, found.why_not
    later = run.rows["last_token_ts"].to_numpy() > run.half
    seen = (run.rows["last_token_ts"] - run.rows["queued_ts"]).to_numpy()
    for fit in found.fits:
        said = (
            simulate(run.requests, configuration, fit.step_time).requests["e2e_seconds"].to_numpy()
        )
        assert float(np.median(np.abs(said - seen)[later] / seen[later])) <= 0.03


@pytest.mark.slow
def test_half_of_a_real_gpus_blocks_contradicts_what_it_did(shared_data: Path) -> None:
    run = gpu_run(shared_data, "RTX4090_Llama-3.1-8B")
    configuration = run.configuration(2588 // 2)
    observed = first_half(run)
    found = calibrate(observed, configuration, prior_of(run.server, observed, configuration), at=AT)
    assert not found.identifiable
    assert "contradicts the settings or the number of KV blocks" in str(found.why_not)


@pytest.mark.slow
def test_run_caps_first_half_forecasts_the_server_with_64(shared_data: Path) -> None:
    folder = shared_data / "vllm-0.32" / "run_cap"
    spans = phases(folder)
    before = rows_between(folder, spans["cap8_light"][0] + 2, spans["cap8_light_after"][1])
    after = rows_between(folder, spans["cap64_light"][0] + 2, spans["cap64_light_after"][1])
    server = cpu_server(8)
    observed = observed_from_minutes(before, server)
    configuration = configurations_of(server, observed).configurations[0]
    prior = prior_of(server, observed, configuration)
    assert not prior.is_known
    found = calibrate(observed, configuration, prior, at=before["end"][-1])
    assert found.wander_log_sd > 0.03  # other jobs on the machine
    today, truth = seen_in(before), seen_in(after)
    times = np.array([0.0, observed.seconds])
    for fit in found.fits:
        run = simulate(
            observed.requests,
            replace(configuration, max_num_seqs=64),
            fit.step_time,
            observe=Observe(times),
            until_seconds=observed.seconds,
        )
        last = run.scrapes.tail(1)
        itl = last["itl_seconds_sum"][0] / last["itl_seconds_count"][0]
        steps = last["steps_observed"][0] / observed.seconds
        ttft = run.requests.filter(pl.col("arrival_seconds") > 0)["ttft_seconds"].mean()
        assert itl == pytest.approx(truth.itl, rel=0.15)
        assert steps == pytest.approx(truth.steps, rel=0.1)
        assert itl > today.itl  # more run together
        assert ttft < 0.1 * today.ttft  # and nobody waits
