"""What tests of commands share: how one is typed, and an incident of any state."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from made_incidents import of_labels

from driftwatch.incidents.incident import Incident

Run = Callable[..., tuple[int, str, str]]  # words in; exit code, stdout, stderr out
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
