"""A day's row against the same day computed from all its minutes at once."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from trend_cases import DAY, MONDAY, folded, recorded, tiled, together

from driftwatch.detect.trend.days import DAY_SCHEMA, finished_days


@pytest.fixture(scope="module")
def two_days(shared_data: Path) -> pl.DataFrame:
    """A day of run_slow's minutes, one of run_cap's, and a minute of the day after."""
    slow = recorded(shared_data / "vllm-0.32" / "run_slow")
    cap = recorded(shared_data / "vllm-0.32" / "run_cap").filter(pl.col("scrapes") > 0)
    every = together(
        tiled(slow, MONDAY, MONDAY + DAY),
        tiled(cap, MONDAY + DAY, MONDAY + 2 * DAY),
        tiled(slow, MONDAY + 2 * DAY, MONDAY + 2 * DAY + timedelta(minutes=1)),
    )
    rng = np.random.default_rng(0)
    speed = pl.Series(np.exp(rng.normal(-0.1, 0.05, len(every))))
    known = pl.Series(rng.random(len(every)) < 0.8)
    return every.with_columns(speed_at_equal_load_ratio=pl.when(known).then(speed))


def test_a_day_is_what_its_minutes_are(two_days: pl.DataFrame) -> None:
    _, memory = folded(two_days)
    days = finished_days(memory)
    assert days["day"].to_list() == [MONDAY, MONDAY + DAY]
    assert dict(days.schema) == {
        k: pl.DataFrame(schema={k: t}).schema[k] for k, t in DAY_SCHEMA.items()
    }
    for row in days.iter_rows(named=True):
        end = pl.col("end")
        mine = two_days.filter((end > row["day"]) & (end <= row["day"] + DAY))
        assert len(mine) == 1440
        assert row["minutes"] == (mine["scrapes"] > 0).sum()
        for name in ("prompt_tokens", "generation_tokens"):
            mean = mine[f"{name}_sum"].sum() / mine[f"{name}_count"].sum()
            assert row[f"{name}_mean"] == pytest.approx(mean, rel=1e-12)
        assert row["finished_requests"] == mine["prompt_tokens_count"].sum()
        rate = mine["generation_tokens_total"].sum() / mine["duration_seconds"].sum()
        assert row["tokens_per_second_per_gpu"] == pytest.approx(rate, rel=1e-12)
        for signal in ("prompt_tokens", "generation_tokens", "ttft_seconds"):
            summed = np.array(mine[f"{signal}_buckets"].to_list()).sum(axis=0)
            assert row[f"{signal}_buckets"] == summed.tolist()
            assert row[f"{signal}_edges"] == mine[f"{signal}_edges"][0].to_list()
        per_pass = (mine["itl_seconds_count"] + mine["ttft_seconds_count"]) / mine["forward_passes"]
        exact = np.quantile(per_pass.drop_nulls(), 0.5, method="inverted_cdf")
        assert row["requests_per_forward_pass_p50"] == pytest.approx(exact, rel=0.021)
        speed = mine["speed_at_equal_load_ratio"]
        assert row["speed_at_equal_load_ratio"] == pytest.approx(speed.median(), rel=0.002)
        assert row["slo_missed_ratio"] is None  # no target was declared
    assert days["requests_per_forward_pass_p50"][1] > days["requests_per_forward_pass_p50"][0]


def test_only_the_last_days_are_kept_and_a_day_without_a_scrape_is_none(
    two_days: pl.DataFrame,
) -> None:
    later = two_days.with_columns(pl.col("end") + 5 * DAY)
    unseen = two_days.with_columns(
        pl.when(pl.col("end").is_null()).then(pl.col(c)).alias(c)
        for c in two_days.columns
        if c not in ("instance", "engine", "pool", "end")
    ).with_columns(pl.col("end") + 2 * DAY, scrapes=pl.lit(0.0))
    gone = unseen.filter(pl.col("end") > MONDAY + 2 * DAY + timedelta(minutes=1))
    _, memory = folded(together(two_days, gone, later))
    assert finished_days(memory)["day"].to_list() == [MONDAY + 5 * DAY, MONDAY + 6 * DAY]
    assert finished_days(folded(two_days[:100])[1]).is_empty()


@pytest.mark.parametrize("signal", ["e2e_seconds", "generation_tokens"])
def test_end_to_end_days_of_other_edges_are_not_compared(shared_data: Path, signal: str) -> None:
    """The same requests in other cells have another p99: a step that is nobody's drift."""
    minute = recorded(shared_data / "vllm-0.32" / "run_slow").head(20)
    other = minute.with_columns(
        pl.col(f"{signal}_{part}").list.gather_every(2, 1) for part in ("buckets", "edges")
    )
    change = MONDAY + 2 * DAY + timedelta(hours=5)
    every = together(
        tiled(minute, MONDAY, change),
        tiled(other, change, MONDAY + 3 * DAY + timedelta(minutes=1)),
    ).with_columns(speed_at_equal_load_ratio=pl.lit(0.98))
    _, memory = folded(every)
    hours = memory.arrays["equal_lengths"][0, -3:, :, 0]
    assert hours[:, 0].tolist() == [24, 24, 24]  # the speed is a mean, whatever the edges
    assert hours[:, 1].tolist() == [0, 0, 19]


def test_hours_of_a_sudden_loss_are_no_end_to_end_hours(shared_data: Path) -> None:
    minute = recorded(shared_data / "vllm-0.32" / "run_slow").head(20)
    every = tiled(minute, MONDAY, MONDAY + DAY + timedelta(minutes=1))
    hour = pl.col("end").dt.hour()
    told = every.with_columns(
        speed_at_equal_load_ratio=pl.lit(0.98),
        slower_at_equal_load=hour == 3,
        slower_than_pool=pl.when(hour == 7).then(pl.lit(True)),
    )
    for rows, hours in ((every, 24), (told, 20)):  # 03:00 and 04:00, as the minutes end
        _, memory = folded(rows)
        assert memory.arrays["equal_lengths"][0, -1, 1, 0] == hours
