"""A fleet of any size in a store: its targets, one minute of each, and incidents."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import orjson
import polars as pl

from driftwatch.incidents.incident import Incident
from driftwatch.store import Store, TickRecord
from driftwatch.store.minute_columns import STORED_SCHEMA

END = datetime(2026, 3, 1, 3, 0, tzinfo=UTC)
# of a server whose requests are in target
GOOD: Mapping[str, Any] = {
    "scrapes": 4.0,
    "duration_seconds": 60.0,
    "slo_missed": False,
    "slower_at_equal_load": False,
    "speed_at_equal_load_ratio": 1.0,
    "binding_limit": "none",
    "binding_margin_ratio": 0.5,
    "ttft_seconds_buckets": [90.0, 100.0, 100.0],
    "ttft_seconds_edges": [0.5, 1.0, float("inf")],
    "ttft_seconds_sum": 30.0,
    "ttft_seconds_count": 100.0,
}


def fleet_database(
    path: Path | str,
    rows: Sequence[Mapping[str, Any]],
    incidents: Sequence[Incident] = (),
    *,
    end: datetime = END,
) -> None:
    """Write a fleet; a row has ``instance``, may have ``labels``, and columns unlike GOOD's; one
    with ``scrapes`` None has no minute.
    """
    targets = [
        {"instance": row["instance"], "engine": "0", "labels": row.get("labels", {})}
        for row in rows
    ]
    document = {
        "targets": targets,
        "collected_until": {"pages": end.isoformat()},
        "evaluated_until": end.isoformat(),
        "carried_until": None,
        "retired": [],
    }
    minutes = [
        {"engine": "0", "end": end, "pool": "p", **GOOD, **row}
        for row in rows
        if row.get("scrapes", 4.0) is not None
    ]
    frame = pl.DataFrame(
        [{name: row.get(name) for name in STORED_SCHEMA} for row in minutes],
        schema=STORED_SCHEMA,
        orient="row",
    )
    with Store.open(path) as store:
        store.commit_tick(
            TickRecord(
                since=end - timedelta(minutes=1),
                until=end,
                minutes=frame,
                incidents=incidents,
                memory={"tick": orjson.dumps(document)},
            )
        )


def fired(digit: str, instance: str, **changes: Any) -> Incident:
    """A page that fires on a server."""
    values: dict[str, Any] = {
        "id": digit * 12,
        "key": f"Slow{{instance={instance}}}",
        "rule": "SlowerAtEqualLoad",
        "alert": "SlowerAtEqualLoad",
        "severity": "page",
        "target": {"instance": instance, "engine": "0", "pool": "p"},
        "state": "firing",
        "started_at": END - timedelta(minutes=30),
        "last_true_at": END,
        "firing_at": END - timedelta(minutes=20),
    }
    return Incident(**values | changes)
