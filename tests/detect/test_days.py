"""Days of a server: slow drifts, lengths of whole days, and what is usual without a baseline."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date, datetime, timedelta

import numpy as np
import polars as pl
import pytest
from detector_cases import START, at, minutes_of, play

from driftwatch.detect.baselines import Baseline, Baselines
from driftwatch.detect.days import day_before, learn_usual, with_day, with_usual
from driftwatch.detect.reference import (
    REFERENCE_SCHEMA,
    baseline_of_minutes,
    declared,
    no_reference,
)
from driftwatch.detect.references import Day, PoolHour, References, TargetDays
from driftwatch.model import TargetKey

FIRST = date(2026, 3, 2)
KEY = TargetKey("a:8000", "0")
DAY = timedelta(days=1)


def days_of(medians: list[float], models: list[str] | None = None) -> TargetDays:
    days = TargetDays()
    for number, median in enumerate(medians):
        model = models[number] if models else "m"
        day = Day(day=FIRST + timedelta(days=number), speeds=((median, model),) * 6)
        days = with_day(days, day, None)
    return days


def noise(days: int) -> np.ndarray:  # type: ignore[type-arg]
    return np.random.default_rng(3).normal(0, 0.004, days)


def test_a_loss_of_5_percent_in_two_weeks_creeps() -> None:
    days = days_of([*(-0.05 / 14 * np.arange(14) + noise(14))])
    assert days.latency_creeps
    assert days.speed_slope_14d_ratio == pytest.approx(-0.05, abs=0.015)
    assert days.speed_slope_14d_ratio is not None and days.speed_slope_14d_upper_ratio is not None
    assert days.speed_slope_14d_ratio < days.speed_slope_14d_upper_ratio < 0


def test_days_that_wander_or_rise_do_not_creep() -> None:
    assert days_of([*noise(20)]).latency_creeps is False
    assert days_of([*(0.05 / 14 * np.arange(14) + noise(14))]).latency_creeps is False
    assert days_of([*(-0.015 / 14 * np.arange(14) + noise(14) / 4)]).latency_creeps is False


def test_fewer_than_seven_days_of_one_model_say_nothing() -> None:
    days = days_of([-0.01 * k for k in range(9)], ["old"] * 5 + ["new"] * 4)
    assert days.latency_creeps is None
    assert days.speed_slope_14d_ratio is None


def test_a_day_of_few_hours_is_none() -> None:
    assert with_day(TargetDays(), Day(day=FIRST, speeds=((0.0, "m"),) * 3), None).speeds == ()
    # of one in which another model came the later model counts
    mixed = Day(day=FIRST, speeds=((0.5, "old"),) * 20 + ((0.0, "new"),) * 4)
    assert with_day(TargetDays(), mixed, None).speeds == ((FIRST, 0.0, "new"),)


def test_lengths_moved_on_two_days_running() -> None:
    lengths = (60_000.0, 100.0, 20_000.0, 100.0)
    day = Day(day=FIRST, lengths=lengths, hours=24, limited_minutes=10)
    first = with_day(TargetDays(), day, (400.0, 200.0))
    assert first.baseline_lengths_moved is False
    second = with_day(first, day, (400.0, 200.0))
    assert second.baseline_lengths_moved is True
    assert second.prompt_tokens_day_ratio == pytest.approx(1.5)
    assert with_day(second, day, (600.0, 200.0)).baseline_lengths_moved is False
    assert with_day(first, day, None).baseline_lengths_moved is None
    idle = day.model_copy(update={"limited_minutes": 9})
    assert with_day(first, idle, (400.0, 200.0)).baseline_lengths_moved is False


@pytest.mark.parametrize(
    ("binds", "missed", "minutes"),
    [(0.5, True, 60), (0.5, None, 60), (0.5, False, 0), (0.4, True, 0), (None, True, 0)],
)
def test_a_day_counts_minutes_in_which_a_limit_costs(
    binds: float | None, missed: bool | None, minutes: int
) -> None:
    some = minutes_of(60, ("a:8000",)).with_columns(
        limit_binding_share_10m_ratio=pl.lit(binds, pl.Float64),
        slo_missed=pl.lit(missed, pl.Boolean),
    )
    _, detection = play(some)
    found = detection.references.find(PoolHour, "chat")
    assert found is not None
    (day,) = found[0].days.values()
    assert day.limited_minutes == minutes


def test_days_come_from_the_hours() -> None:
    rows = minutes_of(1500, ("a:8000",))
    for part_of_a_day, known in ((False, True), (True, False)):
        base = rows.filter(pl.col("end") <= at(300 if part_of_a_day else 1440))
        _, detection = play(rows, reference=baseline_of_minutes(base))
        days = detection.references.days("chat", KEY)
        ((day, median, model),) = days.speeds
        assert day == FIRST
        assert abs(median) < 0.03
        assert model == "provisional"
        assert (days.prompt_tokens_day_ratio is not None) is known


def day_of(midnight: datetime, *, hits: float, hours: int = 24) -> pl.DataFrame:
    """Minutes of the 24 hours that a midnight learns, with this share of prefix hits."""
    since, until = day_before(midnight)
    rows = minutes_of(60 * hours, ["a:8000"])
    return rows.with_columns(
        end=pl.col("end") - START + until - timedelta(hours=hours),
        prefix_cache_queries_total=pl.col("prompt_tokens_total"),
        prefix_cache_hits_total=hits * pl.col("prompt_tokens_total"),
    ).filter(pl.col("end") > since)


def learnt(days: Mapping[int, float], hours: int = 24) -> References:
    references = References()
    for number, hits in days.items():
        midnight = START + number * DAY
        day = day_of(midnight, hits=hits, hours=hours)
        references = references.with_newer(learn_usual(day, references, midnight))
    return references


def before_of(references: References, when: datetime, **rows: pl.DataFrame) -> dict[str, object]:
    measured, tuned = rows.get("measured", no_reference()), rows.get("declared", no_reference())
    found = with_usual(measured, tuned, references, when.date())
    assert dict(found.schema) == REFERENCE_SCHEMA
    return found.row(0, named=True) if len(found) else {}


def test_one_day_of_trouble_does_not_become_usual() -> None:
    references = learnt({1: 0.6, 2: 0.58, 3: 0.1})
    row = before_of(references, START + 3 * DAY)
    assert row["reference_prefix_cache_hit_ratio"] == pytest.approx(0.58)
    assert row["kind"] is None
    assert row["reference_tokens_per_output"] == pytest.approx(1.0, abs=0.02)
    assert row["reference_prompt_tokens_mean"] is None


def test_no_more_than_seven_days_and_none_of_the_future_count() -> None:
    references = learnt({n: 0.1 * min(n, 9) for n in range(1, 10)})
    assert len(references.days("chat", KEY).measures) == 7
    row = before_of(references, START + 4 * DAY)
    assert row["reference_prefix_cache_hit_ratio"] == pytest.approx(0.35)
    assert before_of(references, START + 30 * DAY) == {}  # a baseline held for weeks


def test_a_baseline_says_it_and_tuned_for_keeps_what_it_declares() -> None:
    references = learnt({1: 0.6})
    lengths = {"reference_prompt_tokens_mean": 500.0, "reference_generation_tokens_mean": 100.0}
    tuned = declared([{"instance": KEY.instance, "engine": KEY.engine, **lengths}])
    row = before_of(references, START + DAY, declared=tuned)
    assert (row["kind"], row["reference_prompt_tokens_mean"]) == ("tuned_for", 500.0)
    assert row["reference_prefix_cache_hit_ratio"] == pytest.approx(0.6)
    measured = tuned.with_columns(kind=pl.lit("baseline"), reference_prefix_cache_hit_ratio=0.3)
    row = before_of(references, START + DAY, measured=measured)
    assert row["reference_prefix_cache_hit_ratio"] == 0.3


def test_a_midnight_learns_of_whom_no_baseline_is_accepted() -> None:
    rows = minutes_of(60 * 24, ["a:8000"])
    _, detection = play(rows, cuts=[START + timedelta(hours=k) for k in range(1, 24)])
    days = detection.references.days("chat", KEY)
    assert len(days.measures) == len(days.speeds) == 1
    window = {"since": START - DAY, "until": START, "accepted_at": START}
    baseline = Baseline(id="b001", scope="pool", pool="chat", accepted_by="sre", **window)
    _, detection = play(
        rows,
        cuts=[START + timedelta(hours=k) for k in range(1, 24)],
        baselines=Baselines((baseline,)),
    )
    assert detection.references.days("chat", KEY).measures == ()
