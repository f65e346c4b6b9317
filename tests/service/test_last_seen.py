"""Since when a target is silent, and why."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta

import polars as pl

from driftwatch.collect.schema import SCRAPE_SCHEMA
from driftwatch.model import TargetKey
from driftwatch.pipeline.explain import last_seen

AT = datetime(2026, 1, 5, 12, 0, tzinfo=UTC)
DAY = AT.date()
A = TargetKey("a:1", "0")
Row = tuple[str, str, float, str | None]


def _scrapes(*rows: Row) -> pl.DataFrame:
    empty = pl.DataFrame(schema=dict(SCRAPE_SCHEMA))
    made = [
        {
            "instance": instance,
            "engine": engine,
            "time": AT - timedelta(seconds=ago),
            "ok": why is None,
            "reason": why,
        }
        for instance, engine, ago, why in rows
    ]
    schema = {name: empty.schema[name] for name in ("instance", "engine", "time", "ok", "reason")}
    return pl.concat([empty, pl.DataFrame(made, schema=schema)], how="diagonal")


def _each(instance: str, last: int, every: int = 15, why: str | None = None) -> Sequence[Row]:
    return [(instance, "0", age, why) for age in range(last, last + 20 * every, every)]


def _said(*rows: Row, source: str | None = None, today: date | None = DAY) -> str | None:
    silent = last_seen(_scrapes(*rows), A, AT, source)
    return None if silent is None else silent.text(today)


def test_one_that_is_scraped_is_not_silent() -> None:
    assert _said(*_each("a:1", 5), *_each("b:1", 5)) is None
    assert _said(*_each("a:1", 90), *_each("b:1", 5)) is None
    # two of its own intervals
    assert _said(*_each("a:1", 290, 150), *_each("b:1", 5)) is None


def test_one_that_is_scraped_no_more_while_others_are() -> None:
    rows = [*_each("a:1", 600), *_each("b:1", 5)]
    assert _said(*rows) == "last seen 11:50 UTC; not scraped since"
    assert _said(*rows, source="p") == "last seen 11:50 UTC; not scraped by p since"
    assert _said(*rows, today=None) == "last seen 2026-01-05 11:50 UTC; not scraped since"


def test_where_nobody_is_scraped_it_is_not_the_target() -> None:
    rows = [*_each("a:1", 600), *_each("b:1", 600)]
    assert _said(*rows, source="p") == "last seen 11:50 UTC; nothing is scraped since"


def test_scrapes_that_fail_have_their_reason() -> None:
    rows = _each("a:1", 60)
    one = ("a:1", "0", 5.0, "connection refused")
    assert _said(*rows, one) == ("last seen 11:59 UTC; the scrape since failed: connection refused")
    # a page that does not answer names no engine of its own, and is one scrape for all of them
    other = ("a:1", "1", 5.0, "connection refused")
    before = ("a:1", "0", 20.0, "timed\nout")
    assert _said(*rows, one, other, before) == (
        "last seen 11:59 UTC; 2 scrapes since failed: connection refused"
    )


def test_one_that_was_never_seen() -> None:
    assert _said(*_each("b:1", 5), source="p") == (
        "not seen since 11:55 UTC, where the scrapes begin; not scraped by p since"
    )
    assert _said() == "never seen; not scraped since"
    assert _said(("a:1", "0", 5, "no\x1b[2J")) == (
        "not seen since 11:59 UTC, where the scrapes begin; the scrape since failed: no\\x1b[2J"
    )


def test_later_scrapes_are_not_known_yet() -> None:
    rows = [*_each("a:1", 600), ("a:1", "0", -30.0, None), *_each("b:1", 5)]
    assert _said(*rows) == "last seen 11:50 UTC; not scraped since"
