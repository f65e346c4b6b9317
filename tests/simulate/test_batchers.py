"""The classic batchers: against a walk token by token, each other, and real lengths."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from driftwatch.lab.batchers import cohort, continuous, split
from driftwatch.lab.batchers.clock import Batched, Load, step_seconds
from driftwatch.lab.batchers.cohort import CohortPolicy
from driftwatch.lab.batchers.continuous import BackPressure
from driftwatch.lab.batchers.mixes import Mix, lognormal_lengths
from driftwatch.lab.batchers.policies import NAMES, Settings, policy_named, without_causes
from driftwatch.lab.batchers.split import SplitPolicy
from driftwatch.simulate.configuration import SchedulerConfiguration
from driftwatch.simulate.requests import Requests, make_requests
from driftwatch.simulate.step_time import StepTime
from driftwatch.simulate.workload import read_requests

LAW = StepTime(0.008, 4e-5, 3e-5, 2e-8, hinge_tokens=16, c4_seconds_per_prefill_pair=1e-9)
STATIC = CohortPolicy(8)
SPLIT = SplitPolicy(0.5, 16, 512)


def run_cohorts(requests: Requests, law: StepTime, policy: CohortPolicy, **load: object) -> Batched:
    return cohort.run_cohorts(Load(requests, **load), law, policy)  # type: ignore[arg-type]


def run_split(requests: Requests, law: StepTime, policy: SplitPolicy, **load: object) -> Batched:
    return split.run_split(Load(requests, **load), law, policy)  # type: ignore[arg-type]


def run_continuous(
    requests: Requests, law: StepTime, seats: SchedulerConfiguration, **load: object
) -> Batched:
    return continuous.run_continuous(Load(requests, **load), law, seats)  # type: ignore[arg-type]


def run_back_pressure(
    requests: Requests,
    law: StepTime,
    seats: SchedulerConfiguration,
    pressure: BackPressure,
    **load: object,
) -> Batched:
    offered = Load(requests, **load)  # type: ignore[arg-type]
    return continuous.run_back_pressure(offered, law, seats, pressure)


def azure(shared_data: Path, count: int) -> Requests:
    return read_requests(shared_data / "traces/azure_2023_conv.csv.gz", limit=count)


def column(batched: Batched, name: str) -> np.ndarray:
    return batched.requests[name].fill_null(np.nan).to_numpy()


@settings(deadline=None)
@given(
    prefill=st.integers(0, 5000),
    decode=st.integers(0, 40),
    kv=st.integers(0, 10**6),
    pairs=st.integers(0, 10**7),
)
def test_the_law_over_arrays_is_the_law(prefill: int, decode: int, kv: int, pairs: int) -> None:
    law = replace(LAW, capture_sizes=(1, 2, 4, 8, 16, 24))
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
    found = run_cohorts(requests, LAW, CohortPolicy(len(lengths), pad=pad, hold=hold))
    start = float(requests.arrival_seconds[-1])
    ends = walk(prompts, generations, start, LAW, pad)
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
    found = run_cohorts(requests, LAW, CohortPolicy(3, bucket_tokens=(16, 1024)))
    assert found.batches is not None
    assert found.batches["padded_prompt_tokens"].to_list() == [48, 3072]
    plain = run_cohorts(requests, LAW, CohortPolicy(3))
    assert found.prompt_padding_waste_ratio < plain.prompt_padding_waste_ratio  # type: ignore[operator]


@pytest.mark.parametrize("policy", ["static", "dynamic", "split"])
def test_real_lengths_are_all_served_in_order_of_their_times(
    policy: str, shared_data: Path
) -> None:
    requests = azure(shared_data, 600)
    if policy == "split":
        found = run_split(requests, LAW, SPLIT)
    else:
        found = run_cohorts(requests, LAW, CohortPolicy(8, np.inf if policy == "static" else 0.2))
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
        run_cohorts(requests, LAW, CohortPolicy(1, hold=False)),
        run_cohorts(requests, LAW, CohortPolicy(32, 0.0, pad=False, hold=False)),
        run_split(requests, LAW, SplitPolicy(0.8, 32, 8192)),
        run_continuous(requests, LAW, seats),
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
    padded = run_cohorts(requests, LAW, CohortPolicy(size))
    packed = run_cohorts(requests, LAW, CohortPolicy(size, pad=False))
    assert packed.busy_seconds <= padded.busy_seconds * (1 + 1e-12)
    early = run_cohorts(requests, LAW, CohortPolicy(size, hold=False))
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
        lambda r, free: run_cohorts(r, LAW, CohortPolicy(8, 0.1), free_given_up=free),
        lambda r, free: run_split(r, LAW, SPLIT, free_given_up=free),
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
        run_cohorts(requests, LAW, STATIC, concurrency=clients),
        run_cohorts(requests, LAW, CohortPolicy(8, 0.05), concurrency=clients),
        run_split(requests, LAW, SPLIT, concurrency=clients),
    ):
        assert set(found.requests["status"]) == {"finished"}
        arrival, end = column(found, "arrival_seconds"), column(found, "end_seconds")
        moments = np.concatenate((end, arrival))  # at one time ends count first
        change = np.repeat([-1, 1], 200)[np.argsort(moments, kind="stable")]
        assert np.cumsum(change).max() == clients


def test_nothing_to_serve() -> None:
    none = make_requests([], [], [])
    assert run_cohorts(none, LAW, STATIC).requests.height == 0
    assert run_split(none, LAW, SPLIT).requests.height == 0


SEATS = SchedulerConfiguration(16, 2048)


def test_unnoticed_the_scheduler_works_on_for_nobody() -> None:
    mix = Mix(lognormal_lengths(200, 1, 300, 1), lognormal_lengths(60, 1, 300, 2), 0, 0.3, 1.0)
    requests = mix.at_rate(12.0, 300)
    calm = replace(requests, cancel_seconds=np.full(300, np.inf))
    freed = run_continuous(requests, LAW, SEATS)
    kept = run_continuous(requests, LAW, SEATS, free_given_up=False)
    assert kept.busy_seconds == run_continuous(calm, LAW, SEATS).busy_seconds
    assert freed.busy_seconds < kept.busy_seconds
    gone = kept.requests.filter(pl.col("status") == "cancelled")
    index = gone["index"].to_numpy()
    assert len(index) >= 10
    np.testing.assert_array_equal(gone["end_seconds"].to_numpy(), requests.cancel_seconds[index])
    with pytest.raises(ValueError, match="unnoticed"):
        run_continuous(requests, LAW, SEATS, concurrency=4, free_given_up=False)


def test_a_limit_that_is_never_reached_changes_nothing(shared_data: Path) -> None:
    requests = azure(shared_data, 150)
    plain = run_continuous(requests, LAW, SEATS)
    pressed = run_back_pressure(requests, LAW, SEATS, BackPressure(100_000))
    assert pressed.requests.equals(plain.requests)
    assert (pressed.steps, pressed.busy_seconds) == (plain.steps, plain.busy_seconds)


def test_who_is_turned_away_comes_back_until_served() -> None:
    mix = Mix(lognormal_lengths(200, 1, 300, 1), lognormal_lengths(60, 1, 300, 2))
    requests = mix.at_rate(40.0, 300)
    pressure = BackPressure(20, 0.8, 0.5)
    found = run_back_pressure(requests, LAW, SEATS, pressure)
    assert set(found.requests["status"]) == {"finished"}
    # once inside nobody waits long: what is left of the latency is outside, in whole tries
    arrival, started = (column(found, n) for n in ("arrival_seconds", "first_scheduled_seconds"))
    assert np.array_equal(arrival, requests.arrival_seconds)
    assert (started - arrival > 0.5).sum() > 100
    end = column(found, "end_seconds")
    inside = [((started <= t) & (end > t)).sum() for t in started]
    assert max(inside) <= pressure.threshold


def test_turned_away_beyond_its_patience_is_rejected_not_served() -> None:
    mix = Mix(lognormal_lengths(200, 1, 300, 1), lognormal_lengths(60, 1, 300, 2))
    requests = mix.at_rate(40.0, 300)
    found = run_back_pressure(requests, LAW, SEATS, BackPressure(20), timeout_seconds=2.0)
    counts = dict(found.requests["status"].value_counts().rows())
    assert counts["finished"] > 50
    assert counts["rejected"] > 50
    assert (column(found, "e2e_seconds") <= 2.0 + 1e-9).all()
    rejected = found.requests.filter(pl.col("status") == "rejected")
    assert rejected["first_scheduled_seconds"].null_count() == rejected.height


def test_back_pressure_works_on_for_who_gave_up_unnoticed() -> None:
    mix = Mix(lognormal_lengths(200, 1, 300, 1), lognormal_lengths(60, 1, 300, 2), 0, 0.4, 1.0)
    requests = mix.at_rate(30.0, 300)
    pressure = BackPressure(1000)  # admits all, so that only what is freed differs
    freed, kept = (
        run_back_pressure(requests, LAW, SEATS, pressure, free_given_up=free)
        for free in (True, False)
    )
    assert freed.busy_seconds < kept.busy_seconds
    alike = run_continuous(requests, LAW, SEATS, free_given_up=False)
    assert kept.busy_seconds == alike.busy_seconds
    for name in ("status", "end_seconds", "first_token_seconds"):
        assert kept.requests[name].to_list() == alike.requests[name].to_list()
    first, end = (column(kept, name) for name in ("first_token_seconds", "end_seconds"))
    gone = (kept.requests["status"] == "cancelled").to_numpy()
    assert gone.sum() > 20
    assert not (first[gone] > end[gone]).any()  # nobody sees a token after giving up


def test_whoever_leaves_a_closed_loop_is_followed_by_the_next() -> None:
    flat = StepTime(1.0, 0.0, 0.0, 0.0)
    impatient = make_requests(
        np.zeros(6), [10] * 6, [5] * 6, cancel_seconds=[np.inf, 2.0] + [np.inf] * 4
    )
    # the second waits behind the first, leaves at 2 s, and the third comes then
    static = run_cohorts(impatient, flat, CohortPolicy(1, 0.0), concurrency=2)
    split = run_split(impatient, flat, SplitPolicy(0.5, 1, 100), concurrency=2)
    for found in (static, split):
        assert sorted(column(found, "arrival_seconds"))[:4] == [0.0, 0.0, 2.0, 5.0]
        assert found.requests["status"].to_list()[1] == "cancelled"


def test_a_closed_loop_counts_patience_from_the_arrival() -> None:
    flat = StepTime(1.0, 0.0, 0.0, 0.0)
    # each would wait 6 s and needs 5: only one that counted from its log's time 0 would leave
    requests = make_requests(np.zeros(5), [10] * 5, [5] * 5, cancel_seconds=[6.0] * 5)
    for found in (
        run_cohorts(requests, flat, CohortPolicy(1, 0.0), concurrency=1),
        run_split(requests, flat, SplitPolicy(0.5, 1, 100), concurrency=1),
    ):
        assert set(found.requests["status"]) == {"finished"}
        assert column(found, "end_seconds").tolist() == [5.0, 10.0, 15.0, 20.0, 25.0]


def test_pairs_of_later_chunks_count_what_came_before() -> None:
    law = StepTime(1.0, 0.0, 0.0, 0.0, 0, 1e-3)
    one = make_requests([0.0], [250], [1])
    found = run_split(one, law, SplitPolicy(0.5, 4, 100))
    assert column(found, "end_seconds")[0] == pytest.approx(3 + 1e-3 * 250 * 251 / 2)


def test_the_rung_of_all_seats_keeps_the_cap_and_the_one_before_has_none() -> None:
    capped = SchedulerConfiguration(64, 2048, max_num_active_seqs=8)
    ladder = without_causes(Settings(configuration=capped, batch_size=32))
    few, all_seats = ladder[4].settings.configuration, ladder[5].settings.configuration
    assert (few.max_num_seqs, few.max_num_active_seqs) == (32, None)
    assert (all_seats.max_num_seqs, all_seats.max_num_active_seqs) == (64, 8)


def test_the_shares_of_the_split_begin_anew_once_only_one_has_work() -> None:
    law = StepTime(1.0, 0.0, 0.0, 0.0)
    requests = make_requests([0.0, 10.0, 20.0], [100, 100, 100], [60, 60, 60])
    found = run_split(requests, law, SplitPolicy(0.5, 4, 100))
    # the second's prompt was a step more than decoding had: that is forgotten when the third comes
    assert column(found, "first_token_seconds").tolist() == [1.0, 11.0, 21.0]


@pytest.mark.parametrize("name", NAMES)
def test_every_policy_works_on_for_who_gave_up_where_asked(name: str) -> None:
    mix = Mix(lognormal_lengths(200, 1, 200, 1), lognormal_lengths(60, 1, 200, 2), 0, 0.5, 1.0)
    requests = mix.at_rate(20.0, 200)
    freed, kept = (
        policy_named(name, Settings(SEATS, batch_size=8, free_given_up=free)).serve(requests, LAW)
        for free in (True, False)
    )
    assert freed.busy_seconds < kept.busy_seconds


def test_a_request_that_ends_after_its_client_left_shows_no_token_too_late() -> None:
    law = StepTime(1.0, 0.0, 0.0, 0.0)
    early, late = (
        run_continuous(
            make_requests([0.0], [10], [5], cancel_seconds=[gone]),
            law,
            SEATS,
            free_given_up=False,
        ).requests
        for gone in (0.5, 3.5)
    )
    assert early["first_token_seconds"].to_list() == [None]
    assert late["first_token_seconds"].to_list() == [1.0]
    assert late["end_seconds"].to_list() == [3.5]
