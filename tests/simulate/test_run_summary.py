"""A run in figures: the limit that made requests wait is the one that bound."""

from __future__ import annotations

import numpy as np
import pytest

from driftwatch.lab.run_summary import summarize
from driftwatch.simulate.configuration import SchedulerConfiguration
from driftwatch.simulate.requests import make_requests
from driftwatch.simulate.step_time import StepTime
from driftwatch.simulate.trial import simulate


@pytest.mark.parametrize(
    ("num_gpu_blocks", "prompt_tokens", "limit"),
    [
        (20, 100, "kv_cache"),  # two whole prompts fill the blocks, five the budget
        # the third prompt does not fit the rest of the budget
        (1000, 200, "max_num_batched_tokens"),
    ],
)
def test_the_limit_named_is_the_one_that_bound(
    num_gpu_blocks: int, prompt_tokens: int, limit: str
) -> None:
    count = 60
    requests = make_requests(
        np.zeros(count),
        np.full(count, prompt_tokens),
        np.full(count, 20 if limit != "max_num_batched_tokens" else 1),
    )
    configuration = SchedulerConfiguration(
        64, 500, num_gpu_blocks=num_gpu_blocks, enable_chunked_prefill=False
    )
    law = StepTime(0.01, 1e-5, 0, 0)
    found = simulate(requests, configuration, law, per_step=True)
    waited = summarize(found, requests, configuration).waited_busy_time_ratio
    assert max(waited, key=waited.__getitem__) == limit
    assert waited[limit] > 0.3
