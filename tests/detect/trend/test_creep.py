"""When a slow drift is worth a ticket: healthy months, losses over weeks, what is not compared."""

from __future__ import annotations

from datetime import date, timedelta
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from trend_cases import DAY, MONDAY, PLAIN, folded, recorded, tiled

from driftwatch.detect.baselines import Baselines
from driftwatch.detect.settings import DetectSettings
from driftwatch.detect.trend.creep import part_of_week, reasons, trend_columns
from driftwatch.detect.trend.memory import DAYS, HOLD, Memory

TODAY = (MONDAY.date() - date(1970, 1, 1)).days + 28
# Daily medians of an engine whose ln speed wanders by 3.5 % for 90 min at a time.
WANDER = 0.0125


def remembered(ln_speed: np.ndarray, reference: int = 7) -> dict[str, np.ndarray]:
    """A memory of targets with these days of speed [n, days], the last one yesterday."""
    targets = pl.DataFrame(
        {"instance": [f"h{i:04d}" for i in range(len(ln_speed))], "engine": "0", "pool": "chat"}
    )
    arrays = dict(Memory().with_targets(targets).arrays)
    days = ln_speed.shape[1]
    for name, values in (
        ("ln_speed", ln_speed),
        ("speed_minutes", 1400.0),
        ("speed_reference", reference),
    ):
        filled = arrays[name].copy()
        filled[:, DAYS - days :] = values
        arrays[name] = filled
    return arrays


def creeps(arrays: dict[str, np.ndarray]) -> np.ndarray:
    return np.nan_to_num(trend_columns(arrays, TODAY, PLAIN)[:, HOLD["latency_creeps"]]) > 0


def healthy(targets: int, days: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(0, WANDER, (targets, days))


def test_healthy_servers_creep_within_their_budget() -> None:
    """At most 0.05 tickets per server-month, the first four weeks of a server among them."""
    every = healthy(600, 35)
    before = np.zeros(600, dtype=bool)
    episodes = 0
    for days in range(7, 36):
        now = creeps(remembered(every[:, max(0, days - DAYS) : days]))
        episodes += int((now & ~before).sum())
        before = now
    assert 0 < episodes / 600 * 30 / 29 <= 0.05
    assert not creeps(remembered(healthy(600, 28, seed=1))).any()


@pytest.mark.parametrize(("loss", "days", "least"), [(0.10, 14, 0.9), (0.05, 21, 0.9)])
def test_a_loss_over_weeks_is_found(loss: float, days: int, least: float) -> None:
    falling = healthy(500, days) + np.log(1 - loss) / 14 * np.arange(days)
    assert creeps(remembered(falling)).mean() >= least
    # the other way it is no loss
    assert not creeps(remembered(-falling)).any()


def test_three_percent_are_the_border() -> None:
    small = healthy(500, 28) - 0.02 / 14 * np.arange(28)
    assert creeps(remembered(small)).mean() <= 0.02
    larger = healthy(500, 28) - 0.04 / 14 * np.arange(28)
    assert creeps(remembered(larger)).mean() >= 0.95


def test_days_of_few_minutes_and_of_another_reference_are_not_compared() -> None:
    arrays = remembered(healthy(1, 28) - 0.2 / 14 * np.arange(28))
    assert creeps(arrays).all()
    few = {**arrays, "speed_minutes": np.minimum(arrays["speed_minutes"], 100)}
    held = trend_columns(few, TODAY, PLAIN)
    assert np.isnan(held[0, HOLD["speed_slope_14d_ratio"]])
    assert np.isnan(held[0, HOLD["latency_creeps"]])
    other = arrays["speed_reference"].copy()
    other[:, :22] = 8  # a new pin six days ago: its days alone count
    changed = {**arrays, "speed_reference": other}
    changed["held"] = trend_columns(changed, TODAY, PLAIN)
    assert np.isnan(changed["held"][0, HOLD["speed_slope_14d_ratio"]])
    assert reasons(changed)[0].startswith("speed at equal load: 6 of 7 days; ")


def test_every_column_says_what_it_is() -> None:
    arrays = remembered(-0.01 * np.arange(28.0)[None, :])
    held = trend_columns(arrays, TODAY, PLAIN)[0]
    for part in ("", "lower_", "upper_"):
        assert held[HOLD[f"speed_slope_14d_{part}ratio"]] == pytest.approx(-0.14)
    assert held[HOLD["latency_creeps"]] == 1.0
    assert np.isnan(held[HOLD["e2e_p50_slope_14d_ratio"]])


def test_weekends_and_holidays_are_another_part_of_the_week() -> None:
    monday = (MONDAY.date() - date(1970, 1, 1)).days
    assert [part_of_week(monday + i, PLAIN) for i in range(7)] == [0, 0, 0, 0, 0, 1, 1]
    closed = DetectSettings(holidays={MONDAY.date() + timedelta(days=2): "closed"})
    assert [part_of_week(monday + i, closed) for i in range(4)] == [0, 0, 1, 0]


def test_ten_days_of_real_minutes_whose_engine_slows(shared_data: Path) -> None:
    """Through the whole detector: the ticket comes with the first minute of a day, and stays."""
    minute = recorded(shared_data / "vllm-0.32" / "run_slow").head(20)
    every = tiled(minute, MONDAY, MONDAY + 10 * DAY + timedelta(minutes=2))
    elapsed = (every["end"] - MONDAY).dt.total_minutes() / 1440
    rng = np.random.default_rng(0)
    noise = rng.normal(0, 0.035, len(every))
    every = every.with_columns(speed_at_equal_load_ratio=(elapsed * -0.01 + noise).exp())
    found, _ = folded(every, pins=Baselines())
    firing = found.filter(pl.col("latency_creeps"))["end"]
    assert firing.min() == MONDAY + 8 * DAY + timedelta(minutes=1)
    assert len(firing) == 2 * 1440 + 2
    last = found.row(-1, named=True)
    assert last["speed_slope_14d_ratio"] == pytest.approx(-0.14, abs=0.01)
    lower, upper = (last[f"speed_slope_14d_{end}_ratio"] for end in ("lower", "upper"))
    assert lower < last["speed_slope_14d_ratio"] < upper < 0
    # one and the same quarter of an hour, over and over: nothing to adjust, and no trend
    assert abs(last["e2e_p50_slope_14d_ratio"]) < 0.005
    assert last["trend_unknown_reason"] in (
        None,
        "p99 end-to-end at equal lengths: 0 of 7 days",
    )
