"""Rates narrowed as far as a comparison takes: the answers are those of the rates themselves."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from advice_cases import H100_8B, requests_of

from driftwatch.model import Slo
from driftwatch.recommend.capacity import Narrowing, nearly_best, rate_of, rate_within, stretch
from driftwatch.simulate.configuration import SchedulerConfiguration


def bounds(rate: float, asked: list[int], number: int) -> Iterator[tuple[float, float]]:
    """Intervals around a rate that become smaller by half."""
    width = 16.0
    while width > 0.01:
        asked[number] += 1
        yield max(rate - width / 3, 0.0), rate + width
        width /= 2
    yield rate, rate


@pytest.mark.parametrize("seed", range(4))
def test_who_is_nearly_best_is_found_without_the_rates(seed: int) -> None:
    rng = np.random.default_rng(seed)
    rates = [float(rate) for rate in np.round(rng.uniform(1.0, 12.0, 6), 2)]
    enough = float(rng.choice([5.0, 100.0]))
    asked = [0] * len(rates)
    found = nearly_best(
        [Narrowing(steps=bounds(rate, asked, i)) for i, rate in enumerate(rates)],
        enough=enough,
        ties=0.02,
    )
    most = min(max(rates), enough)
    assert found == [min(rate, enough) >= most * 0.98 for rate in rates]
    assert sum(asked) < 11 * len(rates)  # so many to settle all of them


def test_a_rate_far_below_is_known_to_be_so_at_once() -> None:
    asked = [0]
    rate = Narrowing(steps=bounds(2.0, asked, 0))
    assert rate.is_below(30.0)
    assert asked == [1]
    assert not rate.is_below(1.99)
    assert rate.settled() == 2.0
    assert not rate.is_below(2.0)


def test_the_bounds_close_on_one_rate_whatever_the_start() -> None:
    requests = stretch(requests_of(6.0, 900, 180, seconds=60.0))
    configuration = SchedulerConfiguration(32, 2048, num_gpu_blocks=20000)
    step_time, slo = H100_8B["linear"], Slo(1.0, 0.05)
    observed = rate_of(requests)
    found = []
    for near in (None, observed / 3, 3 * observed):
        rate = rate_within(requests, configuration, step_time, slo, near=near)
        low, high = 0.0, float("inf")
        while rate.low < rate.high:
            rate.narrow()
            assert low <= rate.low <= rate.high <= high
            low, high = rate.low, rate.high
        found.append(rate.low)
    assert max(found) / min(found) < 1.03
    assert rate_within(requests, configuration, step_time, Slo(1e-4), near=None).settled() == 0.0
