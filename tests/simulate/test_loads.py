"""Closed-loop figures against queueing laws that hold exactly, and the knee's definition."""

from __future__ import annotations

import heapq

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from driftwatch.lab.batchers import STATIC, Served, Settings
from driftwatch.lab.loads import (
    Figures,
    Level,
    Point,
    capacity,
    figures,
    find_degradation,
    knee,
    measure,
    steady,
)
from driftwatch.simulate.configuration import SchedulerConfiguration
from driftwatch.simulate.requests import make_requests
from driftwatch.simulate.step_time import StepTime


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


def run(arrival: np.ndarray, takes: np.ndarray, rejected: slice = slice(0)) -> Served:
    count = len(arrival)
    finished = np.ones(count, dtype=bool)
    finished[rejected] = False
    return Served(arrival, arrival, arrival + takes, np.full(count, 3), finished)


def test_warm_up_and_drain_of_an_open_load_are_left_out() -> None:
    arrival = np.arange(0.0, 100.5, 0.5)  # two a second for 100 s
    takes = np.where((arrival < 20) | (arrival >= 90), 50.0, 1.0)
    found = steady("s", 2.0, run(arrival, takes), 1).figures
    assert found.seconds == pytest.approx(70)
    # 139 of those that arrive in it end in it, and the warm-up's 40 come late into it
    assert found.requests == 139 + 40
    assert found.requests_per_second == pytest.approx(179 / 70)
    assert found.generation_tokens_per_second == pytest.approx(3 * 179 / 70)
    assert (found.e2e_seconds_p50, found.e2e_seconds_p99) == (1.0, 50.0)


def test_a_server_that_falls_behind_or_rejects_is_told() -> None:
    arrival = np.arange(0.0, 100.0, 0.5)
    assert steady("s", 2.0, run(arrival, np.full(200, 5.0)), 1).keeps_up
    ends = np.arange(1.0, 201.0)  # one a second
    assert not steady("s", 2.0, run(arrival, ends - arrival), 1).keeps_up
    rejects = steady("s", 2.0, run(arrival, np.full(200, 0.5), slice(0, 200, 4)), 1)
    assert (rejects.keeps_up, rejects.rejected_requests) == (False, 50)


def test_the_capacity_is_of_batches_that_are_filled_again_and_again() -> None:
    mix = make_requests(np.zeros(50), np.full(50, 10), np.full(50, 20))
    settings = Settings(SchedulerConfiguration(4, 512), batch_size=400)
    # 4,000 requests in ten batches of 400: 20 steps of 10 ms each
    found = capacity(STATIC, settings, mix, StepTime(0.01, 0.0, 0.0, 0.0))
    assert found == pytest.approx(400 / 0.2)


def made(load: float, p99: float | None, keeps_up: bool = True) -> Point:
    found = Figures(1000 if p99 else 5, 100.0, load, load, e2e_seconds_p99=p99)
    return Point("s", load, keeps_up, found, 0, None, None)


def test_the_knee_is_the_largest_load_that_holds_before_one_fails() -> None:
    # a batch that waits to fill is out of target at light load, holds, then falls behind
    points = [made(1, 9.0), made(5, 2.0), made(10, 2.5), made(20, 1.0, False)]
    found = knee(points, 3.0)
    assert (found.holds_at, found.fails_at, found.reason) == (10, 20, "does not keep up")
    assert knee(points[:3], 3.0).fails_at is None
    nowhere = knee(points, 0.5)
    assert (nowhere.holds_at, nowhere.reason) == (None, "p99 above the limit")
    assert "5 requests, it needs 100" in knee([made(1, None)], 3.0).reason
