"""What the scheduler had to do stands beside a recording, scraped or not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
from truth_judge.load import LOAD_SCHEMA, generate_with_load

from driftwatch.fleet.scenario.model import Scenario


def made(folder: Path, **serving: Any) -> pl.DataFrame:
    scenario = Scenario.model_validate(
        {
            "name": "x",
            "title": "x",
            "duration": "20m",
            "pool": {"replicas": 1, "dcgm": False, "serving": serving},
            "scrape": {"lost_ratio": 0.5},
            "traffic": {"requests_per_second": 6.0},
            "faults": [{"kind": "restart", "at": "10m", "down": "2m"}],
            "truth": {},
        }
    )
    generate_with_load(scenario, 1, folder)
    return pl.read_parquet(folder / "0000.load.parquet")


def test_the_cap_that_holds_requests_back_is_seen(tmp_path: Path) -> None:
    held, free = made(tmp_path / "a", max_num_seqs=4), made(tmp_path / "b", max_num_seqs=256)
    assert dict(held.schema) == dict(LOAD_SCHEMA)
    assert held["sequences_ratio"].median() == 1.0
    assert held["waiting_requests"].median() > 20 and free["waiting_requests"].median() == 0
    assert free["sequences_ratio"].max() < 0.5
    minutes = free["time"].dt.minute()
    assert len(set(minutes)) > 14 and not {11} & set(minutes)  # down in between
    arrived = free["arrived_requests"]
    assert 300 < arrived.mean() < 420  # type: ignore[operator]
    assert (free["kv_cache_ratio"] <= 1.0).all()
