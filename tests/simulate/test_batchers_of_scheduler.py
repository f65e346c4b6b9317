"""Batchers that run vLLM's scheduler, back-pressure, and patience in every batcher."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from batcher_cases import (
    STEP_TIME,
    azure,
    column,
    run_back_pressure,
    run_cohorts,
    run_continuous,
    run_split,
)

from driftwatch.lab.batchers.cohort import CohortPolicy
from driftwatch.lab.batchers.continuous import BackPressure
from driftwatch.lab.batchers.mixes import Mix, lognormal_lengths
from driftwatch.lab.batchers.policies import NAMES, Settings, policy_named, without_causes
from driftwatch.lab.batchers.split import SplitPolicy
from driftwatch.simulate.configuration import SchedulerConfiguration
from driftwatch.simulate.requests import make_requests
from driftwatch.simulate.step_time import StepTime

SEATS = SchedulerConfiguration(16, 2048)


def test_unnoticed_the_scheduler_works_on_for_nobody() -> None:
    mix = Mix(lognormal_lengths(200, 1, 300, 1), lognormal_lengths(60, 1, 300, 2), 0, 0.3, 1.0)
    requests = mix.at_rate(12.0, 300)
    calm = replace(requests, cancel_seconds=np.full(300, np.inf))
    freed = run_continuous(requests, STEP_TIME, SEATS)
    kept = run_continuous(requests, STEP_TIME, SEATS, free_given_up=False)
    assert kept.busy_seconds == run_continuous(calm, STEP_TIME, SEATS).busy_seconds
    assert freed.busy_seconds < kept.busy_seconds
    gone = kept.requests.filter(pl.col("status") == "cancelled")
    index = gone["index"].to_numpy()
    assert len(index) >= 10
    np.testing.assert_array_equal(gone["end_seconds"].to_numpy(), requests.cancel_seconds[index])
    with pytest.raises(ValueError, match="unnoticed"):
        run_continuous(requests, STEP_TIME, SEATS, concurrency=4, free_given_up=False)


def test_a_limit_that_is_never_reached_changes_nothing(shared_data: Path) -> None:
    requests = azure(shared_data, 150)
    plain = run_continuous(requests, STEP_TIME, SEATS)
    pressed = run_back_pressure(requests, STEP_TIME, SEATS, BackPressure(100_000))
    assert pressed.requests.equals(plain.requests)
    assert (pressed.steps, pressed.busy_seconds) == (plain.steps, plain.busy_seconds)


def test_who_is_turned_away_comes_back_until_served() -> None:
    mix = Mix(lognormal_lengths(200, 1, 300, 1), lognormal_lengths(60, 1, 300, 2))
    requests = mix.at_rate(40.0, 300)
    pressure = BackPressure(20, 0.8, 0.5)
    found = run_back_pressure(requests, STEP_TIME, SEATS, pressure)
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
    found = run_back_pressure(requests, STEP_TIME, SEATS, BackPressure(20), timeout_seconds=2.0)
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
        run_back_pressure(requests, STEP_TIME, SEATS, pressure, free_given_up=free)
        for free in (True, False)
    )
    assert freed.busy_seconds < kept.busy_seconds
    alike = run_continuous(requests, STEP_TIME, SEATS, free_given_up=False)
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
        policy_named(name, Settings(SEATS, batch_size=8, free_given_up=free)).serve(
            requests, STEP_TIME
        )
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
