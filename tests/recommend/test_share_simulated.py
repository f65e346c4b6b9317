"""A share that is settled early, and who has missed for ever."""

from __future__ import annotations

import numpy as np
import pytest

from driftwatch.model import Slo
from driftwatch.recommend.simulation import (
    Judged,
    afterwards,
    in_target,
    missed,
    share_simulated,
    simulated,
)
from driftwatch.simulate.configuration import SchedulerConfiguration
from driftwatch.simulate.requests import Requests, make_requests
from driftwatch.simulate.step_time import StepTime
from driftwatch.simulate.trial import Run, Trial

LAW = StepTime(0.01, 2e-5, 1e-4, 2e-8)
CASES = {
    "room": SchedulerConfiguration(32, 512, num_gpu_blocks=4000),
    "cap": SchedulerConfiguration(3, 512, num_gpu_blocks=4000),
    "preempted": SchedulerConfiguration(32, 256, num_gpu_blocks=130),
    "preempted, hits itself": SchedulerConfiguration(32, 256, num_gpu_blocks=100),
    "endless": SchedulerConfiguration(16, 256, long_prefill_token_threshold=64),
}


def requests_of(seed: int, *, given: bool = False) -> Requests:
    rng = np.random.default_rng(seed)
    prompt = np.clip(rng.lognormal(4.8, 0.8, 300), 1, 900).astype(int)
    cached = np.minimum(16 * rng.integers(0, 3, 300), prompt - 1) if given else np.zeros(300, int)
    return make_requests(
        np.sort(rng.uniform(0.0, 60.0, 300)),
        prompt,
        np.clip(rng.lognormal(3.7, 0.8, 300), 1, 400).astype(int),
        cached_tokens=cached,
    )


@pytest.mark.parametrize(
    ("name", "slo"),
    [
        *((name, Slo(0.6, 0.03)) for name in CASES),
        *(("cap", slo) for slo in (None, Slo(ttft_seconds=1.5), Slo(tpot_seconds=0.025))),
    ],
    ids=str,
)
def test_a_share_that_is_settled_early_is_the_share_of_the_whole(
    name: str, slo: Slo | None
) -> None:
    requests = requests_of(2)
    judged = Judged(slo, 6.0, 60.0, ttft_overhead_seconds=0.01)
    whole = simulated(requests, CASES[name], LAW, judged)
    early = share_simulated(requests, CASES[name], LAW, judged)
    assert early.in_target_ratio == whole.in_target_ratio
    assert early.e2e_seconds is None


def test_who_has_missed_never_gets_into_the_target() -> None:
    requests, slo = requests_of(3), Slo(0.6, 0.03)
    trial = Trial(requests, CASES["cap"])
    seen: list[tuple[float, int]] = []
    lost = np.zeros(len(requests), dtype=bool)

    def look(served: Run) -> bool:
        nonlocal lost
        now_lost = missed(served, slo)
        assert not (lost & ~now_lost).any()  # once missed, missed for ever
        assert not (now_lost & in_target(served, slo)).any()
        lost = now_lost
        seen.append((served.now_seconds, int(lost.sum())))
        return False

    checks = [10.0, 30.0, *afterwards(requests.arrival_seconds, slo)]
    end = trial.run(LAW, checks=checks, enough=look)
    assert [now for now, _ in seen] == checks
    assert 0 < seen[0][1] <= seen[1][1] < seen[-1][1]
    assert not in_target(end, slo)[lost].any()
    assert np.array_equal(in_target(end, slo), ~missed(end, slo))


def test_a_hopeless_queue_is_not_served_to_its_end() -> None:
    requests, slo = requests_of(4), Slo(0.6)
    trial = Trial(requests, SchedulerConfiguration(2, 512, num_gpu_blocks=4000))
    early = trial.run(
        LAW,
        checks=afterwards(requests.arrival_seconds, slo),
        enough=lambda served: bool((in_target(served, slo) | missed(served, slo)).all()),
    )
    assert early.now_seconds < 70.0
    waiting = int((~early.ended).sum())
    assert waiting > 50
    assert trial.run(LAW).now_seconds == np.inf
