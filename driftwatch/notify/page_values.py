"""Single values of a page's JSON, see ``page.py``. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

Page = Mapping[str, Any]


def value(page: Page, column: str) -> Any:
    """One evidence value of the page, None where it is unknown or not carried."""
    entry = page["evidence"].get(column)
    return None if entry is None else entry["value"]


def instant(page: Page, name: str) -> datetime | None:
    """One of the page's times (``started_at``, ``firing_at``, ...)."""
    text = page["times"].get(name)
    return None if text is None else datetime.fromisoformat(text)


def evaluated(page: Page) -> datetime:
    """When the page was made: its "today"."""
    return datetime.fromisoformat(page["times"]["evaluated_at"])


def reference_values(page: Page) -> Mapping[str, Any]:
    """Column → value of the reference the page compares with; empty without one."""
    values = (page["reference"] or {}).get("values")
    return values if isinstance(values, Mapping) else {}


def leaf(page: Page) -> str | None:
    """Where the diagnosis ended, None without one."""
    diagnosis = page["diagnosis"]
    return None if diagnosis is None else diagnosis["leaf"]
