"""Minutes of a real server's recording, as a tick stores them."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import polars as pl

from driftwatch.collect.recordings.text import RecordingSource
from driftwatch.collect.schema import Collected
from driftwatch.pipeline.roster import TickInput
from driftwatch.pipeline.state import Outcome, State
from driftwatch.pipeline.tick import evaluate
from driftwatch.service.configuration import plan_of_rules
from driftwatch.store.minute_columns import STORED_SCHEMA
from driftwatch.store.store import Store


@cache
def evaluated(folder: Path) -> tuple[Collected, State, Outcome]:
    """What was collected, the state after it, and what the tick decided."""
    source = RecordingSource(folder)
    since, until = source.span()
    collected = source.collect(since, until)
    given = TickInput({"": collected}, until)
    state, outcome = evaluate(State(), given, plan_of_rules(()), Store.in_memory())
    return collected, state, outcome


def real_minutes(folder: Path) -> pl.DataFrame:
    """Minutes of a recording, from a whole hour on."""
    outcome = evaluated(folder)[2]
    rows = outcome.minutes
    return rows.with_columns(
        end=pl.col("end")
        - (pl.col("end").min() - pl.col("end").min().dt.truncate("1h"))
        + pl.duration(minutes=1)
    ).cast(pl.Schema(STORED_SCHEMA))


def copies(minutes: pl.DataFrame, hours: int, instances: int = 1) -> pl.DataFrame:
    """So many hours of so many servers, each hour the first of the recording's again."""
    start = minutes["end"].min()
    hour = minutes.filter(pl.col("end") <= start + pl.duration(minutes=59))  # type: ignore[operator]
    parts = [
        hour.with_columns(
            instance=pl.lit(f"s{server:03d}:8000"), end=pl.col("end") + pl.duration(hours=n)
        )
        for server in range(instances)
        for n in range(hours)
    ]
    return pl.concat(parts).sort("instance", "engine", "end")
