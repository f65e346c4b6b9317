"""What an outcome says of KV blocks: vLLM's usage, and nothing where they never bind."""

from __future__ import annotations

import numpy as np
import pytest

from driftwatch.simulate.configuration import SchedulerConfiguration
from driftwatch.simulate.engine import Observe, simulate
from driftwatch.simulate.outcome import Outcome
from driftwatch.simulate.requests import make_requests
from driftwatch.simulate.step_time import StepTime


def run(num_gpu_blocks: int | None) -> Outcome:
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
        compiled=False,
    )


def test_usage_is_of_the_blocks_without_the_null_block() -> None:
    """usage = 1 - free/(blocks - 1) (vLLM ``block_pool.py``): 3 of 9, not of 10."""
    outcome = run(10)
    assert outcome.scrapes is not None and outcome.steps is not None
    assert outcome.scrapes["kv_cache_usage_ratio"].item() == pytest.approx(3 / 9)
    assert outcome.steps["free_blocks"][0] == 6


def test_blocks_that_never_bind_are_not_counted() -> None:
    outcome = run(None)
    assert outcome.scrapes is not None and outcome.steps is not None
    assert outcome.scrapes["kv_cache_usage_ratio"].item() is None
    assert outcome.steps["free_blocks"].null_count() == len(outcome.steps)
