"""A page with little in it, for tests of what carries pages."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from driftwatch.notify.page import Page, Servers, Times

AT = datetime(2026, 11, 18, 2, 56, tzinfo=UTC)


def small_page(**fields: Any) -> Page:
    """A firing page of one server; ``fields``: of the page, in place of the usual ones."""
    usual: dict[str, Any] = {
        "event": "firing",
        "summary": "FIRING a:8000: requests queue for 2.5 s",
        "incident": "a" * 12,
        "key": 'CapBinds{pool="p"}',
        "pool": "p",
        "rule": "CapBinds",
        "alert": "CapBinds",
        "severity": "page",
        "labels": {"pool": "p"},
        "servers": Servers(concerned=1, of=1, first=("a:8000",)),
        "times": Times(started_at=AT, firing_at=AT, evaluated_at=AT, measured_at=AT),
    }
    return Page(**(usual | fields))
