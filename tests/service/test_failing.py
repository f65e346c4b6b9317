"""When a server begins to fail and when it answers again: said once each."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import polars as pl

from driftwatch.collect.schema import scrape_frame
from driftwatch.service.tick_notes import ScrapeFailures

START = datetime(2026, 1, 5, tzinfo=UTC)


def _scrapes(*rows: tuple[str, str, int, str | None]) -> pl.DataFrame:
    """Rows of (instance, engine, seconds, reason or None)."""
    return scrape_frame(
        [
            {
                "instance": instance,
                "engine": engine,
                "time": START + timedelta(seconds=at),
                "ok": why is None,
                "reason": why,
            }
            for instance, engine, at, why in rows
        ]
    )


def _said(failing: ScrapeFailures, scrapes: pl.DataFrame) -> list[tuple[str, int, str | None]]:
    return [
        (c.instance, int((c.time - START).total_seconds()), c.reason)
        for c in failing.changes(scrapes)
    ]


def test_it_is_said_when_it_begins_when_the_reason_changes_and_when_it_ends() -> None:
    failing = ScrapeFailures()
    assert _said(failing, _scrapes(("a", "0", 0, None), ("b", "0", 0, None))) == []
    assert _said(failing, _scrapes(("a", "0", 5, "refused"), ("b", "0", 5, None))) == [
        ("a", 5, "refused")
    ]
    assert _said(failing, _scrapes(("a", "0", 10, "refused"))) == []
    assert _said(failing, _scrapes(("a", "0", 15, "no answer for 10 s"))) == [
        ("a", 15, "no answer for 10 s")
    ]
    assert _said(failing, _scrapes(("b", "0", 20, None))) == []
    assert _said(failing, _scrapes(("a", "0", 25, None))) == [("a", 25, None)]
    assert _said(failing, _scrapes(("a", "0", 30, None))) == []


def test_a_number_that_changes_is_no_news() -> None:
    failing = ScrapeFailures()
    assert len(_said(failing, _scrapes(("a", "0", 0, "page cut off at byte 812, line 7")))) == 1
    assert _said(failing, _scrapes(("a", "0", 5, "page cut off at byte 97, line 2"))) == []


def test_the_engines_of_a_server_fail_together() -> None:
    rows = [("a", engine, at, why) for at, why in ((0, "x"), (5, None)) for engine in ("0", "1")]
    assert _said(ScrapeFailures(), _scrapes(*rows)) == [("a", 0, "x"), ("a", 5, None)]


def test_many_scrapes_of_one_call_are_told_in_order() -> None:
    rows = [("b", "0", 10, None), ("b", "0", 0, "x"), ("a", "0", 0, "y"), ("b", "0", 20, "x")]
    assert _said(ScrapeFailures(), _scrapes(*rows)) == [
        ("a", 0, "y"),
        ("b", 0, "x"),
        ("b", 10, None),
        ("b", 20, "x"),
    ]
