"""Bounds that a detector keeps, each from both sides."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from sqlalchemy import select

from driftwatch.detect.distributions import MAX_MERGED_RATIO, aligned
from driftwatch.detect.lengths.scales import Thresholds, threshold_of
from driftwatch.detect.null import day_number, null
from driftwatch.detect.proposals import marked
from driftwatch.signals.minutes import MINUTE_SCHEMA
from driftwatch.store import Store
from driftwatch.store.database import writing
from driftwatch.store.minute_columns import STORED_SCHEMA
from driftwatch.store.minutes import hour_of, write_minutes
from driftwatch.store.tables import minute_batches

MONDAY = day_number(date(2026, 11, 9))
START = datetime(2026, 11, 9, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


@pytest.mark.parametrize(("inside", "told"), [(49.0, True), (51.0, False)])
def test_half_of_the_mass_may_lie_where_both_layouts_were_finer(inside: float, told: bool) -> None:
    assert MAX_MERGED_RATIO == 0.5
    # only between 10 and 100 both have an edge that the other lacks
    first = np.array([1.0, 2.0, 5.0, 10.0, 20.0, 100.0, np.inf])
    second = np.array([1.0, 2.0, 5.0, 10.0, 60.0, 100.0, np.inf])
    counts = np.array([[0.0, 0.0, 0.0, 100.0 - inside, inside, 0.0, 0.0]])
    pair = aligned(counts, first, counts, second)
    assert pair is not None
    for side in pair[:2]:
        assert np.isfinite(side).all() == told


@pytest.mark.parametrize(("scope", "times"), [(0, 1.0), (1, 4.0)])
def test_a_pool_has_the_budget_of_four_servers(scope: int, times: float) -> None:
    peaks = 1.0 + np.random.default_rng(5).exponential(0.25, 60)
    week = Thresholds().at(MONDAY, 0.25).counted(scope, peaks, 2 * 43_200)
    value = week.at(MONDAY + 7, 0.25).values[scope]
    assert value == pytest.approx(threshold_of(week.peaks[scope], 2.0, 0.25 * times))


@pytest.mark.parametrize(("months", "is_set"), [(0.24, False), (0.26, True)])
def test_a_quarter_of_a_month_is_the_least_that_sets_a_threshold(
    months: float, is_set: bool
) -> None:
    week = Thresholds().at(MONDAY, 0.25).counted(0, np.full(20, 1.5), round(months * 43_200))
    assert (week.at(MONDAY + 7, 0.25).values != week.values) == is_set


def test_a_bin_that_overflows_stays_full() -> None:
    keys = pl.DataFrame({"instance": ["a"]})
    made, _ = null(np.linspace(0.0, 1.0, 3), ["instance"], days=2, least=1).with_keys(keys)
    made = made.begun(MONDAY)
    full = made.slots.with_arrays(current=np.array([[70_000, 5]], dtype=np.uint32))
    made = replace(made, slots=full).begun(MONDAY + 1)
    assert made.past[0, 0].tolist() == [65_535, 5]


def _minutes(first: int, last: int, seen_from: int = 0, **columns: object) -> pl.DataFrame:
    """Minutes of one target that end in (first, last] after the start."""
    rows = [
        {
            "instance": "h:8000",
            "engine": "0",
            "pool": "chat",
            "end": START + minute * MINUTE,
            "scrapes": 4.0 if minute > seen_from else 0.0,
            **columns,
        }
        for minute in range(first + 1, last + 1)
    ]
    return pl.DataFrame(rows, schema=MINUTE_SCHEMA)


def test_the_first_ten_minutes_of_a_server_that_comes_are_no_baseline() -> None:
    found = marked(_minutes(0, 60, seen_from=20))
    warm = found.filter(pl.col("left_out") == "its first 10 min")["end"].to_list()
    assert warm == [START + minute * MINUTE for minute in range(21, 31)]
    # one that was there from the beginning may have run for long
    assert "its first 10 min" not in marked(_minutes(0, 60))["left_out"].to_list()


def test_the_minutes_of_a_sleeping_engine_are_no_baseline() -> None:
    rows = _minutes(0, 60).with_columns(
        engine_asleep=pl.col("end").is_between(START + 20 * MINUTE, START + 29 * MINUTE)
    )
    said = marked(rows).filter(pl.col("left_out") == "the engine sleeps")["end"].to_list()
    assert said == [START + minute * MINUTE for minute in range(20, 30)]


def test_ten_minutes_after_a_restart_are_no_baseline() -> None:
    rows = _minutes(0, 60).with_columns(restarted=pl.col("end") == START + 20 * MINUTE)
    said = marked(rows).filter(pl.col("left_out").str.contains("restart"))["end"].to_list()
    assert said == [START + minute * MINUTE for minute in range(20, 30)]


def test_a_minute_that_ends_on_the_hour_belongs_to_the_hour_before(tmp_path: Path) -> None:
    rows = _minutes(30, 150).select(
        (pl.col(name) if name in MINUTE_SCHEMA else pl.lit(None)).cast(dtype).alias(name)
        for name, dtype in STORED_SCHEMA.items()
    )
    with Store.open(tmp_path / "d.db") as store, writing(store._engine) as connection:
        write_minutes(connection, rows)
        found = connection.execute(
            select(minute_batches.c.since, minute_batches.c.until).order_by(minute_batches.c.since)
        ).all()
    assert [(since, until) for since, until in found] == [
        (START + 30 * MINUTE, START + 60 * MINUTE),
        (START + 60 * MINUTE, START + 120 * MINUTE),
        (START + 120 * MINUTE, START + 150 * MINUTE),
    ]
    assert all(hour_of(since) == hour_of(until - MINUTE) for since, until in found)
