"""Pages for the tests of the plateau."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import polars as pl
from pipeline_cases import (
    KEY,
    grid,
    serving,
)

from driftwatch.diagnose.plateau import CARRIED_SCHEMA, infer_max_num_seqs
from driftwatch.signals.continuity import with_epochs
from driftwatch.signals.facts import scrape_facts


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
    asked = grid(frame).with_columns(start=pl.col("end") - timedelta(minutes=10))
    budgets = serving(frame, **settings)
    facts = scrape_facts(with_epochs(frame))
    found = infer_max_num_seqs(facts, asked, pl.DataFrame(schema=CARRIED_SCHEMA), budgets=budgets)
    return found.select(*KEY, "end", cap="plateau")


def caps(frame: pl.DataFrame) -> set[float]:
    """Every cap that any minute of any target inferred."""
    return set(inferred(frame)["cap"].drop_nulls().to_list())
