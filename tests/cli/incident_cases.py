"""An incident of any state, for the commands that list and change incidents."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from made_incidents import of_labels

from driftwatch.incidents.incident import Incident

START = datetime(2026, 3, 1, 2, 45, tzinfo=UTC)


def incident(digit: str, state: str = "firing", **changes: object) -> Incident:
    values: dict[str, Any] = {
        "id": digit * 12,
        "rule": "CapBinds",
        "alert": "BatchLimitBinding",
        "target": {"instance": f"gpu-{digit}:8000", "engine": "0", "pool": f"p{digit}"},
        "started_at": START,
        "firing_at": None if state == "pending" else START + timedelta(minutes=10),
        "resolved_at": START + timedelta(minutes=71) if state == "resolved" else None,
        "at": START,
    }
    return of_labels(**values | changes)
