from __future__ import annotations

import gzip
import json
from datetime import timedelta
from functools import cache
from pathlib import Path

import polars as pl
import pytest
from observed_cases import LogOf, MinutesOf
from pipeline_cases import floor_minute

from driftwatch.cli.options import plan_from
from driftwatch.collect.recordings import open_recording
from driftwatch.diagnose.evidence_table import evidence_table, rows_of_scrapes
from driftwatch.minutes.rows import minute_grid
from driftwatch.signals.minutes import minutes
from driftwatch.simulate.requests import Requests, make_requests


@pytest.fixture(scope="session")
def minutes_of(shared_data: Path) -> MinutesOf:
    """Minutes of a recorded run of a real vLLM server."""

    @cache
    def made(run: str) -> pl.DataFrame:
        source = open_recording(
            shared_data / "vllm-0.32" / run / "scrapes.jsonl.gz", instance="host:8000"
        )
        first, last = source.span()
        collected = source.collect(first, last + timedelta(seconds=1))
        plan = plan_from(config=None)
        frames = plan.frames(plan.assign(dict(collected.targets), {}))
        since, until = floor_minute(first), floor_minute(last)
        rows = rows_of_scrapes(collected.scrapes, frames.serving, since, until)
        asked = minute_grid(frames.serving, since, until)
        return minutes(evidence_table(rows, asked, serving=frames.serving))

    return made


@pytest.fixture(scope="session")
def log_of(shared_data: Path) -> LogOf:
    """Every request that was really sent, arrivals in unix seconds."""

    @cache
    def made(run: str) -> Requests:
        path = shared_data / "vllm-0.32" / run / "requests.jsonl.gz"
        with gzip.open(path, "rt") as file:
            told = [json.loads(line) for line in file]
        rows = sorted((row for row in told if row["status"] == 200), key=lambda row: row["sent"])
        return make_requests(
            [row["sent"] for row in rows],
            [row["usage"]["prompt_tokens"] for row in rows],
            [row["usage"]["completion_tokens"] for row in rows],
        )

    return made
