"""Closed-loop figures against queueing laws that hold exactly, and the knee's definition."""

from __future__ import annotations

import heapq

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from driftwatch.lab.batchers import Served
from driftwatch.lab.loads import Figures, Level, figures, find_degradation, measure


def closed_loop(users: int, slots: int, service: float, count: int) -> Served:
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
    tokens, finished = np.full(count, 10), np.ones(count, dtype=bool)
    return Served(np.array(start), np.array(first), np.array(end), tokens, finished)


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
    level = measure(users, sent).figures
    assert level.requests_per_second == pytest.approx(min(users, slots) / service, rel=0.1)
    assert level.e2e_seconds_mean == pytest.approx(max(service, users * service / slots), rel=0.1)
    # Little's law ties the two for any loop
    assert level.e2e_seconds_mean is not None
    assert level.requests_per_second * level.e2e_seconds_mean == pytest.approx(users, rel=0.1)
    assert level.itl_seconds_mean == pytest.approx(service * 0.9 / 9)
    assert level.generation_tokens_per_second == pytest.approx(level.requests_per_second * 10)


def served(start: list[float], first: list[float], end: list[float], tokens: list[int]) -> Served:
    times = (np.array(start), np.array(first), np.array(end))
    return Served(*times, np.array(tokens), np.ones(len(end), dtype=bool))


def test_warm_up_and_drain_are_left_out() -> None:
    """The first two answers of each user are slow and the last run alone: neither is seen."""
    start = [0.0, 0.0, 5.0, 5.0, 10.0, 10.0, 11.0, 11.0, 12.0, 12.0]
    end = [5.0, 5.0, 10.0, 10.0, 11.0, 11.0, 12.0, 12.0, 12.5, 12.6]
    level = measure(2, served(start, end, end, [1] * 10)).figures
    assert (level.requests, level.seconds, level.requests_per_second) == (4, 2.0, 2.0)
    assert level.e2e_seconds_p50 == 1.0
    assert level.itl_seconds_mean is None  # no second token


def test_a_quantile_without_enough_requests_is_unknown() -> None:
    few, enough = (measure(1, closed_loop(1, 1, 1.0, n)).figures for n in (102, 103))
    assert (few.requests, few.e2e_seconds_p50, few.e2e_seconds_p99) == (99, 1.0, None)
    assert few.ttft_seconds_p99 is None
    assert enough.e2e_seconds_p99 == 1.0


def test_the_mean_itl_is_of_tokens_not_of_requests() -> None:
    """Ten gaps of 0.1 s and one of 1 s: 2 s over 11 gaps, not the mean of the two means."""
    run = served([0.0, 0.0, 2.0], [1.0, 1.0, 2.5], [2.0, 2.0, 3.0], [11, 2, 1])
    assert figures(run, 0.0, 3.0).itl_seconds_mean == pytest.approx(2 / 11)


def _levels(rates: dict[int, float | None]) -> list[Level]:
    return [Level(n, Figures(100 if x else 0, 1.0, x or 0.0)) for n, x in rates.items()]


@pytest.mark.parametrize(
    ("rates", "found"),
    [
        # a cap at 8 that binds
        ({1: 1, 2: 2, 4: 4, 8: 8, 16: 8, 32: 8}, (8, 16, True)),
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
