"""The classic batchers: against a walk token by token, each other, and real lengths."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from driftwatch.lab.batchers import (
    CONTINUOUS,
    FOREVER,
    POLICIES,
    run_batches,
    serve,
)
from driftwatch.simulate.configuration import SchedulerConfiguration
from driftwatch.simulate.requests import Requests, make_requests
from driftwatch.simulate.step_time import StepTime
from driftwatch.simulate.workload.requests_file import read_requests

STEP_TIME = StepTime(0.008, 4e-5, 3e-5, 2e-8, hinge_tokens=16, c4_seconds_per_prefill_pair=1e-9)
FLAT = StepTime(1.0, 0.0, 0.0, 0.0)  # a second a step, whatever is in it


def azure(shared_data: Path, count: int) -> Requests:
    return read_requests(shared_data / "traces/azure_2023_conv.csv.gz", limit=count)


@settings(max_examples=40, deadline=None)
@given(lengths=st.lists(st.tuples(st.integers(1, 400), st.integers(1, 60)), min_size=1, max_size=9))
def test_one_batch_token_by_token(lengths: list[tuple[int, int]]) -> None:
    prompts, generations = ([pair[i] for pair in lengths] for i in (0, 1))
    requests = make_requests(np.linspace(0, 1, len(lengths)), prompts, generations)
    found = run_batches(requests, STEP_TIME, len(lengths), FOREVER)
    count, longest = len(lengths), max(prompts)
    now = float(requests.arrival_seconds[-1])
    now += STEP_TIME.seconds(count * longest, 0, 0, count * longest * (longest + 1) / 2)
    for step in range(1, max(generations)):
        now += STEP_TIME.seconds(0, count, count * (longest + step))
    np.testing.assert_allclose(found.end_seconds, [now] * count, rtol=1e-12)
    assert found.batch_efficiency_ratio == pytest.approx(
        sum(generations) / (count * max(generations))
    )
    assert found.prompt_padding_waste_ratio == pytest.approx(1 - sum(prompts) / (count * longest))


def test_when_batches_start() -> None:
    arrival = [0.0, 0.1, 0.2, 5.0, 5.3, 20.0]
    requests = make_requests(arrival, [10] * 6, [2, 1, 1, 1, 1, 1])

    def ends(size: int, wait: float) -> list[float]:
        return run_batches(requests, FLAT, size, wait).end_seconds.tolist()

    # each when its second member has come
    assert ends(2, FOREVER) == [2.1, 2.1, 6.0, 6.0, 21.0, 21.0]
    # 0 s: the first waited its half second, takes the others along; the rest wait alike
    assert ends(4, 0.5) == [2.5, 2.5, 2.5, 6.5, 6.5, 21.5]
    assert ends(4, 0.0) == [2.0, 3.0, 3.0, 6.0, 7.0, 21.0]


@pytest.mark.parametrize("policy", POLICIES)
def test_real_lengths_are_all_served_in_order_of_their_times(
    policy: str, shared_data: Path
) -> None:
    requests = azure(shared_data, 400)
    found = serve(policy, requests, STEP_TIME, SchedulerConfiguration(16, 8192))
    assert found.finished.all()
    assert (found.generated_tokens == requests.generation_tokens).all()
    times = (requests.arrival_seconds, found.first_token_seconds, found.end_seconds)
    assert all((b >= a - 1e-9).all() for a, b in itertools.pairwise(times))


def test_a_scheduler_that_rejects_leaves_them_unfinished() -> None:
    requests = make_requests(np.zeros(6), [10] * 6, [5] * 6)
    few = SchedulerConfiguration(1, 512, max_num_queued_reqs=2)
    found = serve(CONTINUOUS, requests, FLAT, few)
    assert found.finished.sum() == 2
    assert np.isnan(found.first_token_seconds[~found.finished]).all()
