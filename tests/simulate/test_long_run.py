"""A run in pieces is the run at once, to the bit."""

from __future__ import annotations

import numpy as np
import pytest

from driftwatch.errors import ImpossibleConfiguration
from driftwatch.simulate.configuration import SchedulerConfiguration
from driftwatch.simulate.engine import simulate
from driftwatch.simulate.long_run import simulate_in_pieces
from driftwatch.simulate.requests import Requests, make_requests
from driftwatch.simulate.step_time import StepTime

LAW = StepTime(0.009, 6e-5, 6.5e-5, 4e-7)


def workload(count: int) -> Requests:
    """Bursts with equal times, prefixes, cancellations; more than the server can take."""
    rng = np.random.default_rng(3)
    arrival = np.repeat(np.cumsum(rng.exponential(0.2, count // 4)), 4)
    shared = rng.random(count) < 0.4
    return make_requests(
        arrival,
        rng.integers(40, 900, count),
        rng.integers(1, 120, count),
        prefix_group=np.where(shared, rng.integers(0, 3, count), -1),
        shared_prefix_tokens=np.where(shared, 40, 0),
        cancel_seconds=np.where(rng.random(count) < 0.1, arrival + 1.5, np.inf),
    )


@pytest.mark.parametrize("piece", [1, 64])
@pytest.mark.parametrize("async_scheduling", [False, True])
def test_pieces_change_nothing(
    piece: int, async_scheduling: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DRIFTWATCH_COMPILE", "0")
    requests = workload(240)
    settings = SchedulerConfiguration(12, 256, 200, async_scheduling=async_scheduling)
    asked = {"timeout_seconds": 20.0, "per_step": True}
    whole = simulate(requests, settings, LAW, **asked)  # type: ignore[arg-type]
    pieces = simulate_in_pieces(requests, settings, LAW, piece_requests=piece, **asked)  # type: ignore[arg-type]
    assert whole.requests["preemptions"].sum() > 0
    assert pieces.requests.equals(whole.requests)
    assert whole.steps is not None
    assert pieces.steps is not None
    assert pieces.steps.equals(whole.steps)
    assert pieces.summary == whole.summary


def test_what_never_fits_is_told_before_anything_runs() -> None:
    requests = make_requests([0.0, 1.0, 2.0], [5, 5, 9000], [5, 5, 5])
    with pytest.raises(ImpossibleConfiguration):
        simulate_in_pieces(requests, SchedulerConfiguration(8, 256, 100), LAW, piece_requests=1)
