"""Figures of a steady part, and the knee's definition."""

from __future__ import annotations

import numpy as np
import pytest

from driftwatch.lab.batchers import STATIC, Served
from driftwatch.lab.loads import (
    Figures,
    Point,
    capacity,
    knee,
    steady,
)
from driftwatch.simulate.configuration import SchedulerConfiguration
from driftwatch.simulate.requests import make_requests
from driftwatch.simulate.step_time import StepTime


def run(arrival: np.ndarray, takes: np.ndarray, rejected: slice = slice(0)) -> Served:
    count = len(arrival)
    finished = np.ones(count, dtype=bool)
    finished[rejected] = False
    return Served(arrival, arrival, arrival + takes, np.full(count, 3), finished)


def test_warm_up_and_drain_of_an_open_load_are_left_out() -> None:
    arrival = np.arange(0.0, 100.5, 0.5)  # two a second for 100 s
    takes = np.where((arrival < 20) | (arrival >= 90), 50.0, 1.0)
    found = steady("s", 2.0, run(arrival, takes)).figures
    # 139 of those that arrive in it end in it, and the warm-up's 40 come late into it
    assert found.requests == 139 + 40
    assert found.requests_per_second == pytest.approx(179 / 70)
    assert (found.e2e_seconds_p50, found.e2e_seconds_p99) == (1.0, 50.0)


def test_a_server_that_falls_behind_or_rejects_is_told() -> None:
    arrival = np.arange(0.0, 100.0, 0.5)
    assert steady("s", 2.0, run(arrival, np.full(200, 5.0))).keeps_up
    ends = np.arange(1.0, 201.0)  # one a second
    assert not steady("s", 2.0, run(arrival, ends - arrival)).keeps_up
    rejects = steady("s", 2.0, run(arrival, np.full(200, 0.5), slice(0, 200, 4)))
    assert (rejects.keeps_up, rejects.rejected_requests) == (False, 50)


def test_the_capacity_is_of_batches_that_are_filled_again_and_again() -> None:
    mix = make_requests(np.zeros(50), np.full(50, 10), np.full(50, 20))
    # batches of 32: 20 steps of 10 ms each
    found = capacity(STATIC, SchedulerConfiguration(4, 512), mix, StepTime(0.01, 0.0, 0.0, 0.0))
    assert found == pytest.approx(32 / 0.2, rel=0.02)


def made(load: float, p99: float | None, keeps_up: bool = True) -> Point:
    found = Figures(1000 if p99 else 5, load, e2e_seconds_p99=p99)
    return Point("s", load, keeps_up, found, 0, None, None)


def test_the_knee_is_the_largest_load_that_holds_before_one_fails() -> None:
    # a batch that waits to fill is out of target at light load, holds, then falls behind
    points = [made(1, 9.0), made(5, 2.0), made(10, 2.5), made(20, 1.0, False), made(30, 1.0)]
    assert knee(points, 3.0) == 10
    assert knee(points, 0.5) is None
    assert knee([made(1, None)], 3.0) is None
