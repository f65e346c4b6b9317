"""The kernel in one go, in pieces and again and again: the same to the byte."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from golden_cases import conversation_hour

from driftwatch.errors import ImpossibleConfiguration, NoVerdict
from driftwatch.simulate.configuration import SchedulerConfiguration
from driftwatch.simulate.engine import Disturbance, Observe, Options
from driftwatch.simulate.requests import Requests, make_requests
from driftwatch.simulate.step_time import StepTime
from driftwatch.simulate.trial import Engine, simulate

ROUGH = Disturbance(
    jitter_sigma=0.15,
    factor_seconds=np.array([100.0, 300.0]),
    factors=np.array([1.25, 0.9]),
    stall_seconds=np.array([50.0, 51.0, 200.0]),
    stall_durations_seconds=np.array([2.0, 0.5, 10.0]),
)
LAWS = StepTime(0.008, 5e-5, 6e-5, 3e-7, hinge_tokens=200, c4_seconds_per_prefill_pair=1e-9)


@pytest.fixture(scope="module")
def hour(shared_data: Path) -> Requests:
    arrival, prompt, generation = conversation_hour(shared_data)
    count = 2000
    return make_requests(
        arrival[:count],
        prompt[:count],
        generation[:count],
        prefix_group=np.arange(count) % 7 - 1,
        shared_prefix_tokens=np.where(np.arange(count) % 7 == 0, 0, 400),
        priority=np.arange(count) % 3,
    )


@pytest.mark.parametrize("policy", ["fcfs", "priority"])
def test_in_pieces_as_in_one_go(hour: Requests, policy: str) -> None:
    configuration = SchedulerConfiguration(48, 512, 1500, scheduling_policy=policy)
    sent = replace(hour, cached_tokens=np.minimum(hour.prompt_tokens // 32 * 16, 400))
    times = np.arange(0.0, 900.0, 17.0)
    edges = {"itl_edges": (0.01, 0.05), "iteration_tokens_edges": (16.0,)}
    more = {"disturbance": ROUGH, "seed": 9, "timeout_seconds": 40.0}
    whole = simulate(sent, configuration, LAWS, observe=Observe(times, **edges), **more)
    assert whole.preemptions.sum() > 20
    assert set(whole.requests["status"]) == {"finished", "timed_out"}
    engine = Engine(configuration, LAWS, Options(Observe(**edges), **more))
    pieces, scrapes, start = [], [], -1.0
    for end in [130.0, 260.0, 390.0, np.inf]:
        engine.offer(sent.take((sent.arrival_seconds > start) & (sent.arrival_seconds <= end)))
        ran = engine.advance(end, times[(times > start) & (times <= end)])
        pieces.append(ran.requests.filter(pl.col("status") != "unfinished"))
        scrapes.append(ran.scrapes)
        start = end
    assert pl.concat(pieces).sort("index").equals(whole.requests)
    assert pl.concat(scrapes).equals(whole.scrapes)


@pytest.mark.parametrize(
    ("configuration", "prompt", "said"),
    [
        (SchedulerConfiguration(4, 64, 3), 100, "2 of 3 requests never fit in the KV cache"),
        (SchedulerConfiguration(4, 64, max_model_len=50), 100, "the first is request 1"),
        (SchedulerConfiguration(4, 64, enable_chunked_prefill=False), 100, "chunked prefill"),
        (SchedulerConfiguration(8, 4), 1, "below max_num_seqs"),
        (SchedulerConfiguration(4, 64), 1, "2 of 3 requests share prefixes: hits depend on"),
    ],
)
def test_what_can_never_be_served_is_refused(
    configuration: SchedulerConfiguration, prompt: int, said: str
) -> None:
    requests = make_requests(
        [0.0, 1.0, 2.0], [1, prompt, prompt], [5, 5, 5], prefix_group=[-1, 7, 7]
    )
    with pytest.raises(ImpossibleConfiguration, match=said):
        simulate(requests, configuration, LAWS)


def test_requests_that_preempt_each_other_for_ever_are_no_progress() -> None:
    """Of one priority the first of the list gives way: each in its turn."""
    configuration = SchedulerConfiguration(
        11,
        11,
        num_gpu_blocks=23,
        block_size=2,
        max_model_len=36,
        long_prefill_token_threshold=7,
        scheduler_reserve_full_isl=False,
        scheduling_policy="priority",
        async_scheduling=False,
    )
    requests = make_requests(
        [0.0, 0.0, 0.015, 0.057, 0.168],
        [25, 26, 13, 17, 3],
        [6, 14, 5, 9, 1],
        priority=[0, 0, 1, 0, 1],
    )
    engine = Engine(configuration, LAWS, Options())
    engine.offer(requests)
    with pytest.raises(NoVerdict, match="preempt each other without end"):
        engine.advance(200.0, np.zeros(0))
    # whoever hits what it left itself gets through
    ended = simulate(requests, configuration, LAWS, until_seconds=200.0)
    assert set(ended.requests["status"]) == {"finished"}
