"""Pages as a backtest has them, in a few words."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from driftwatch.backtest.pages import PastPage
from driftwatch.model import Severity

START = datetime(2026, 11, 16, 8, 0, tzinfo=UTC)
END = START + timedelta(days=1)


def at(minutes: float) -> datetime:
    return START + timedelta(minutes=minutes)


def page(
    alert: str,
    where: str,
    fires: float,
    ends: float | None,
    *,
    severity: Severity = "page",
    leaf: str | None = None,
    began: float | None = None,
) -> PastPage:
    """Minutes after START; of a pool of one server."""
    return PastPage(
        id=f"{alert}-{where}-{fires}",
        rule=alert,
        alert=alert,
        severity=severity,
        pool=where,
        where=f"{where}:8000",
        started_at=at(fires if began is None else began),
        fired_at=at(fires),
        resolved_at=None if ends is None else at(ends),
        leaf=leaf,
    )
