"""Since when a target is silent, and why."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta

import polars as pl
import pytest

from driftwatch.model import TargetKey
from driftwatch.pipeline.explain import last_seen
from driftwatch.store.minute_columns import STORED_SCHEMA
from driftwatch.store.store import Store, TickRecord

AT = datetime(2026, 1, 5, 12, 0, tzinfo=UTC)
DAY = AT.date()
A = TargetKey("a:1", "0")
Row = tuple[str, float, int, str | None]


@pytest.fixture
def store() -> Iterator[Store]:
    with Store.in_memory() as store:
        yield store


def _kept(store: Store, *rows: Row) -> None:
    """Minutes: instance, how long ago they ended, usable scrapes, why there is none."""
    made = [
        {
            "instance": instance,
            "engine": "0",
            "end": AT - timedelta(minutes=ago),
            "scrapes": float(scrapes),
            "failure": why,
        }
        for instance, ago, scrapes, why in rows
    ]
    minutes = pl.DataFrame(made, schema=STORED_SCHEMA).sort("instance", "end")
    store.commit_tick(TickRecord(since=AT, until=AT, minutes=minutes))


def _each(
    instance: str, first: int, last: int, scrapes: int = 4, why: str | None = None
) -> list[Row]:
    return [(instance, ago, scrapes, why) for ago in range(last, first)]


def _said(store: Store, source: str | None = None, today: date | None = DAY) -> str | None:
    silent = last_seen(store, A, AT, source)
    return None if silent is None else silent.text(today)


def test_one_that_is_scraped_is_not_silent(store: Store) -> None:
    _kept(store, *_each("a:1", 20, 0), *_each("b:1", 20, 0))
    assert _said(store) is None


def test_one_that_is_scraped_no_more_while_others_are(store: Store) -> None:
    _kept(store, *_each("a:1", 20, 10), *_each("b:1", 20, 0))
    assert _said(store) == "last seen 11:50 UTC; not scraped since"
    assert _said(store, source="p") == "last seen 11:50 UTC; not scraped by p since"
    assert _said(store, today=None) == "last seen 2026-01-05 11:50 UTC; not scraped since"


def test_where_nobody_is_scraped_it_is_not_the_target(store: Store) -> None:
    _kept(store, *_each("a:1", 20, 10), *_each("b:1", 20, 10))
    assert _said(store, source="p") == "last seen 11:50 UTC; nothing is scraped since"


def test_minutes_without_a_scrape_have_their_reason(store: Store) -> None:
    why = "connection\nrefused"
    _kept(store, *_each("a:1", 20, 3), *_each("a:1", 3, 0, 0, why))
    assert _said(store) == "last seen 11:57 UTC; scrapes fail: connection\\nrefused"


def test_who_did_not_scrape_is_named(store: Store) -> None:
    _kept(store, *_each("a:1", 20, 3), *_each("a:1", 3, 0, 0, "not listed by p"))
    assert _said(store) == "last seen 11:57 UTC; not listed by p since"


def test_one_that_was_never_seen(store: Store) -> None:
    assert _said(store) == "never seen; not scraped since"
    _kept(store, *_each("b:1", 5, 0))
    assert _said(store, source="p") == (
        "not seen since 11:55 UTC, where the minutes begin; not scraped by p since"
    )


def test_later_minutes_are_not_known_yet(store: Store) -> None:
    _kept(store, *_each("a:1", 20, 10), ("a:1", -1, 4, None), *_each("b:1", 20, -2))
    assert _said(store) == "last seen 11:50 UTC; not scraped since"
