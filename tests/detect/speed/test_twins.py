"""What twins say of one whose load, or whose reference, is not theirs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from made_minutes import made
from recorded_minutes import SERVING, WATCHING, pinned, told_of

from driftwatch.detect.baselines import Baselines
from driftwatch.detect.settings import DetectSettings
from driftwatch.detect.speed.load_model import LoadModel, fit

MINUTES = 130


def servers(loads: list[np.ndarray], speeds: list[np.ndarray]) -> pl.DataFrame:
    made_of = [
        made(speed, load, seed=k, instance=f"host-{k}:8000")
        for k, (load, speed) in enumerate(zip(loads, speeds, strict=True))
    ]
    return pl.concat(made_of).sort("instance", "engine", "end")


@pytest.mark.parametrize("alone", [True, False])
def test_load_that_one_alone_has_is_not_booked_as_slowness(*, alone: bool) -> None:
    """Six times the range of the pin, where its law may be 13 % too low."""
    rng = np.random.default_rng(7)
    loads = [rng.uniform(3, 10, MINUTES) for _ in range(4)]
    speeds = [np.ones(MINUTES) for _ in range(4)]
    speeds[1][60:] = 0.85
    if alone:
        loads[1][60:] = rng.uniform(58, 62, MINUTES - 60)
    pool = servers(loads, speeds)
    model = fit(pool.filter(pl.col("instance") == "host-0:8000"))
    assert isinstance(model, LoadModel)
    told, _ = told_of(pool, pinned(model, pool, "pool"), SERVING)
    slower = told.filter(pl.col("slower_than_pool"))
    assert set(slower["instance"]) == (set() if alone else {"host-1:8000"})


@pytest.mark.parametrize("settings", [SERVING, WATCHING], ids=["serve", "watch"])
def test_one_that_joins_slow_is_not_its_own_reference(settings: DetectSettings) -> None:
    rng = np.random.default_rng(8)
    speeds = [np.ones(MINUTES)] * 3 + [np.full(MINUTES, 0.77)]
    pool = servers([rng.uniform(3, 20, MINUTES) for _ in speeds], speeds)
    model = fit(pool.filter(pl.col("instance") == "host-0:8000"))
    assert isinstance(model, LoadModel)
    one = pinned(model, pool).every[0]
    pins = Baselines(tuple(replace(one, id=f"p{k}", instance=f"host-{k}:8000") for k in range(3)))
    told, _ = told_of(pool, pins, settings)
    last = {row["instance"]: row for row in told.sort("end").iter_rows(named=True)}
    assert last["host-3:8000"]["speed_against_pool_ratio"] == pytest.approx(0.77, abs=0.03)
    assert last["host-0:8000"]["speed_against_pool_ratio"] == pytest.approx(1.0, abs=0.03)


def test_where_the_others_have_risen_nobody_is_slower() -> None:
    """Two of three were slow until minute 70; the third was and is as its pin says."""
    rng = np.random.default_rng(9)
    speeds = [np.full(MINUTES, 0.97)] + [
        np.where((np.arange(MINUTES) >= 20) & (np.arange(MINUTES) < 80), 0.77, 1.0)
        for _ in range(2)
    ]
    pool = servers([rng.uniform(3, 20, MINUTES) for _ in speeds], speeds)
    model = fit(made(np.ones(MINUTES), rng.uniform(3, 20, MINUTES)))
    assert isinstance(model, LoadModel)
    told, _ = told_of(pool, pinned(model, pool, "pool"), SERVING)
    last = told.filter(pl.col("instance") == "host-0:8000")
    assert last["speed_against_pool_ratio"][90] == pytest.approx(0.97, abs=0.02)
    assert not last["slower_than_pool"].any()
