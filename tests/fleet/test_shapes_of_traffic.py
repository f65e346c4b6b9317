"""Bursts, hours of the day, shares of what servers can do, and halves of ServeGen's clients."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from fleet_cases import whole_run
from pydantic import ValidationError

from driftwatch.fleet.hidden_engine import capacity
from driftwatch.fleet.scenario.model import Scenario
from driftwatch.fleet.traffic import PoolTraffic

SLOW = {"times_roofline": 4.0, "wander_sd_ratio": 0.0, "stalls_per_day": 0.0}


def scenario(hours: float, traffic: dict[str, Any], **more: Any) -> Scenario:
    return Scenario.model_validate(
        {
            "name": "x",
            "title": "x",
            "duration": f"{round(hours * 3600)}s",
            "start": "2026-11-16T00:00:00Z",
            "traffic": {"requests_per_second": 1.0, "wander_ratio": 0.0, **traffic},
            "truth": {},
            **more,
        }
    )


def test_a_burst_raises_the_rate_and_ends() -> None:
    made = scenario(24, {"bursts": {"per_day": 20, "lasting": "4m", "rate_factor": 5}})
    traffic = PoolTraffic.of(made, 4)
    times = np.arange(5.0, 86_400.0, 10.0)
    rates = traffic.rates(times)
    quiet = np.isclose(rates, 1.0)
    assert 0.8 < quiet.mean() < 0.99
    assert np.median(rates[~quiet]) > 2.5
    starts, ends = traffic.bursts.start_seconds, traffic.bursts.end_seconds
    assert 10 < len(starts) < 32
    assert 100 < np.median(ends - starts) < 500
    assert np.isclose(rates[-1], 1.0) or times[-1] < ends.max()
    (again, other) = (PoolTraffic.of(made, seed).bursts for seed in (4, 5))
    assert np.array_equal(again.start_seconds, starts)
    assert not np.array_equal(other.start_seconds, starts)


def test_nights_are_of_long_prompts_and_short_answers() -> None:
    hours = [{"since_hour": 22, "until_hour": 2, "prompt_factor": 3, "generation_factor": 0.05}]
    made = scenario(24, {"hours": hours}, pool={"replicas": 1})
    sent = PoolTraffic.of(made, 4).requests(0, 0.0, 86_400.0)
    at = sent.arrival_seconds / 3600.0
    night = (at < 2) | (at >= 22)
    assert sent.prompt_tokens[night].mean() > 2 * sent.prompt_tokens[~night].mean()
    assert sent.generation_tokens[night].mean() < 0.1 * sent.generation_tokens[~night].mean()


@pytest.mark.parametrize("share", [0.12, 0.95])
def test_a_share_of_what_the_servers_can_do_is_why_no_vllm_busy_with(share: float) -> None:
    made = scenario(
        0.5,
        {"requests_per_second": None, "utilisation_ratio": share},
        engine=SLOW,
        pool={"replicas": 2, "dcgm": False, "serving": {"max_num_seqs": 24}},
    )
    whole = PoolTraffic.of(made, 1).mean_rate
    assert whole == pytest.approx(share * 2 * capacity(made))
    busy = whole_run(made).scrapes.filter("ok")
    sequences = float(busy["running_requests"].mean()) / 24  # type: ignore[arg-type]
    if share < 0.5:
        assert sequences < 0.3 and busy["waiting_capacity_requests"].max() <= 2
    else:
        assert sequences > 0.6 and busy["waiting_capacity_requests"].max() > 2


@pytest.mark.parametrize("traffic", [{"utilisation_ratio": 0.5}, {"requests_per_second": None}])
def test_the_rate_is_given_once(traffic: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match="one of them"):
        scenario(1, traffic)
