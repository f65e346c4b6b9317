"""The hour of minutes that ticks carry from one to the next, where no store keeps them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import polars as pl

from driftwatch.model import TargetKey
from driftwatch.pipeline.minutes import (
    CARRIED,
    RECENT_SCHEMA,
    SPEED_SCHEMA,
    WINDOW,
    no_recent_minutes,
    with_rows,
)
from driftwatch.signals.minutes import MINUTE_SCHEMA

START = datetime(2026, 3, 1, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
KEY = TargetKey("h:8000", "0")


def _minutes(first: int, last: int) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Minutes that end in (first, last] after the start, and what detectors said beside them."""
    ends = [START + m * MINUTE for m in range(first + 1, last + 1)]
    rows = pl.DataFrame(
        {
            "instance": KEY.instance,
            "engine": KEY.engine,
            "end": ends,
            "slower_at_equal_load": [m % 2 == 0 for m in range(len(ends))],
        }
    )
    own = rows.select(
        (pl.col(name) if name in rows.columns else pl.lit(None)).cast(dtype).alias(name)
        for name, dtype in MINUTE_SCHEMA.items()
    )
    said = rows.select(
        (pl.col(name) if name in rows.columns else pl.lit(None)).cast(dtype).alias(name)
        for name, dtype in SPEED_SCHEMA.items()
    )
    return own, said


def test_a_tick_of_a_minute_judges_the_same_hour_as_one_of_all_minutes() -> None:
    own, said = _minutes(0, 130)
    at_once = with_rows(None, no_recent_minutes(), own, said)
    recent = no_recent_minutes()
    for minute in range(130):
        own, said = _minutes(minute, minute + 1)
        seen = with_rows(None, recent, own, said)
        at = START + (minute + 1) * MINUTE
        assert len(seen.judged(KEY, at - WINDOW, at)) == min(minute + 1, 60)
        recent = seen.frame.filter(pl.col("end") > at - CARRIED)
    assert recent.columns == list(RECENT_SCHEMA)
    found = seen.judged(KEY, at - WINDOW, at)
    assert found["end"].to_list() == at_once.judged(KEY, at - WINDOW, at)["end"].to_list()
    # and no more than an hour and a little is carried, for each of ten thousand targets
    assert 60 <= len(recent) <= 70
