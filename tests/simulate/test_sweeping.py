"""Closed-loop figures against queueing laws that hold exactly, and the knee's definition."""

from __future__ import annotations

import heapq

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from driftwatch.lab.sweep import (
    Level,
    Sent,
    find_degradation,
    measure,
    with_gains,
)


def closed_loop(users: int, slots: int, service: float, count: int) -> Sent:
    """``slots`` servers of one deterministic service time, FIFO, ``users`` in a closed loop."""
    free = [0.0] * slots
    heapq.heapify(free)
    ready = [0.0] * users
    heapq.heapify(ready)
    start, first, end = [], [], []
    for _ in range(count):
        sent = heapq.heappop(ready)
        begun = max(sent, heapq.heappop(free))
        done = begun + service
        heapq.heappush(free, done)
        heapq.heappush(ready, done)
        start.append(sent)
        first.append(begun + service / 10)
        end.append(done)
    tokens = np.full(count, 10.0)
    return Sent(np.array(start), np.array(first), np.array(end), tokens, ("",) * count)


@settings(max_examples=40, deadline=None)
@given(
    users=st.integers(1, 24),
    slots=st.integers(1, 12),
    service=st.sampled_from([0.25, 0.5, 2.0]),
)
def test_throughput_and_latency_are_the_asymptotes(users: int, slots: int, service: float) -> None:
    """X = min(N, S) / D and R = max(D, N D / S): exact for a deterministic closed loop."""
    # whole waves of users and of slots, so that the steady part holds whole turns of the loop
    turn = users * slots
    sent = closed_loop(users, slots, service, 2 * users + 6 * turn)
    level = measure(users, sent, warm_up=2 * users)
    assert level.requests_per_second == pytest.approx(min(users, slots) / service, rel=0.1)
    assert level.e2e_seconds_mean == pytest.approx(max(service, users * service / slots), rel=0.1)
    # Little's law ties the two for any loop
    assert level.requests_per_second is not None and level.e2e_seconds_mean is not None
    assert level.requests_per_second * level.e2e_seconds_mean == pytest.approx(users, rel=0.1)
    assert level.itl_seconds_mean == pytest.approx(service * 0.9 / 9)
    assert level.generation_tokens_per_second == pytest.approx(level.requests_per_second * 10)


def test_warm_up_and_drain_are_left_out() -> None:
    """The first answers are slow and the last run alone: neither is seen."""
    start = np.array([0.0, 0.0, 10.0, 10.0, 11.0, 11.0, 12.0, 12.0])
    end = np.array([10.0, 10.0, 11.0, 11.0, 12.0, 12.0, 12.5, 12.6])
    ones = np.ones(8)
    level = measure(2, Sent(start, end, end, ones, ("",) * 8), warm_up=2)
    assert (level.steady_requests, level.steady_seconds) == (4, 2.0)
    assert level.requests_per_second == 2.0
    assert level.e2e_seconds_p50 == 1.0


def test_failures_are_counted_by_reason_and_only_there() -> None:
    sent = closed_loop(4, 4, 1.0, 80)
    why = tuple("answers 503" if i % 5 == 0 else "timed out" if i == 7 else "" for i in range(80))
    failed = Sent(
        sent.start_seconds,
        sent.first_token_seconds,
        sent.end_seconds,
        sent.generation_tokens,
        why,
    )
    level = measure(4, failed, warm_up=4)
    assert level.failed_requests == {"answers 503": 16, "timed out": 1}
    inside = [not why[i] for i in range(80) if 1.0 < sent.end_seconds[i] <= 19.0]
    assert level.steady_requests == sum(inside)
    assert level.requests_per_second == pytest.approx(sum(inside) / 18.0)


def test_a_quantile_without_enough_requests_is_unknown_with_its_reason() -> None:
    few, enough = (measure(1, closed_loop(1, 1, 1.0, n), warm_up=2) for n in (102, 103))
    assert (few.steady_requests, few.e2e_seconds_p50, few.e2e_seconds_p99) == (99, 1.0, None)
    assert set(few.reasons) == {"e2e_seconds_p99", "ttft_seconds_p99"}
    assert "p99 100: 99 were steady" in few.reasons["e2e_seconds_p99"]
    assert (enough.e2e_seconds_p99, enough.reasons) == (1.0, {})


def test_the_mean_itl_is_of_tokens_not_of_requests() -> None:
    """Ten gaps of 0.1 s and one of 1 s: 2 s over 11 gaps, not the mean of the two means."""
    start, first = np.zeros(3), np.array([1.0, 1.0, 2.5])
    sent = Sent(
        *(np.append(start[:2], 2.0), first, np.array([2.0, 2.0, 3.0])),
        *(np.array([11.0, 2.0, 1.0]), ("",) * 3),
    )
    assert measure(2, sent, warm_up=0).itl_seconds_mean == pytest.approx(2 / 11)


def _levels(rates: dict[int, float | None]) -> list[Level]:
    return with_gains(
        [Level(n, 100, 100 if x else 0, 1.0, {}, requests_per_second=x) for n, x in rates.items()]
    )


@pytest.mark.parametrize(
    ("rates", "found"),
    [
        # a cap at 8 that binds
        ({1: 1, 2: 2, 4: 4, 8: 8, 16: 8, 32: 8}, (8, 16, True)),
        # the loop's order is not the reader's
        ({32: 8, 4: 4, 16: 8, 8: 8}, (8, 16, True)),
        # half of the last doubling still becomes throughput: sqrt(2) and a little
        ({1: 1, 2: 1.42, 4: 2.1}, (4, None, False)),
        # one noisy level is no knee
        ({1: 1, 2: 1.1, 4: 3.9, 8: 7.5}, (8, None, False)),
        # the last step has no witness
        ({1: 1, 2: 2, 4: 2.1}, (2, 4, False)),
        # overload that costs throughput
        ({1: 10, 2: 9, 4: 5}, (1, 2, True)),
        # what was not served ends the search: it may degrade there
        ({1: 1, 2: 2, 4: None, 8: 1}, (None, None, False)),
        ({1: 1, 2: 1.1, 4: 1.1, 8: None}, (1, 2, True)),
        ({4: 1}, (None, None, False)),
    ],
)
def test_where_latency_starts_to_degrade(
    rates: dict[int, float | None], found: tuple[int | None, int | None, bool]
) -> None:
    where = find_degradation(_levels(rates))
    assert (where.holds_to, where.degrades_at, where.confirmed) == found
    assert (where.reason is None) == (where.degrades_at is not None)
