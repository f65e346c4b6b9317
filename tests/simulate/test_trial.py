"""Trials: what ``simulate`` says, at any pace and speed; a share that is settled early."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from driftwatch.model import Slo
from driftwatch.recommend.simulation import (
    Judged,
    afterwards,
    in_target,
    missed,
    share_simulated,
    simulated,
)
from driftwatch.simulate.configuration import SchedulerConfiguration
from driftwatch.simulate.disturbance import Disturbance
from driftwatch.simulate.engine import Observe, simulate
from driftwatch.simulate.requests import Requests, make_requests
from driftwatch.simulate.step_time import StepTime
from driftwatch.simulate.trial import Run, Trial

LAW = StepTime(0.01, 2e-5, 1e-4, 2e-8)
CASES = {
    "room": SchedulerConfiguration(32, 512, num_gpu_blocks=4000),
    "cap": SchedulerConfiguration(3, 512, num_gpu_blocks=4000),
    "preempted": SchedulerConfiguration(32, 256, num_gpu_blocks=130),
    "preempted, hits itself": SchedulerConfiguration(32, 256, num_gpu_blocks=100),
    "endless": SchedulerConfiguration(16, 256, long_prefill_token_threshold=64),
}


def requests_of(seed: int, *, given: bool = False) -> Requests:
    rng = np.random.default_rng(seed)
    prompt = np.clip(rng.lognormal(4.8, 0.8, 300), 1, 900).astype(int)
    cached = np.minimum(16 * rng.integers(0, 3, 300), prompt - 1) if given else np.zeros(300, int)
    return make_requests(
        np.sort(rng.uniform(0.0, 60.0, 300)),
        prompt,
        np.clip(rng.lognormal(3.7, 0.8, 300), 1, 400).astype(int),
        cached_tokens=cached,
    )


@pytest.mark.parametrize(("name", "pace"), [*((name, 1.0) for name in CASES), ("preempted", 0.25)])
def test_what_is_served_is_what_simulate_says(name: str, pace: float) -> None:
    requests = requests_of(1, given=name == "preempted")
    paced = replace(requests, arrival_seconds=requests.arrival_seconds / pace)
    said = simulate(paced, CASES[name], LAW).requests
    trial = Trial(requests, CASES[name])
    for _ in range(2):  # a run leaves nothing behind
        served = trial.run(LAW, pace=pace)
        for column in ("arrival", "first_scheduled", "first_token", "end"):
            wanted = said[f"{column}_seconds"].to_numpy()
            assert np.array_equal(getattr(served, f"{column}_seconds"), wanted)
        assert np.array_equal(served.finished, (said["status"] == "finished").to_numpy())
        assert np.array_equal(served.preemptions, said["preemptions"].to_numpy())
        assert np.array_equal(served.generation_tokens, said["generated_tokens"].to_numpy())
    assert (said["preemptions"].sum() > 0) == (name.startswith("preempted") and pace == 1.0)


@pytest.mark.parametrize(
    ("name", "slo"),
    [
        *((name, Slo(0.6, 0.03)) for name in CASES),
        *(("cap", slo) for slo in (None, Slo(ttft_seconds=1.5), Slo(tpot_seconds=0.025))),
    ],
    ids=str,
)
def test_a_share_that_is_settled_early_is_the_share_of_the_whole(
    name: str, slo: Slo | None
) -> None:
    requests = requests_of(2)
    judged = Judged(slo, 6.0, 60.0, ttft_overhead_seconds=0.01)
    whole = simulated(requests, CASES[name], LAW, judged)
    early = share_simulated(requests, CASES[name], LAW, judged)
    assert early.in_target_ratio == whole.in_target_ratio
    assert early.e2e_seconds is None


def test_who_has_missed_never_gets_into_the_target() -> None:
    requests, slo = requests_of(3), Slo(0.6, 0.03)
    trial = Trial(requests, CASES["cap"])
    seen: list[tuple[float, int]] = []
    lost = np.zeros(len(requests), dtype=bool)

    def look(served: Run) -> bool:
        nonlocal lost
        now_lost = missed(served, slo)
        assert not (lost & ~now_lost).any()  # once missed, missed for ever
        assert not (now_lost & in_target(served, slo)).any()
        lost = now_lost
        seen.append((served.now_seconds, int(lost.sum())))
        return False

    checks = [10.0, 30.0, *afterwards(requests.arrival_seconds, slo)]
    end = trial.run(LAW, checks=checks, enough=look)
    assert [now for now, _ in seen] == checks
    assert 0 < seen[0][1] <= seen[1][1] < seen[-1][1]
    assert not in_target(end, slo)[lost].any()
    assert np.array_equal(in_target(end, slo), ~missed(end, slo))


def test_a_hopeless_queue_is_not_served_to_its_end() -> None:
    requests, slo = requests_of(4), Slo(0.6)
    trial = Trial(requests, SchedulerConfiguration(2, 512, num_gpu_blocks=4000))
    early = trial.run(
        LAW,
        checks=afterwards(requests.arrival_seconds, slo),
        enough=lambda served: bool((in_target(served, slo) | missed(served, slo)).all()),
    )
    assert early.now_seconds < 70.0
    waiting = int((~early.ended).sum())
    assert waiting > 50
    assert trial.run(LAW).now_seconds == np.inf


STEADY = StepTime(0.009, 6e-5, 6.5e-5, 4e-7)
MODELS = (STEADY, replace(STEADY, c0_seconds=0.02), replace(STEADY, hinge_tokens=128), STEADY)


def steady_requests() -> Requests:
    rng = np.random.default_rng(4)
    return make_requests(
        np.sort(rng.uniform(0, 60, 240)), rng.integers(20, 900, 240), rng.integers(5, 300, 240)
    )


@pytest.mark.parametrize(
    "configuration",
    [
        SchedulerConfiguration(64, 1024, 20_001),
        SchedulerConfiguration(64, 512, 400),  # requests lose their blocks: known one by one
        SchedulerConfiguration(16, 256, None, enable_prefix_caching=False, async_scheduling=False),
    ],
)
def test_it_says_what_simulate_says_under_one_law_after_another(
    configuration: SchedulerConfiguration,
) -> None:
    times = np.arange(0.0, 60.1, 5.0)
    factors = np.linspace(0.8, 1.3, 6)
    at = np.arange(6) * 10.0
    sent = steady_requests()
    trial = Trial(sent, configuration, observe=Observe(times), factor_seconds=at)
    preempted = 0
    for law in MODELS:
        found = trial.run(law, factors=factors, until_seconds=60.0)
        expected = simulate(
            sent,
            configuration,
            law,
            disturbance=Disturbance(factor_seconds=at, factors=factors),
            observe=Observe(times),
            until_seconds=60.0,
        )
        scrapes = expected.scrapes
        assert scrapes is not None
        for name in ("generation_tokens", "steps_observed", "itl_seconds_count", "preemptions"):
            assert found.scraped(name).tolist() == scrapes[name].to_list(), name
        assert found.scraped("itl_seconds_sum").tolist() == scrapes["itl_seconds_sum"].to_list()
        assert found.scraped("running").tolist() == scrapes["running"].to_list()
        assert found.waiting.tolist() == scrapes["waiting_capacity"].to_list()
        first = expected.requests.sort("index")["first_token_seconds"].fill_null(np.inf)
        assert found.first_token_seconds.tolist() == first.to_list()
        preempted += int(found.preemptions.sum())
    assert (preempted > 0) is (configuration.num_gpu_blocks == 400)
