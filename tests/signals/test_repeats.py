"""A page that changes less often than it is read: one sample seen again, not a frozen engine."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from pipeline_cases import KEY, MINUTE, T0, evidence, grid, recording, scrapes, serving

from driftwatch.minutes.continuity import with_epochs
from driftwatch.minutes.scheduler import no_samples, scrape_facts


def _time(frame: pl.DataFrame, row: int) -> datetime:
    found = frame["time"].sort()[row]
    assert isinstance(found, datetime)
    return found


def _held(frame: pl.DataFrame, seconds: float) -> pl.DataFrame:
    """What a cache of so many seconds in front of the pages would have shown."""
    begin = _time(frame, 0)
    slot = ((pl.col("time") - begin).dt.total_milliseconds() / (seconds * 1000)).floor()
    shown = [c for c in frame.columns if c not in (*KEY, "time")]
    return frame.with_columns(pl.col(c).first().over(*KEY, slot) for c in shown)


def _evidence(frame: pl.DataFrame) -> pl.DataFrame:
    return evidence(frame, grid(frame), serving(frame))


@pytest.fixture(scope="module")
def recorded(shared_data: Path) -> pl.DataFrame:
    return recording(shared_data / "vllm-0.32" / "run_cap")


def test_a_limit_binds_as_often_as_where_every_page_is_new(recorded: pl.DataFrame) -> None:
    every = _evidence(recorded)["limit_binding_share_10m_ratio"]
    held = _evidence(_held(recorded, 15))["limit_binding_share_10m_ratio"]
    assert (every - held).abs().max() <= 0.05
    assert held.max() >= 0.6


def _frozen(seconds: float, *, every: float = 5.0) -> pl.DataFrame:
    """A server that gives tokens for a minute, and from then on the same page."""
    rows: list[dict[str, Any]] = []
    for number in range(int(seconds / every)):
        at = min(number * every, 60.0)
        rows.append(
            {
                "t": number * every,
                "running_requests": 8.0,
                "waiting_requests": 20.0,
                "kv_cache_usage_ratio": 0.1,
                "generation_tokens_total": at * 100,
                "iteration_tokens_count": at * 10,
                "iteration_tokens_sum": at * 1000,
                "preemptions_total": 0.0,
            }
        )
    return scrapes(rows)


def _facts(frame: pl.DataFrame) -> pl.DataFrame:
    return scrape_facts(with_epochs(frame), no_samples())


def test_a_frozen_engine_binds_nothing_after_a_minute_and_is_stuck_after_two() -> None:
    facts = _facts(_frozen(300))
    age = (facts["time"] - T0).dt.total_seconds()
    stalled = facts["stalled"].fill_null(False).to_list()
    repeats = facts["repeats"].to_list()
    # the last new page came after 60 s; it is believed for less than a minute more
    assert repeats == [60 < a < 120 for a in age]
    assert stalled == [a >= 120 for a in age]
    assert facts.filter("repeats")["tokens_per_step"].unique().to_list() == [100.0]
    rows = _evidence(_frozen(600))
    told = dict(
        zip(rows["start"].to_list(), rows["seconds_since_last_token"].to_list(), strict=True)
    )
    assert told[T0 + 2 * MINUTE] == 115
    assert told[T0 + 3 * MINUTE] == 175
