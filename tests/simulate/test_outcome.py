"""What an outcome says of KV blocks: vLLM's usage, and nothing where they never bind."""

from __future__ import annotations

import numpy as np
import pytest

from driftwatch.simulate.configuration import SchedulerConfiguration
from driftwatch.simulate.engine import Observe
from driftwatch.simulate.requests import make_requests
from driftwatch.simulate.step_time import StepTime
from driftwatch.simulate.trial import Run, simulate


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
