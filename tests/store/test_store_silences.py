"""Silences through the database."""

from __future__ import annotations

from datetime import timedelta

import pytest
from store_cases import NOW

from driftwatch.errors import UsageError
from driftwatch.incidents.silence import Silence, parse_matchers
from driftwatch.store import Store

HOUR = timedelta(hours=1)


def add(store: Store, *texts: str, hours: int = 1) -> Silence:
    return store.add_silence(
        parse_matchers(texts), until=NOW + hours * HOUR, by="Ana", at=NOW, comment="é\n<x>"
    )


def test_a_silence_comes_back_as_it_was(store: Store) -> None:
    made = add(store, 'alert="A B"', "instance=~gpu-[12]:.*", "pool!=x", "engine!~1")
    assert store.silences() == [made]
    assert made.comment == "é\n<x>"


def test_those_that_hold_the_first_to_end_first(store: Store) -> None:
    long, short = add(store, "a=b", hours=2), add(store, "a=b", hours=1)
    assert store.silences(NOW) == [short, long]
    assert store.silences(NOW + HOUR) == [long]
    assert store.silences(NOW + 2 * HOUR) == []
    assert store.silences(NOW - HOUR) == []
    assert store.silences() == [short, long]


def test_expiring(store: Store) -> None:
    made = add(store, "a=b")
    ended = store.expire_silence(made.id[:6].upper(), NOW + HOUR / 2)
    assert ended == made.model_copy(update={"expired_at": NOW + HOUR / 2})
    assert store.silences(NOW + HOUR / 2) == []
    with pytest.raises(UsageError, match="over already"):
        store.expire_silence(made.id, NOW + HOUR / 2)


def test_the_same_request_twice_is_one_silence(store: Store) -> None:
    assert add(store, "a=b") == add(store, "a=b")
    assert len(store.silences()) == 1


def test_what_is_no_silence(store: Store) -> None:
    made = [add(store, f"a={n}") for n in range(40)]
    for text in ("", "zz", "%", "f" * 12 + "0"):
        with pytest.raises(UsageError, match="is not the id"):
            store.expire_silence(text, NOW)
    common = next(c for c in "0123456789abcdef" if sum(s.id[0] == c for s in made) > 1)
    with pytest.raises(UsageError, match="more than one"):
        store.expire_silence(common, NOW)
    with pytest.raises(UsageError, match="no silence"):
        store.expire_silence("0" * 12, NOW)


def test_it_has_to_end_after_it_begins(store: Store) -> None:
    with pytest.raises(UsageError, match="end after"):
        add(store, "a=b", hours=0)
    assert store.silences() == []
