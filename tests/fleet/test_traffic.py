"""A server's requests are the real trace's, at the scenario's rates, and follow from the seed."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import fleet_cases
import numpy as np
import pytest
from fleet_cases import whole_run
from pydantic import ValidationError

from driftwatch.fleet.hidden_engine import capacity, disturbance_of, step_time_of, wander
from driftwatch.fleet.scenario.model import Scenario
from driftwatch.fleet.servers import generator, servers_of, servers_up
from driftwatch.fleet.traffic import PoolTraffic, season_factor
from driftwatch.simulate.requests import Requests
from driftwatch.simulate.workload.requests_file import read_requests

HOUR = 3600.0


def scenario(traffic: dict[str, Any], duration: str = "4h", **more: Any) -> Scenario:
    calm = {"requests_per_second": 8.0, "wander_ratio": 0.0, "cancelled_ratio": 0.0}
    return fleet_cases.scenario(duration, traffic=calm | traffic, **more)


def pool_requests(made: Scenario, since: float, until: float, seed: int = 5) -> list[Requests]:
    traffic = PoolTraffic.of(made, seed)
    return [traffic.requests(n, since, until) for n in range(made.servers)]


def same(one: Requests, other: Requests) -> bool:
    return all(
        np.array_equal(getattr(one, f.name), getattr(other, f.name)) for f in fields(Requests)
    )


def test_the_seed_decides_and_the_order_does_not() -> None:
    made = scenario({})
    first, second = pool_requests(made, 0, HOUR)
    traffic = PoolTraffic.of(made, 5)
    assert same(traffic.requests(1, 0, HOUR), second)
    assert same(traffic.requests(0, 0, HOUR), first)
    assert not same(first, second)
    assert not same(PoolTraffic.of(made, 6).requests(0, 0, HOUR), first)


def test_pairs_of_lengths_are_those_of_the_real_trace(shared_data: Any) -> None:
    real = read_requests(shared_data / "traces" / "azure_2023_conv.csv.gz")
    pairs = set(zip(real.prompt_tokens.tolist(), real.generation_tokens.tolist(), strict=True))
    made = pool_requests(scenario({}), 0, HOUR)[0]
    fits = made.prompt_tokens + made.generation_tokens < 8192  # longer ones are cut
    drawn = set(
        zip(made.prompt_tokens[fits].tolist(), made.generation_tokens[fits].tolist(), strict=True)
    )
    assert drawn <= pairs and len(drawn) > 2000
    assert abs(made.prompt_tokens.mean() / real.prompt_tokens.mean() - 1) < 0.05


def test_rates_season_and_changes() -> None:
    week = scenario(
        {"season": {"peak_to_trough": 3.0, "peak_hour": 14.0, "weekend_ratio": 0.5}},
        duration="7d",
        start="2026-11-18T06:30:00Z",
    )
    hours = np.arange(0.0, 7 * 24 * HOUR, HOUR / 2)
    factor = season_factor(week, hours)
    assert factor.mean() == pytest.approx(1.0, rel=2e-3)
    thursday = factor[(hours >= 17.5 * HOUR) & (hours < 41.5 * HOUR)]
    assert thursday.max() / thursday.min() == pytest.approx(3.0, rel=0.01)
    peak = hours[np.argmax(factor[: 48 * 2])] / HOUR + 6.5
    assert peak % 24 == pytest.approx(14.0, abs=0.5)
    saturday = factor[(hours >= 65.5 * HOUR) & (hours < 89.5 * HOUR)]
    assert saturday.max() / thursday.max() == pytest.approx(0.5, rel=0.01)

    changed = scenario(
        {
            "changes": [
                {"at": "1h", "rate_factor": 2.0, "until": "2h"},
                {"at": "2h", "prompt_factor": 0.5, "generation_factor": 1.5},
                {"at": "3h", "prefix_hit_ratio": 0.9, "cancelled_ratio": 0.2, "adapters": 7},
            ],
        },
    )
    by_hour = [pool_requests(changed, h * HOUR, (h + 1) * HOUR) for h in range(4)]
    counts = [sum(len(r) for r in one) for one in by_hour]
    assert [c / (8 * HOUR) for c in counts] == pytest.approx([1, 2, 1, 1], rel=0.05)
    prompts = [np.concatenate([r.prompt_tokens for r in one]).mean() for one in by_hour]
    answers = [np.concatenate([r.generation_tokens for r in one]).mean() for one in by_hour]
    assert [p / prompts[0] for p in prompts] == pytest.approx([1, 1, 0.5, 0.5], rel=0.05)
    assert [g / answers[0] for g in answers] == pytest.approx([1, 1, 1.5, 1.5], rel=0.05)
    hits = [sum(r.cached_tokens.sum() for r in o) / sum(r.prompt_tokens.sum() for r in o)
            for o in by_hour]  # fmt: skip
    assert hits == pytest.approx([0.2, 0.2, 0.2, 0.9], abs=0.02)
    gone = [np.concatenate([np.isfinite(r.cancel_seconds) for r in o]).mean() for o in by_hour]
    assert gone == pytest.approx([0, 0, 0, 0.2], abs=0.02)
    assert {int(a) for r in by_hour[3] for a in r.adapter} == set(range(7))
    assert {int(a) for r in by_hour[0] for a in r.adapter} == {-1}


def test_a_new_client_sends_its_share() -> None:
    share = 0.7
    made = scenario(
        {"changes": [{"at": "1h", "new_client": {"share_ratio": share, "prompt_tokens": 1200}}]}
    )
    before, after = (pool_requests(made, h * HOUR, (h + 1) * HOUR) for h in (0, 1))
    count = [sum(len(r) for r in one) for one in (before, after)]
    assert count[1] / count[0] == pytest.approx(1 / (1 - share), rel=0.06)
    arrivals = after[0].arrival_seconds
    assert (np.diff(arrivals) >= 0).all() and arrivals[0] >= HOUR and arrivals[-1] < 2 * HOUR


def test_servers_share_what_is_up() -> None:
    made = scenario(
        {},
        pool={"replicas": 4},
        faults=[
            {"kind": "restart", "at": "1h", "down": "30m", "replicas": [2]},
            {"kind": "scale", "at": "2h", "to": 2},
            {"kind": "gone", "at": "3h", "replicas": [0]},
        ],
    )
    servers = servers_of(made)
    times = np.array([0.0, 1.2, 1.6, 2.5, 3.5]) * HOUR
    assert servers_up(servers, times).tolist() == [4, 3, 4, 2, 2]
    assert servers[0].is_listed(times).tolist() == [True, True, True, True, False]
    assert servers[3].is_listed(times).tolist() == [True, True, True, False, False]
    assert [life.start_seconds for life in servers[2].lives] == [0.0, 1.5 * HOUR]
    sent = pool_requests(made, HOUR, 2 * HOUR)
    assert not (sent[2].arrival_seconds < 1.5 * HOUR).any()
    assert sum(map(len, sent)) / (8 * HOUR) == pytest.approx(1.0, rel=0.05)
    assert len(pool_requests(made, 2 * HOUR, 3 * HOUR)[3]) == 0


def test_the_hidden_engine_is_harder_than_a_model_and_follows_from_the_seed() -> None:
    made = scenario(
        {},
        duration="30d",
        faults=[
            {"kind": "slowdown", "at": "10d", "until": "11d", "factor": 1.25, "replicas": [1]},
            {"kind": "wedge", "at": "29d", "replicas": [1]},
        ],
    )
    first, other = disturbance_of(made, 7, 0), disturbance_of(made, 7, 1)
    assert np.array_equal(first.factors, disturbance_of(made, 7, 0).factors)
    logs = np.log(first.factors)
    assert 0.03 < logs.std() < 0.04 and abs(first.factors.mean() - 1) < 0.01
    hour = 120  # grid steps
    assert np.corrcoef(logs[:-hour], logs[hour:])[0, 1] > 0.4  # remembers for more than an hour
    assert len(first.stall_seconds) == pytest.approx(120, abs=45)
    lengths = first.stall_durations_seconds
    assert lengths.min() >= 0.5 and lengths.max() <= 5.0
    assert other.stall_durations_seconds.max() > 1e6 and first.jitter_sigma > 0
    engine, rng = made.engine, generator(7, "wander", 1)
    slow = engine.wander_sd_ratio, engine.wander_correlation
    calm = np.exp(wander(*slow, other.factor_seconds, rng))
    during = (other.factor_seconds >= 864_000) & (other.factor_seconds < 950_400)
    ratio = other.factors / calm
    assert ratio[during] == pytest.approx(1.25) and ratio[~during] == pytest.approx(1.0)
    law = step_time_of(made.engine, made.pool)
    assert law.seconds(0, 33, 33_000) == law.seconds(0, 40, 33_000)  # CUDA graphs
    twice = law.seconds(2048, 0, 0, 2048.0**2) - law.seconds(2048, 0, 0, 2048.0**2 / 2)
    assert twice > 0.01 * law.seconds(2048, 0, 0)  # quadratic attention


def test_a_burst_raises_the_rate_and_ends() -> None:
    made = scenario(
        {"requests_per_second": 1.0, "bursts": {"per_day": 20, "lasting": "4m", "rate_factor": 5}},
        duration="24h",
    )
    rates = PoolTraffic.of(made, 4).rates(np.arange(5.0, 86_400.0, 10.0))
    quiet = np.isclose(rates, 1.0)
    assert 0.8 < quiet.mean() < 0.99 and np.median(rates[~quiet]) > 2.5


@pytest.mark.parametrize("share", [0.12, 0.95])
def test_servers_are_as_busy_as_the_share_that_is_asked_for(share: float) -> None:
    made = scenario(
        {"requests_per_second": None, "utilisation_ratio": share},
        duration="30m",
        engine={"times_roofline": 4.0, "wander_sd_ratio": 0.0, "stalls_per_day": 0.0},
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
    with pytest.raises(ValidationError, match="needs one of"):
        scenario(traffic)
