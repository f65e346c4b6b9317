from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from driftwatch.simulate.configuration import SchedulerConfiguration
from driftwatch.simulate.disturbance import Disturbance
from driftwatch.simulate.engine import Observe, simulate
from driftwatch.simulate.repeated import Repeated
from driftwatch.simulate.requests import Requests, make_requests
from driftwatch.simulate.step_time import StepTime

LAW = StepTime(0.009, 6e-5, 6.5e-5, 4e-7)
LAWS = (LAW, replace(LAW, c0_seconds=0.02), replace(LAW, hinge_tokens=128), LAW)


def requests() -> Requests:
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
    sent = requests()
    ready = Repeated(
        sent, configuration, scrape_seconds=times, until_seconds=60.0, factor_seconds=at
    )
    preempted = 0
    for law in LAWS:
        found = ready.run(law, factors)
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
            assert found.counter(name).tolist() == scrapes[name].to_list(), name
        assert found.itl_seconds_sum.tolist() == scrapes["itl_seconds_sum"].to_list()
        assert found.running.tolist() == scrapes["running"].to_list()
        assert found.waiting.tolist() == scrapes["waiting_capacity"].to_list()
        first = expected.requests.sort("index")["first_token_seconds"].fill_null(np.inf)
        assert found.first_token_seconds.tolist() == first.to_list()
        preempted += found.preemptions
    assert (preempted > 0) is (configuration.num_gpu_blocks == 400)


def test_without_factors_every_step_takes_as_long_as_the_law_says() -> None:
    configuration = SchedulerConfiguration(64, 1024, 20_001)
    times = np.array([0.0, 60.0])
    ready = Repeated(
        requests(),
        configuration,
        scrape_seconds=times,
        until_seconds=60.0,
        factor_seconds=np.array([0.0]),
    )
    slow = ready.run(LAW, np.array([2.0])).itl_seconds_sum[-1]
    plain = Repeated(requests(), configuration, scrape_seconds=times, until_seconds=60.0)
    assert ready.run(LAW).itl_seconds_sum[-1] == plain.run(LAW).itl_seconds_sum[-1]
    assert slow > 1.5 * plain.run(LAW).itl_seconds_sum[-1]
