from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import polars as pl
import pytest
from recorded_runs import AT

from driftwatch.errors import NoVerdict
from driftwatch.recommend.calibration.calibrate import (
    calibrate,
    with_bursts,
)
from driftwatch.recommend.calibration.fits import (
    EVEN,
    Arrivals,
    Calibration,
    redrawn,
)
from driftwatch.recommend.calibration.prior import prior_of
from driftwatch.recommend.traffic.observed import CHUNK_SCHEMA, Observed, Server
from driftwatch.simulate.configuration import SchedulerConfiguration
from driftwatch.simulate.engine import Disturbance, Observe
from driftwatch.simulate.kv_cache import capture_sizes
from driftwatch.simulate.requests import Requests, make_requests
from driftwatch.simulate.step_time import StepTime
from driftwatch.simulate.trial import simulate

# CUDA-graph steps, quadratic attention and jitter: a form that no variant has
LAW = StepTime(0.012, 2.4e-5, 3e-5, 6e-8, 0, 3e-10, capture_sizes(64, 2048))
CONFIGURATION = SchedulerConfiguration(64, 2048, 20_001, max_model_len=8192)
SERVER = Server(model="llama-3.1-8b", gpu="H100", tensor_parallel=1)
SECONDS = 600.0
CHUNK = 60.0


def traffic(count: int, seed: int = 2) -> Requests:
    rng = np.random.default_rng(seed)
    # the load swings over the window, as a day's does
    at = np.sort(SECONDS * rng.beta(1.6, 1.2, count))
    prompts = np.clip(rng.lognormal(6.2, 0.9, count), 10, 6000).astype(int)
    return make_requests(at, prompts, np.clip(rng.lognormal(4.6, 0.7, count), 2, 1500).astype(int))


def seen(
    requests: Requests, configuration: SchedulerConfiguration, step_time: StepTime
) -> Observed:
    edges = np.arange(0.0, SECONDS + 1, CHUNK)
    times = np.unique(np.concatenate([edges, np.arange(0.0, SECONDS, 15.0)]))
    run = simulate(
        requests,
        configuration,
        step_time,
        disturbance=Disturbance(jitter_sigma=0.1),
        observe=Observe(times),
        until_seconds=SECONDS,
    )
    scrapes = run.scrapes
    assert scrapes is not None
    at = np.searchsorted(times, edges)
    first = run.requests["first_token_seconds"].fill_null(np.inf).to_numpy()
    ttft = run.requests["ttft_seconds"].fill_null(0.0).to_numpy()
    rows = []
    for k in range(len(edges) - 1):
        low, high = int(at[k]), int(at[k + 1])

        def grown(name: str, low: int = low, high: int = high) -> float:
            return float(scrapes[name][high] - scrapes[name][low])

        came = (first > edges[k]) & (first <= edges[k + 1])
        rows.append(
            {
                "start_seconds": edges[k],
                "end_seconds": edges[k + 1],
                "generation_tokens_per_second": grown("generation_tokens") / CHUNK,
                "itl_seconds": grown("itl_seconds_sum") / grown("itl_seconds_count"),
                "steps_per_generation_token": grown("steps_observed") / grown("generation_tokens"),
                "ttft_seconds": float(ttft[came].mean()),
                "running_requests": scrapes["running"][low + 1 : high + 1].mean(),
                "waiting_requests": scrapes["waiting_capacity"][low + 1 : high + 1].mean(),
                "kv_cache_usage_ratio": scrapes["kv_cache_usage_ratio"][low + 1 : high + 1].mean(),
            }
        )
    chunks = pl.DataFrame(rows, schema=CHUNK_SCHEMA)
    return Observed(
        AT,
        SECONDS,
        redrawn(requests, np.random.default_rng(8)),
        "metrics",
        chunks,
        10,
        float((chunks["waiting_requests"] > 0.5).mean()) > 0.5,  # type: ignore[arg-type]
    )


@cache
def window() -> Observed:
    return seen(traffic(1500), CONFIGURATION, LAW)


@cache
def found() -> Calibration:
    prior = prior_of(SERVER, window(), CONFIGURATION)
    return calibrate(window(), CONFIGURATION, prior, at=AT)


def mean_itl(
    requests: Requests, configuration: SchedulerConfiguration, step_time: StepTime
) -> float:
    ends = np.array([0.0, SECONDS])
    run = simulate(requests, configuration, step_time, observe=Observe(ends), until_seconds=SECONDS)
    last = run.scrapes.tail(1)
    return float(last["itl_seconds_sum"][0] / last["itl_seconds_count"][0])


def test_todays_replay_gives_what_was_observed() -> None:
    best = found().best
    assert found().identifiable, found().why_not
    assert abs(best.residuals["generation_tokens_per_second"]) < 0.02
    assert abs(best.residuals["itl_seconds"]) < 0.03
    assert abs(best.residuals["ttft_seconds"]) < 0.08
    assert best.loss < 2.0
    least = min(fit.loss for fit in found().fits)
    assert best.loss - least < 0.1  # variants that the data do not tell apart keep their order


@pytest.mark.parametrize(("seqs", "budget"), [(16, 2048), (64, 512), (256, 8192)])
def test_other_settings_are_forecast_though_no_variant_has_the_form(seqs: int, budget: int) -> None:
    other = replace(CONFIGURATION, max_num_seqs=seqs, max_num_batched_tokens=budget)
    truth = mean_itl(traffic(1500), other, LAW)
    for fit in found().fits:
        assert mean_itl(window().requests, other, fit.step_time) == pytest.approx(truth, rel=0.07)


def test_the_same_window_gives_the_same() -> None:
    prior = prior_of(SERVER, window(), CONFIGURATION)
    again = calibrate(window(), CONFIGURATION, prior, at=AT)
    assert again == found()


@pytest.mark.slow
def test_a_model_that_no_table_knows_is_fitted_from_the_window_alone() -> None:
    server = replace(SERVER, model="acme/unheard-of")
    prior = prior_of(server, window(), CONFIGURATION)
    made = calibrate(window(), CONFIGURATION, prior, at=AT)
    assert not made.prior_known
    assert "acme/unheard-of" in made.prior
    other = replace(CONFIGURATION, max_num_seqs=16)
    truth = mean_itl(traffic(1500), other, LAW)
    said = mean_itl(window().requests, other, made.best.step_time)
    assert said == pytest.approx(truth, rel=0.12)


def test_a_saturated_window_is_fitted_without_ttft_unless_a_log_gives_the_arrivals() -> None:
    small = replace(CONFIGURATION, max_num_seqs=4)
    observed = seen(traffic(1500), small, LAW)
    assert observed.saturated
    prior = prior_of(SERVER, observed, small)
    made = calibrate(observed, small, prior, at=AT)
    assert made.saturated
    for fit in made.fits:
        assert "ttft_seconds" not in fit.residuals
        assert abs(fit.residuals["itl_seconds"]) < 0.05
    logged = replace(observed, source="request log", requests=traffic(1500))
    made = calibrate(logged, small, prior, at=AT)
    assert abs(made.best.residuals["ttft_seconds"]) < 0.05


def test_another_block_count_than_the_servers_is_refused() -> None:
    tight = replace(CONFIGURATION, num_gpu_blocks=1200)
    observed = replace(seen(traffic(1500), tight, LAW), source="request log")
    observed = replace(observed, requests=traffic(1500))
    halved = replace(tight, num_gpu_blocks=600)
    made = calibrate(observed, halved, prior_of(SERVER, observed, halved), at=AT)
    assert not made.identifiable
    assert made.why_not is not None
    assert "contradicts the settings or the number of KV blocks" in made.why_not


def test_a_window_with_nothing_to_compare_is_no_verdict() -> None:
    empty = replace(
        window(),
        chunks=window().chunks.with_columns(
            pl.lit(None, dtype=pl.Float64).alias(name)
            for name in window().chunks.columns
            if not name.endswith(("start_seconds", "end_seconds"))
        ),
    )
    prior = prior_of(SERVER, window(), CONFIGURATION)
    for one in (
        empty,
        replace(window(), chunks=window().chunks.clear()),
        replace(window(), requests=window().requests.take(slice(0, 0))),
    ):
        with pytest.raises(NoVerdict, match="nothing that a simulation could be compared with"):
            calibrate(one, CONFIGURATION, prior, at=AT)


@pytest.mark.slow
def test_a_batch_that_never_changed_on_unknown_hardware_says_nothing_of_a_larger_one() -> None:
    small = replace(CONFIGURATION, max_num_seqs=8)
    at = np.sort(np.random.default_rng(1).uniform(0.01, 300, 6000))
    even = make_requests(at, np.full(6000, 200), np.full(6000, 200))
    observed = seen(even, small, LAW)
    made = calibrate(observed, small, prior_of(Server(), observed, small), at=AT)
    assert not made.identifiable
    assert "a step with twice today's batch is known to ±" in str(made.why_not)
    datasheet = calibrate(observed, small, prior_of(SERVER, observed, small), at=AT)
    assert datasheet.identifiable, datasheet.why_not


@pytest.mark.slow
def test_requests_that_come_in_bursts_are_told_from_a_slow_engine() -> None:
    rng = np.random.default_rng(3)
    burst = redrawn(traffic(1500), rng, Arrivals(gap_cv=6.0))
    small = replace(CONFIGURATION, max_num_seqs=24)
    observed = seen(burst, small, LAW)
    made = calibrate(observed, small, prior_of(SERVER, observed, small), at=AT)
    assert made.arrivals != EVEN
    other = replace(small, max_num_seqs=64)
    said = mean_itl(with_bursts(observed, made.arrivals).requests, other, made.best.step_time)
    assert said == pytest.approx(mean_itl(burst, other, LAW), rel=0.12)
    assert with_bursts(window(), found().arrivals) is window()
