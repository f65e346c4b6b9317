"""Trials: nothing is left behind, at any pace; a run that stops early."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from driftwatch.simulate.configuration import SchedulerConfiguration
from driftwatch.simulate.engine import Observe
from driftwatch.simulate.outcome import Run
from driftwatch.simulate.requests import Requests, make_requests
from driftwatch.simulate.step_time import StepTime
from driftwatch.simulate.trial import Trial, simulate

LAW = StepTime(0.009, 6e-5, 6.5e-5, 4e-7)
LAWS = (LAW, replace(LAW, c0_seconds=0.02), replace(LAW, hinge_tokens=128), LAW)
TIMES = np.arange(0.0, 60.1, 5.0)


def requests_of(*, given: bool = False) -> Requests:
    rng = np.random.default_rng(4)
    prompt = rng.integers(20, 900, 240)
    cached = np.minimum(16 * rng.integers(0, 3, 240), prompt - 1) if given else None
    return make_requests(
        np.sort(rng.uniform(0, 60, 240)), prompt, rng.integers(5, 300, 240), cached_tokens=cached
    )


@pytest.mark.parametrize("given", [False, True])
@pytest.mark.parametrize(
    "configuration",
    [
        SchedulerConfiguration(64, 1024, 20_001),
        SchedulerConfiguration(64, 512, 400),  # requests lose their blocks
        SchedulerConfiguration(16, 256, None, enable_prefix_caching=False, async_scheduling=False),
    ],
)
def test_a_run_is_that_of_a_fresh_engine_at_that_pace(
    configuration: SchedulerConfiguration, given: bool
) -> None:
    sent, pace = requests_of(given=given), 1.25
    paced = replace(sent, arrival_seconds=sent.arrival_seconds / pace)
    observe = Observe(TIMES, (0.01, 0.05), (64.0,))
    trial = Trial(sent, configuration, observe=observe)
    for law in LAWS:
        found = trial.run(law, pace=pace, until_seconds=60.0)
        expected = simulate(paced, configuration, law, observe=observe, until_seconds=60.0)
        assert found.requests.equals(expected.requests)
        assert found.scrapes.equals(expected.scrapes)
        assert found.summary == expected.summary
    assert bool(found.preemptions.any()) is (configuration.num_gpu_blocks == 400)


def test_a_hopeless_queue_is_not_served_to_its_end() -> None:
    trial = Trial(requests_of(), SchedulerConfiguration(2, 512, num_gpu_blocks=4000))
    asked: list[float] = []

    def enough(run: Run) -> bool:
        asked.append(run.now_seconds)
        return int(run.ended.sum()) >= 5

    early = trial.run(LAW, checks=[5.0, 20.0, 40.0, 50.0], enough=enough)
    assert early.now_seconds == asked[-1] < 50.0
    assert 5 <= early.ended.sum() < 100
    assert early.requests["status"].to_list().count("unfinished") == (~early.ended).sum()
    assert trial.run(LAW).now_seconds == np.inf


def run(num_gpu_blocks: int | None) -> Run:
    """One request of 40 + 20 tokens in blocks of 16, a step a second, scraped after the second."""
    return simulate(
        make_requests([0.0], [40], [20]),
        SchedulerConfiguration(
            max_num_seqs=4,
            max_num_batched_tokens=64,
            num_gpu_blocks=num_gpu_blocks,
            enable_prefix_caching=False,
            async_scheduling=False,
        ),
        StepTime(1.0, 0.0, 0.0, 0.0),
        observe=Observe(np.array([2.5]), (1.0,), (1.0,)),
        per_step=True,
    )


def test_usage_is_of_the_blocks_without_the_null_block() -> None:
    """usage = 1 - free/(blocks - 1) (vLLM ``block_pool.py``): 3 of 9, not of 10."""
    outcome = run(10)
    assert outcome.scrapes["kv_cache_usage_ratio"].item() == pytest.approx(3 / 9)
    assert outcome.steps["free_blocks"][0] == 6


def test_who_comes_during_a_step_does_not_wait_for_room() -> None:
    """vLLM reads its input between steps: `num_requests_waiting` counts who was not admitted.

    Of a recorded server below its limits (vllm-0.32/run_slow) all 413 scrapes read 0.
    """
    half_past = np.arange(1.5, 60.0)  # between two steps of a second
    outcome = simulate(
        make_requests([0.0, *(half_past - 0.1)], [8] * 60, [3] * 60),
        SchedulerConfiguration(max_num_seqs=8, max_num_batched_tokens=64, async_scheduling=False),
        StepTime(1.0, 0.0, 0.0, 0.0),
        observe=Observe(np.sort(np.concatenate([half_past, half_past + 0.5])), (1.0,), (1.0,)),
    )
    assert outcome.scrapes["running"].max() == 2  # the third has its last token
    assert outcome.scrapes["waiting_capacity"].to_list() == [0] * (2 * len(half_past))


@pytest.mark.parametrize("overlapped", [False, True])
def test_a_queue_that_gave_up_is_gone_from_the_gauge(overlapped: bool) -> None:
    """The last who wait give up during the last step: vLLM's gauge reads 0."""
    outcome = simulate(
        make_requests([0.0] * 6, [8] * 6, [40] * 6),
        SchedulerConfiguration(
            max_num_seqs=2, max_num_batched_tokens=64, async_scheduling=overlapped
        ),
        StepTime(1.0, 0.0, 0.0, 0.0),
        timeout_seconds=9.5,
        observe=Observe(np.array([5.5, 20.0]), (1.0,), (1.0,)),
    )
    assert outcome.scrapes["running"].to_list() == [2, 0]
    assert outcome.scrapes["waiting_capacity"].to_list() == [4, 0]
