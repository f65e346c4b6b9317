"""Replicas that follow a falling demand make no noise; a loss in a falling demand is told."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from pool_cases import FleetSource, Server, one_pool, retired, told, watched
from service_cases import shipped_plan

from driftwatch.pipeline.departures import MOVED, NOT_LISTED

PLAN = one_pool(shipped_plan())


def shared(demand: Callable[[float], float], until: list[float]) -> list[Server]:
    """Servers that leave at these times, the demand spread evenly over those that are there."""

    def rate(t: float) -> float:
        return demand(t) / sum(t < end for end in until)

    return [Server(f"s{i:02}:8000", rate, until=end) for i, end in enumerate(until)]


@pytest.mark.slow
def test_replicas_that_follow_a_falling_demand() -> None:
    """Ten to two, each five minutes after its load."""
    step = 40 * 60 / 8
    servers = shared(
        lambda t: 1000 * max(2.0, 10 - max(0.0, t - 1200) / step),
        [1500 + step * (k + 1) + 7 * k for k in range(8)] + [9e9] * 2,
    )
    state, outcomes = watched([FleetSource(servers, 85)], 85, PLAN, every=5)
    assert told(outcomes) == []
    assert retired(outcomes).keys() == {f"s{k:02}:8000" for k in range(8)}
    assert set(retired(outcomes).values()) <= {NOT_LISTED, MOVED}
    assert len(state.targets) == 2


def test_a_loss_in_a_falling_demand_is_told() -> None:
    def rate(t: float) -> float:
        return 100 * (1 - 0.01 * t / 60)

    servers = [Server(f"s{i}:8000", rate, until=1500 if i < 4 else 9e9) for i in range(8)]
    _, outcomes = watched([FleetSource(servers, 50)], 50, PLAN, every=5)
    assert [(event, alert) for event, alert, _ in told(outcomes)] == [("firing", "CoverageLost")]
    assert retired(outcomes) == {}


def test_a_second_loss_after_the_first_looks_like_a_falling_demand() -> None:
    """The ticket of the pool is open; who left later is retired."""
    until = [1200.0] * 2 + [1200.0 + 420] * 2 + [9e9] * 4
    servers = [Server(f"s{i}:8000", lambda _: 100.0, until=end) for i, end in enumerate(until)]
    _, outcomes = watched([FleetSource(servers, 50)], 50, PLAN, every=5)
    assert [(event, alert) for event, alert, _ in told(outcomes)] == [("firing", "CoverageLost")]
    assert retired(outcomes) == dict.fromkeys(("s2:8000", "s3:8000"), NOT_LISTED)
