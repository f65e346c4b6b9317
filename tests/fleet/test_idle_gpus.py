"""GPUs whose clocks fall while nothing runs: no throttle, and told so by a busy share of zero."""

from __future__ import annotations

from typing import Any

import polars as pl
from fleet_cases import whole_run

from driftwatch.fleet.scenario.model import Scenario


def gpus(rate: float, **pool: Any) -> pl.DataFrame:
    made = Scenario.model_validate(
        {
            "name": "x",
            "title": "x",
            "duration": "40m",
            "pool": {"replicas": 1, **pool},
            "traffic": {"requests_per_second": rate},
            "truth": {},
        }
    )
    return whole_run(made).gpus


def test_clock_and_power_fall_beside_an_idle_engine() -> None:
    nothing = gpus(0.02, idle_clocks=True)
    resting = nothing.filter(pl.col("engine_active_ratio") < 0.01)
    assert resting["sm_clock_hertz"].median() == 345e6
    assert resting["power_watts"].median() < 80
    steady = gpus(0.02)
    assert steady["sm_clock_hertz"].min() == 1980e6 and steady["power_watts"].min() >= 115


def test_a_busy_gpu_keeps_its_clock_but_for_a_moment() -> None:
    busy = gpus(8.0, idle_clocks=True)
    assert (busy["sm_clock_hertz"] == 1980e6).mean() > 0.9  # type: ignore[operator]
