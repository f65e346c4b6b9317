"""Kernel and reference, in one go and in pieces: the same to the byte."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from comparison import LAW, compare, draw_case, draw_configuration
from golden_cases import conversation_hour
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from driftwatch.errors import ImpossibleConfiguration, NoVerdict
from driftwatch.simulate.configuration import SchedulerConfiguration
from driftwatch.simulate.disturbance import Disturbance
from driftwatch.simulate.engine import Engine, Observe, simulate
from driftwatch.simulate.requests import Requests, make_requests
from driftwatch.simulate.state import Options
from driftwatch.simulate.step_time import StepTime

ROUGH = Disturbance(
    jitter_sigma=0.15,
    factor_seconds=np.array([100.0, 300.0]),
    factors=np.array([1.25, 0.9]),
    stall_seconds=np.array([50.0, 51.0, 200.0]),
    stall_durations_seconds=np.array([2.0, 0.5, 10.0]),
)
SOON = replace(
    ROUGH,
    factor_seconds=ROUGH.factor_seconds / 10,
    stall_seconds=ROUGH.stall_seconds / 10,
    stall_durations_seconds=ROUGH.stall_durations_seconds / 10,
)
LAWS = StepTime(0.008, 5e-5, 6e-5, 3e-7, hinge_tokens=200, c4_seconds_per_prefill_pair=1e-9)


@settings(
    max_examples=25,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)
@given(st.integers(0, 1_000_000))
@example(41)  # a second token that is the last: its block is known one step later
@example(120)  # goes on decoding through a step done one by one, then its client gives up
@example(5002611)  # preempted with its last token in flight, then its client gives up
@example(2906)  # stuck unless a request hits what it left itself
def test_reference_and_kernel_agree(seed: int) -> None:
    case = draw_case(seed)
    if case is not None:
        compare(case)


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


def test_in_pieces_as_in_one_go(hour: Requests) -> None:
    configuration = SchedulerConfiguration(48, 512, 1500)
    times = np.arange(0.0, 900.0, 17.0)
    edges = {"itl_edges": (0.01, 0.05), "iteration_tokens_edges": (16.0,)}
    whole = simulate(
        hour, configuration, LAWS, disturbance=ROUGH, seed=9,
        observe=Observe(times, **edges),
    )  # fmt: skip
    engine = Engine(configuration, LAWS, Options(disturbance=ROUGH, seed=9, **edges))
    pieces, scrapes = [], []
    for end in [130.0, 260.0, 390.0, np.inf]:
        start = engine._until if np.isfinite(engine._until) else -1.0
        engine.offer(hour.take((hour.arrival_seconds > start) & (hour.arrival_seconds <= end)))
        outcome = engine.advance(end, times[(times > start) & (times <= end)])
        pieces.append(outcome.requests)
        assert outcome.scrapes is not None
        scrapes.append(outcome.scrapes)
    assert pl.concat(pieces).sort("index").equals(whole.requests)
    assert whole.scrapes is not None
    assert pl.concat(scrapes).equals(whole.scrapes)


@pytest.mark.parametrize(
    ("asynchronous", "blocks", "caching", "per_step", "even"),
    [
        (True, None, True, True, False),
        (False, 900, True, True, False),
        (False, 900, False, True, True),
    ],
)
def test_steps_that_only_decode_are_steps_like_all_others(
    hour: Requests,
    asynchronous: bool,
    blocks: int | None,
    caching: bool,
    per_step: bool,
    even: bool,
) -> None:
    """Run from the end of one step to the end of the next, the loop over them is never entered.

    With all that disturbs, or (even) with arrivals and scrapes on the very ends of steps.
    """
    requests = hour.take(slice(0, 50))
    law = replace(LAWS, capture_sizes=(1, 2, 4, 8, 24))
    times = np.arange(0.0, 200.0, 0.7)
    if even:
        law = StepTime(2.0**-6, 0.0, 0.0, 0.0)
        times = np.arange(0.0, 200.0, 2.0**-2)
        on_ends = np.round(requests.arrival_seconds * 64) / 64
        requests = replace(requests, arrival_seconds=on_ends)
    configuration = SchedulerConfiguration(
        20,
        256,
        blocks,
        async_scheduling=asynchronous,
        max_num_active_seqs=14,
        enable_prefix_caching=caching,
    )
    options = Options(
        disturbance=None if even else SOON,
        seed=3,
        timeout_seconds=30.0,
        itl_edges=(0.009, 0.0095, 0.01, 0.02),
        iteration_tokens_edges=(4.0, 9.0, 64.0),
        per_step=per_step,
    )

    def run(ends: list[float]) -> tuple[dict[str, float | int], *tuple[pl.DataFrame, ...]]:
        engine = Engine(configuration, law, options)
        engine.offer(requests)
        pieces, before = [], -1.0
        for end in ends:
            pieces.append(engine.advance(end, times[(times > before) & (times <= end)]))
            before = end
        frames = [pl.concat([piece.requests for piece in pieces]).sort("index")]
        for name in ("scrapes", *(("steps",) if per_step else ())):
            frames.append(pl.concat([getattr(piece, name) for piece in pieces]))
        return pieces[-1].summary, *frames

    each = simulate(
        requests, configuration, law, disturbance=options.disturbance, seed=3,
        timeout_seconds=30.0, per_step=True,
    ).steps  # fmt: skip
    assert each is not None
    assert (each["prefill_tokens"] == 0).mean() > 0.25
    summary, *frames = run([*each["end_seconds"].to_list(), np.inf])
    expected, *wanted = run([np.inf])
    assert summary == expected
    for frame, whole in zip(frames, wanted, strict=True):
        assert frame.equals(whole)


@pytest.mark.parametrize(
    ("configuration", "prompt", "said"),
    [
        (SchedulerConfiguration(4, 64, 3), 100, "2 of 3 requests never fit in the KV cache"),
        (SchedulerConfiguration(4, 64, max_model_len=50), 100, "the first is request 1"),
        (SchedulerConfiguration(4, 64, enable_chunked_prefill=False), 100, "chunked prefill"),
        (SchedulerConfiguration(8, 4), 1, "below max_num_seqs"),
    ],
)
def test_what_can_never_be_served_is_refused(
    configuration: SchedulerConfiguration, prompt: int, said: str
) -> None:
    requests = make_requests([0.0, 1.0, 2.0], [1, prompt, prompt], [5, 5, 5])
    with pytest.raises(ImpossibleConfiguration, match=said):
        simulate(requests, configuration, LAW)


def test_requests_that_preempt_each_other_for_ever_are_no_progress() -> None:
    """Of one priority and arrival the first of the list gives way: each in its turn."""
    rng = np.random.default_rng(535)
    configuration = draw_configuration(rng)
    count = int(rng.integers(25, 120))
    gaps = rng.exponential(rng.choice([0.002, 0.02, 0.1]), count)
    gaps[rng.random(count) < 0.2] = 0
    gaps[rng.random(count) < 0.05] += 1
    arrival = np.cumsum(gaps) - gaps[0] * (rng.random() < 0.5)
    requests = make_requests(
        arrival,
        rng.integers(1, rng.choice([8, 40, 60]), count),
        rng.integers(1, rng.choice([3, 15, 40]), count),
        priority=rng.integers(0, 3, count),
    )
    engine = Engine(configuration, LAW, identify_blocks=False)
    engine.offer(requests)
    with pytest.raises(NoVerdict, match="preempt each other, none ends"):
        engine.advance(200.0)
    # whoever hits what it left itself gets through
    ended = simulate(requests, configuration, LAW, until_seconds=200.0)
    assert set(ended.requests["status"]) == {"finished", "rejected"}
