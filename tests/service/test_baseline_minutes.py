"""Minutes that a baseline leaves out."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import polars as pl

from driftwatch.baselines.proposals import marked
from driftwatch.signals.minutes import MINUTE_SCHEMA

START = datetime(2026, 11, 9, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


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
