"""Pages for the tests of the plateau."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import polars as pl
from pipeline_cases import (
    KEY,
    grid,
    serving,
)

from driftwatch.diagnose.evidence_table import rows_of_scrapes


def page(t: float, running: float, waiting: float, **more: Any) -> dict[str, Any]:
    return {
        "t": t,
        "running_requests": running,
        "waiting_requests": waiting,
        "waiting_capacity_requests": waiting,
        "waiting_deferred_requests": 0.0,
        "kv_cache_usage_ratio": 0.2,
        "preemptions_total": 0.0,
        "generation_tokens_total": 100.0 * t,
        "process_start_time_seconds": 1000.0,
        **more,
    }


def inferred(frame: pl.DataFrame, **settings: Any) -> pl.DataFrame:
    """instance, engine, end, cap (NULL = not shown) of every minute."""
    asked, settings_frame = grid(frame), serving(frame, **settings)
    first, last = asked["start"].min(), asked["end"].max()
    assert isinstance(first, datetime)
    assert isinstance(last, datetime)
    rows = rows_of_scrapes(frame, settings_frame, first, last)
    return rows.select(*KEY, "end", cap="inferred_max_num_seqs")


def caps(frame: pl.DataFrame) -> set[float]:
    """Every cap that any minute of any target inferred."""
    return set(inferred(frame)["cap"].drop_nulls().to_list())
