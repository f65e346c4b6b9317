"""An incident of any state, for the commands that list and change incidents."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from driftwatch.incidents.incident import Incident

START = datetime(2026, 3, 1, 2, 45, tzinfo=UTC)


def incident(digit: str, state: str = "firing", **changes: object) -> Incident:
    made = Incident(
        id=digit * 12,
        key=f"CapBinds{{instance={digit}}}",
        rule="CapBinds",
        alert="BatchLimitBinding",
        severity="page",
        target={"instance": f"gpu-{digit}:8000", "engine": "0"},
        state=state,  # type: ignore[arg-type]
        started_at=START,
        last_true_at=START,
        firing_at=None if state == "pending" else START + timedelta(minutes=10),
        resolved_at=START + timedelta(minutes=71) if state == "resolved" else None,
    )
    return replace(made, **changes)  # type: ignore[arg-type]
