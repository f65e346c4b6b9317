"""A service that was stopped and started again says what one says that ran through."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime, timedelta
from pathlib import Path

import polars as pl
import pytest
from polars.testing import assert_frame_equal
from pool_cases import one_pool
from service_cases import FrameSource, shipped_plan

from driftwatch.clock import ManualClock
from driftwatch.collect.recordings.text import RecordingSource
from driftwatch.evidence import DETECTED, TEXTS
from driftwatch.model import Target, TargetKey
from driftwatch.service.run import Service
from driftwatch.store import Store

PLAN = one_pool(shipped_plan())
NAMES = [f"r{i}:8000" for i in range(4)]
MINUTE = timedelta(minutes=1)
GONE = NAMES[:2]
# two of four are not scraped any more: after 15 minutes they are retired
LEAVES, STOP = 7, 24
KEY = ["instance", "engine", "end"]


@pytest.fixture
def fleet(shared_data: Path) -> FrameSource:
    """A real server's recording as four replicas."""
    source = RecordingSource(shared_data / "vllm-0.32" / "run_cap")
    server = source.collect(*source.span()).scrapes
    first = server["time"].min()
    assert isinstance(first, datetime)
    cut = pl.lit(first + LEAVES * MINUTE, dtype=server.schema["time"])
    copies = [
        (server.filter(pl.col("time") < cut) if name in GONE else server).with_columns(
            instance=pl.lit(name)
        )
        for name in NAMES
    ]
    keys = [TargetKey(name, "0") for name in NAMES]
    return FrameSource(
        pl.concat(copies).sort("instance", "engine", "time"),
        {key: Target(key, {"instance": key.instance}) for key in keys},
    )


def watched(
    fleet: FrameSource, path: Path, restarts: Collection[int]
) -> tuple[pl.DataFrame, set[TargetKey]]:
    """Evidence rows of every minute, and who was retired; a new process after these minutes."""
    first = fleet.frame["time"].min()
    assert isinstance(first, datetime)
    rows, retired = [], set()
    with Store.open(path) as store:
        clock = ManualClock(first)
        service = Service([fleet], PLAN, store, [], clock)
        for minute in range(1, STOP + 1):
            clock.advance(MINUTE)
            outcome = service.tick_once()
            rows.append(outcome.rows)
            retired |= outcome.retired.keys()
            service.prune()
            if minute in restarts:
                service.stop()
                service = Service([fleet], PLAN, store, [], clock)
        service.stop()
    return pl.concat([r for r in rows if len(r)]).sort(KEY), retired


@pytest.mark.slow
def test_a_restart_changes_no_column(fleet: FrameSource, tmp_path: Path) -> None:
    expected, as_well = watched(fleet, tmp_path / "through.db", ())
    rows, retired = watched(fleet, tmp_path / "restarted.db", (1, 4, 8, 13, 14, 21))
    assert retired == as_well == {TargetKey(name, "0") for name in GONE}
    said = [name for name in (*DETECTED, *TEXTS) if expected[name].null_count() < len(expected)]
    assert "speed_unknown_reason" in said
    assert_frame_equal(rows, expected, rel_tol=1e-12)
