"""The classic batchers: against a walk token by token, each other, and real lengths."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from batcher_cases import (
    SPLIT,
    STATIC,
    STEP_TIME,
    azure,
    column,
    run_cohorts,
    run_continuous,
    run_split,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from driftwatch.lab.batchers.clock import step_seconds
from driftwatch.lab.batchers.cohort import CohortPolicy
from driftwatch.lab.batchers.mixes import Mix, lognormal_lengths
from driftwatch.lab.batchers.split import SplitPolicy
from driftwatch.simulate.configuration import SchedulerConfiguration
from driftwatch.simulate.requests import make_requests
from driftwatch.simulate.step_time import StepTime


@settings(deadline=None)
@given(
    prefill=st.integers(0, 5000),
    decode=st.integers(0, 40),
    kv=st.integers(0, 10**6),
    pairs=st.integers(0, 10**7),
)
def test_the_law_over_arrays_is_the_law(prefill: int, decode: int, kv: int, pairs: int) -> None:
    law = replace(STEP_TIME, capture_sizes=(1, 2, 4, 8, 16, 24))
    assert float(step_seconds(law, prefill, decode, kv, pairs)) == law.seconds(
        prefill, decode, kv, pairs
    )


def walk(
    prompts: list[int], generations: list[int], start: float, law: StepTime, pad: bool
) -> list[float]:
    """Each member's last token, one token after the other."""
    longest = max(prompts)
    lengths = [longest] * len(prompts) if pad else prompts
    now = start + law.seconds(sum(lengths), 0, 0, sum(n * (n + 1) / 2 for n in lengths))
    made = [1] * len(prompts)
    ends = [now if g == 1 else np.nan for g in generations]
    while any(m < g for m, g in zip(made, generations, strict=True)):
        runs = [pad or m < g for m, g in zip(made, generations, strict=True)]
        steps = max(made)
        context = sum(n + steps for n, r in zip(lengths, runs, strict=True) if r)
        now += law.seconds(0, sum(runs), context)
        for i, g in enumerate(generations):
            if made[i] < g:
                made[i] += 1
                ends[i] = now if made[i] == g else np.nan
    return ends


@settings(max_examples=60, deadline=None)
@given(
    lengths=st.lists(st.tuples(st.integers(1, 400), st.integers(1, 60)), min_size=1, max_size=9),
    pad=st.booleans(),
    hold=st.booleans(),
)
def test_one_batch_token_by_token(lengths: list[tuple[int, int]], pad: bool, hold: bool) -> None:
    prompts, generations = ([pair[i] for pair in lengths] for i in (0, 1))
    requests = make_requests(np.linspace(0, 1, len(lengths)), prompts, generations)
    found = run_cohorts(requests, STEP_TIME, CohortPolicy(len(lengths), pad=pad, hold=hold))
    start = float(requests.arrival_seconds[-1])
    ends = walk(prompts, generations, start, STEP_TIME, pad)
    if hold:
        ends = [max(ends)] * len(ends)
    np.testing.assert_allclose(column(found, "end_seconds"), ends, rtol=1e-12)
    assert found.steps == max(generations)
    assert found.batch_efficiency_ratio == pytest.approx(
        sum(generations) / (len(generations) * max(generations))
    )


def test_when_batches_start() -> None:
    flat = StepTime(1.0, 0.0, 0.0, 0.0)  # a second a step, whatever is in it
    arrival = [0.0, 0.1, 0.2, 5.0, 5.3, 20.0]
    requests = make_requests(arrival, [10] * 6, [2, 1, 1, 1, 1, 1])

    def starts(policy: CohortPolicy) -> list[float]:
        found = run_cohorts(requests, flat, policy)
        assert found.batches is not None
        return found.batches["start_seconds"].to_list()

    assert starts(CohortPolicy(2)) == [0.1, 5.0, 20.0]  # each when its second member has come
    # 0 s: the first waited its half second, takes the others along; the rest wait alike
    assert starts(CohortPolicy(4, 0.5)) == [0.5, 5.5, 20.5]
    assert starts(CohortPolicy(4, 0.0)) == [0.0, 2.0, 5.0, 6.0, 20.0]


def test_buckets_batch_alike_prompts() -> None:
    prompts = [10, 900, 12, 800, 11, 1000]
    requests = make_requests(np.arange(6) / 100, prompts, [5] * 6)
    found = run_cohorts(requests, STEP_TIME, CohortPolicy(3, bucket_tokens=(16, 1024)))
    assert found.batches is not None
    assert found.batches["padded_prompt_tokens"].to_list() == [48, 3072]
    plain = run_cohorts(requests, STEP_TIME, CohortPolicy(3))
    assert found.prompt_padding_waste_ratio < plain.prompt_padding_waste_ratio  # type: ignore[operator]


@pytest.mark.parametrize("policy", ["static", "dynamic", "split"])
def test_real_lengths_are_all_served_in_order_of_their_times(
    policy: str, shared_data: Path
) -> None:
    requests = azure(shared_data, 600)
    if policy == "split":
        found = run_split(requests, STEP_TIME, SPLIT)
    else:
        found = run_cohorts(
            requests, STEP_TIME, CohortPolicy(8, np.inf if policy == "static" else 0.2)
        )
    assert set(found.requests["status"]) == {"finished"}
    assert (found.requests["generated_tokens"] == found.requests["generation_tokens"]).all()
    times = [column(found, n) for n in ("arrival_seconds", "first_scheduled_seconds")]
    times += [column(found, n) for n in ("first_token_seconds", "end_seconds")]
    assert all((b >= a - 1e-9).all() for a, b in itertools.pairwise(times))
    assert found.busy_seconds <= times[-1].max() - times[0].min() + 1e-9


def test_far_apart_all_policies_are_one(shared_data: Path) -> None:
    some = azure(shared_data, 40)
    requests = make_requests(np.arange(40) * 1000.0, some.prompt_tokens, some.generation_tokens)
    seats = SchedulerConfiguration(32, 8192, async_scheduling=False)
    runs = [
        run_cohorts(requests, STEP_TIME, CohortPolicy(1, hold=False)),
        run_cohorts(requests, STEP_TIME, CohortPolicy(32, 0.0, pad=False, hold=False)),
        run_split(requests, STEP_TIME, SplitPolicy(0.8, 32, 8192)),
        run_continuous(requests, STEP_TIME, seats),
    ]
    for name in ("first_token_seconds", "end_seconds"):
        for one in runs[1:]:
            np.testing.assert_allclose(column(one, name), column(runs[0], name), rtol=1e-9)
    assert [one.requests.columns for one in runs[:3]] == [runs[3].requests.columns] * 3
    assert [one.requests.dtypes for one in runs[:3]] == [runs[3].requests.dtypes] * 3


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10**6), size=st.integers(1, 40))
def test_no_cause_of_loss_ever_helps_while_there_is_more_to_do(seed: int, size: int) -> None:
    mix = Mix(lognormal_lengths(200, 1.0, 120, seed), lognormal_lengths(30, 1.0, 120, seed + 1))
    requests = mix.at_once(120)
    padded = run_cohorts(requests, STEP_TIME, CohortPolicy(size))
    packed = run_cohorts(requests, STEP_TIME, CohortPolicy(size, pad=False))
    assert packed.busy_seconds <= padded.busy_seconds * (1 + 1e-12)
    early = run_cohorts(requests, STEP_TIME, CohortPolicy(size, hold=False))
    assert early.busy_seconds == padded.busy_seconds
    assert (column(early, "end_seconds") <= column(padded, "end_seconds")).all()


@pytest.mark.parametrize("share", [0.2, 0.8])
def test_the_split_keeps_its_shares_while_both_have_work(share: float) -> None:
    mix = Mix(lognormal_lengths(400, 0.5, 500, 1), lognormal_lengths(400, 0.1, 500, 2))
    # rate so high that prompts never run out before the window ends; seats for all of them
    found = run_split(mix.at_once(500), StepTime(0.01, 1e-3, 0.0, 0.0), SplitPolicy(share, 500, 64))
    first = column(found, "first_token_seconds")
    # prompts alone take 0.01 / 64 + 0.001 s a token; at their share they take 1 / share of that
    alone = 500 * mix.prompt_tokens.mean() * (0.01 / 64 + 1e-3)
    assert first.max() == pytest.approx(alone / share, rel=0.03)


def test_who_gave_up_is_freed_or_not() -> None:
    mix = Mix(
        lognormal_lengths(200, 1.0, 400, 1),
        lognormal_lengths(60, 1.0, 400, 2),
        cancel_ratio=0.3,
        cancel_after_seconds=2.0,
    )
    requests = mix.at_rate(12.0, 400)
    calm = replace(requests, cancel_seconds=np.full(400, np.inf))
    for run in (
        lambda r, free: run_cohorts(r, STEP_TIME, CohortPolicy(8, 0.1), free_given_up=free),
        lambda r, free: run_split(r, STEP_TIME, SPLIT, free_given_up=free),
    ):
        freed, kept, without = run(requests, True), run(requests, False), run(calm, True)
        for found in (freed, kept):
            gone = found.requests.filter(pl.col("status") == "cancelled")
            assert gone.height >= 10
            index = gone["index"].to_numpy()
            np.testing.assert_array_equal(
                gone["end_seconds"].to_numpy(), requests.cancel_seconds[index]
            )
            assert (gone["generated_tokens"] < gone["generation_tokens"]).all()
        # unnoticed, the server works as if nobody had left
        assert kept.busy_seconds == without.busy_seconds
        assert freed.busy_seconds < kept.busy_seconds
        finished = kept.requests["status"] == "finished"
        assert (
            kept.requests.filter(finished)["end_seconds"]
            == without.requests.filter(finished)["end_seconds"]
        ).all()


def test_time_outs_count_from_arrival() -> None:
    requests = make_requests([0.0, 0.0, 0.0], [10, 10, 10], [3, 3, 3])
    flat = StepTime(1.0, 0.0, 0.0, 0.0)
    found = run_cohorts(requests, flat, CohortPolicy(1), timeout_seconds=4.0)
    # the second is cut in its first or second step, the third never starts
    assert found.requests["status"].to_list() == ["finished", "timed_out", "timed_out"]
    assert found.requests["end_seconds"].to_list() == [3.0, 4.0, 4.0]
    assert found.requests["first_scheduled_seconds"].to_list() == [0.0, 3.0, None]
    split = run_split(requests, flat, SplitPolicy(0.5, 1, 100), timeout_seconds=4.0)
    assert split.requests["status"].to_list() == ["finished", "timed_out", "timed_out"]


@pytest.mark.parametrize("clients", [3, 20])
def test_a_closed_loop_never_holds_more_than_its_clients(clients: int, shared_data: Path) -> None:
    requests = azure(shared_data, 200)
    requests = replace(requests, arrival_seconds=np.zeros(200))
    for found in (
        run_cohorts(requests, STEP_TIME, STATIC, concurrency=clients),
        run_cohorts(requests, STEP_TIME, CohortPolicy(8, 0.05), concurrency=clients),
        run_split(requests, STEP_TIME, SPLIT, concurrency=clients),
    ):
        assert set(found.requests["status"]) == {"finished"}
        arrival, end = column(found, "arrival_seconds"), column(found, "end_seconds")
        moments = np.concatenate((end, arrival))  # at one time ends count first
        change = np.repeat([-1, 1], 200)[np.argsort(moments, kind="stable")]
        assert np.cumsum(change).max() == clients


def test_nothing_to_serve() -> None:
    none = make_requests([], [], [])
    assert run_cohorts(none, STEP_TIME, STATIC).requests.height == 0
    assert run_split(none, STEP_TIME, SPLIT).requests.height == 0
