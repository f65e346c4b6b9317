"""Replicas for autoscalers: the number where everything is known, no number anywhere else."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from prometheus_client import CollectorRegistry
from service_cases import FrameSource, shipped_plan

from driftwatch.clock import ManualClock
from driftwatch.collect.server_settings import from_config
from driftwatch.fleet.generate import generate
from driftwatch.fleet.hidden_engine import capacity
from driftwatch.fleet.scenario.model import Scenario
from driftwatch.fleet.servers import targets_of
from driftwatch.model import Reason, Slo, TargetKey
from driftwatch.pipeline.advised_replicas import (
    NO_MINUTES,
    NOT_SIMULATED,
    STANDS,
    Advised,
    Capacity,
    advised_replicas,
    arrivals_of,
    demand_of,
)
from driftwatch.pipeline.plan import Plan, Pool
from driftwatch.pipeline.state import State
from driftwatch.recommend.candidates import MARGIN
from driftwatch.recommend.replicas import replicas_for
from driftwatch.service.pool_metrics import ADVISED, UNKNOWN, PoolMetrics
from driftwatch.service.run import Service
from driftwatch.service.target_metrics import PREFIX, STALE_SECONDS
from driftwatch.settings.autoscaling import AutoscalingSettings
from driftwatch.store.store import Store

NOON = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


def _minutes(*targets: Mapping[str, Any], count: int = 10) -> pl.DataFrame:
    """The last minutes before noon of some targets; a value may be a function of the minute."""
    usual = {"pool": "rag", "ttft_seconds_count": 60.0, "duration_seconds": 60.0}
    usual |= {"waiting_requests": 0.0, "rejected_requests_total": None, "ever_seen": True}
    rows = [
        {name: value(n) if callable(value) else value for name, value in {**usual, **one}.items()}
        | {"end": NOON - n * MINUTE}
        for one in targets
        for n in range(count)
    ]
    return pl.DataFrame(rows, schema_overrides={"rejected_requests_total": pl.Float64})


def _demand(*targets: Mapping[str, Any], count: int = 10) -> float | None:
    return demand_of(arrivals_of(_minutes(*targets, count=count)), NOON)


def test_the_demand_is_what_was_served_and_by_how_much_the_queue_grew() -> None:
    assert _demand({}, {"ttft_seconds_count": 120.0}) == pytest.approx(3.0)
    # nine minutes apart 54 more wait
    assert _demand({"waiting_requests": lambda n: 6.0 * (9 - n)}) == pytest.approx(1.1)
    # a queue that shrinks is no smaller demand
    assert _demand({"waiting_requests": lambda n: 6.0 * n}) == pytest.approx(1.0)
    assert _demand({"rejected_requests_total": 60.0}) == pytest.approx(2.0)
    # half a minute of scrapes has half the requests
    assert _demand({"ttft_seconds_count": 30.0, "duration_seconds": 30.0}) == pytest.approx(1.0)


def test_who_left_the_pool_and_who_came_counts_for_its_minutes() -> None:
    def minutes(first: int, last: int) -> pl.DataFrame:
        return _minutes({"ttft_seconds_count": 120.0}).filter(
            pl.col("end").is_between(NOON - last * MINUTE, NOON - first * MINUTE)
        )

    left, came = minutes(5, 9), minutes(0, 4)
    both = arrivals_of(pl.concat([_minutes({}), left, came]))
    assert demand_of(both, NOON) == pytest.approx(3.0)


@pytest.mark.parametrize(
    "other",
    [
        {"ttft_seconds_count": lambda n: None if n == 0 else 60.0},
        {"ttft_seconds_count": lambda n: None if n > 6 else 60.0},
        {"waiting_requests": None},
        {"duration_seconds": 0.0},
    ],
    ids=["newest", "three of ten", "queue", "no scrape"],
)
def test_a_target_that_is_not_known_leaves_the_demand_unknown(other: Mapping[str, Any]) -> None:
    assert _demand({}, other) is None


def test_a_target_that_never_answered_has_no_requests() -> None:
    loading = {"ever_seen": False, "ttft_seconds_count": None, "waiting_requests": None}
    assert _demand({}, loading) == pytest.approx(1.0)


def test_eight_minutes_are_enough_and_seven_are_not() -> None:
    assert _demand({}, count=8) == pytest.approx(1.0)
    assert _demand({}, count=7) is None


A, B = TargetKey("a:1", "0"), TargetKey("b:1", "0")
TEN = Capacity(NOON, 12.0, 10.0)


def _advised(demand: float | None, *known: Capacity | None, load: float = 0.8) -> Advised:
    capacities = {key: one for key, one in zip((A, B), known, strict=True) if one is not None}
    return advised_replicas([A, B], demand, capacities, NOON, load)


def test_the_weakest_replica_by_its_slowest_model_counts() -> None:
    assert _advised(16.0, TEN, TEN) == Advised(2)
    assert _advised(16.1, TEN, TEN) == Advised(3)
    assert _advised(16.0, TEN, replace(TEN, low_requests_per_second=4.0)) == Advised(5)
    assert _advised(16.0, TEN, TEN, load=1.0) == Advised(2)
    assert _advised(0.0, TEN, TEN) == Advised(1)


def test_engines_of_one_instance_are_one_replica() -> None:
    keys = [TargetKey("a:1", "0"), TargetKey("a:1", "1")]
    assert advised_replicas(keys, 32.0, dict.fromkeys(keys, TEN), NOON, 0.8) == Advised(2)


def test_no_number_where_anything_is_unknown() -> None:
    refused = Capacity(NOON, reason=Reason("busy_windows", "7 busy minutes (limit 10)"))
    old = replace(TEN, at=NOON - STANDS - MINUTE)
    assert _advised(None, TEN, TEN) == Advised(None, NO_MINUTES)
    for other, code in (
        (refused, "busy_windows"),
        (old, NOT_SIMULATED.code),
        (None, NOT_SIMULATED.code),
    ):
        one = _advised(16.0, TEN, other)
        assert one.replicas is None
        assert one.reason is not None
        assert one.reason.code == code
        assert one.reason.text.startswith("capacity of b:1 unknown: ")


def test_the_target_load_is_that_below_which_a_verdict_calls_nothing_scarce() -> None:
    assert AutoscalingSettings.model_validate({}).target_load_ratio == MARGIN


def test_a_minute_that_is_long_past_advises_nothing() -> None:
    now = [NOON]
    metrics, registry = PoolMetrics(lambda: now[0]), CollectorRegistry()
    registry.register(metrics)
    metrics.note({"rag": Advised(3), "chat": Advised(None, NO_MINUTES)}, NOON)
    assert registry.get_sample_value(ADVISED, {"pool": "rag"}) == 3.0
    assert registry.get_sample_value(ADVISED, {"pool": "chat"}) is None
    unknown = {"pool": "chat", "reason": "minutes"}
    assert registry.get_sample_value(UNKNOWN, unknown) == 1.0
    now[0] += timedelta(seconds=STALE_SECONDS + 1)
    assert registry.get_sample_value(ADVISED, {"pool": "rag"}) is None
    assert registry.get_sample_value(UNKNOWN, unknown) is None


RATE = 20.0


@pytest.fixture(scope="module")
def scenario() -> Scenario:
    return Scenario.model_validate(
        {
            "name": "x",
            "title": "x",
            "duration": "40m",
            "pool": {"name": "rag-8b", "replicas": 2, "dcgm": False},
            "traffic": {"requests_per_second": RATE, "wander_ratio": 0.05},
            "truth": {},
        }
    )


@pytest.fixture(scope="module")
def scrapes(scenario: Scenario) -> pl.DataFrame:
    return pl.concat([chunk.scrapes for chunk in generate(scenario, 1)]).sort("time")


def _plan(**settings: Any) -> Plan:
    serving = from_config({"max_num_seqs": 256, "max_num_batched_tokens": 2048})
    pool = Pool("rag-8b", serving=serving, slo=Slo(2.0, 0.05))
    return replace(shipped_plan(1), pools=(pool,), **{"target_load_ratio": 0.8, **settings})


def _value(service: Service, name: str, **labels: str) -> float | None:
    return service.metrics.registry.get_sample_value(name, {"pool": "rag-8b", **labels})


def test_a_service_advises_what_its_simulation_says(
    scenario: Scenario, scrapes: pl.DataFrame, tmp_path: Path
) -> None:
    clock = ManualClock(scenario.start + timedelta(minutes=39))
    targets = targets_of(scenario)
    with Store.open(tmp_path / "d.db") as store:
        service = Service([FrameSource(scrapes, targets)], _plan(), store, [], clock)
        service.tick_once()
        assert _value(service, UNKNOWN, reason="not_simulated") == 1.0
        # two servers that are configured alike are one question
        answer = service.replica_advice.ask_once()
        assert answer is not None
        assert answer.advice.today is not None
        assert service.replica_advice.ask_once() is None
        advised = _value(service, ADVISED)
        low = answer.advice.today.capacity_low_requests_per_second
        assert low is not None
        # 5 % of wander, and 10 min of arrivals
        assert (
            replicas_for(0.9 * RATE, low, 0.8)
            <= (advised or 0)
            <= replicas_for(1.1 * RATE, low, 0.8)
        )
        assert advised >= RATE / capacity(scenario)
        assert _value(service, UNKNOWN, reason="not_simulated") is None
        clock.set(scenario.start + timedelta(minutes=40))
        service.tick_once()
        for key in targets:
            served = _value(service, f"{PREFIX}capacity_requests_per_second", **key._asdict())
            assert served == answer.advice.today.capacity_requests_per_second
        # rules and findings know nothing of it
        newest = store.past(scenario.start, scenario.start + timedelta(minutes=40))
        assert newest["capacity_requests_per_second"].null_count() == len(newest)
        service.adopt(_plan(target_load_ratio=None), [])
        service.tick_once()
        assert _value(service, ADVISED) is None
        assert service.replica_advice.ask_once() is None
        service.stop()


def test_who_gave_its_targets_away_advises_nothing(
    scenario: Scenario, scrapes: pl.DataFrame, tmp_path: Path
) -> None:
    clock = ManualClock(scenario.start + timedelta(minutes=39))
    with Store.open(tmp_path / "d.db") as store:
        service = Service([FrameSource(scrapes, targets_of(scenario))], _plan(), store, [], clock)
        outcome = service.tick_once()
        assert _value(service, UNKNOWN, reason="not_simulated") == 1.0
        none_left = replace(outcome, rows=outcome.rows.clear())
        service.replica_advice.with_capacity(none_left, State(), _plan())
        assert _value(service, UNKNOWN, reason="not_simulated") is None
        assert service.replica_advice.ask_once() is None
        service.stop()


def test_a_pool_is_asked_about_again_after_ten_minutes_and_at_once_after_a_newcomer(
    scenario: Scenario, scrapes: pl.DataFrame, tmp_path: Path
) -> None:
    one, two = sorted(targets_of(scenario).items())
    clock = ManualClock(scenario.start + timedelta(minutes=20))
    only = scrapes.filter(pl.col("instance") == one[0].instance)
    source = FrameSource(only, dict([one]))
    with Store.open(tmp_path / "d.db") as store:
        service = Service([source], _plan(), store, [], clock)
        asked = []
        for minute in range(20, 36):
            clock.set(scenario.start + timedelta(minutes=minute))
            if minute == 33:
                source.frame, source.targets = scrapes, dict([one, two])
            service.tick_once()
            if service.replica_advice.ask_once() is not None:
                asked.append(minute)
        service.stop()
    assert asked == [20, 30, 33]


def test_a_restart_forgets_no_demand(
    scenario: Scenario, scrapes: pl.DataFrame, tmp_path: Path
) -> None:
    advised = []
    for minute in (38, 39):
        clock = ManualClock(scenario.start + timedelta(minutes=minute))
        with Store.open(tmp_path / "d.db") as store:
            source = FrameSource(scrapes, targets_of(scenario))
            service = Service([source], _plan(), store, [], clock)
            service.tick_once()
            service.replica_advice.ask_once()
            advised.append(_value(service, ADVISED))
            service.stop()
    assert None not in advised
