"""What people say of pages, kept beside the incidents."""

from __future__ import annotations

from datetime import timedelta

import pytest
from made_incidents import with_values
from store_cases import NOW, committer, pending

from driftwatch.errors import UsageError
from driftwatch.incidents.incident import Incident
from driftwatch.store import Store
from driftwatch.store.actions import Mark
from driftwatch.store.incidents import LONGEST_BECAUSE


def fired(digit: str = "a") -> Incident:
    return with_values(pending(digit), firing_at=NOW)


def test_who_marks_last_stands(store: Store) -> None:
    committer(store)(fired("a"), fired("b"))
    store.mark("a", "useful", by="Ana", at=NOW)
    later = NOW + timedelta(hours=1)
    told = store.mark("aaaa", "not useful", by="Bob", at=later, because="a load test")
    assert told == Mark("a" * 12, "not useful", later, "Bob", "a load test")
    assert store.marks(["a" * 12, "b" * 12]) == {"a" * 12: told}


def test_a_tick_leaves_marks_alone_and_they_go_with_their_incident(store: Store) -> None:
    tick = committer(store)
    tick(fired())
    store.mark("a", "not useful", by="Ana", at=NOW)
    over = with_values(fired(), resolved_at=NOW)
    tick(fired())
    tick(over)
    assert list(store.marks(["a" * 12])) == ["a" * 12]
    store.prune(NOW, incidents_before=NOW + timedelta(days=400))
    assert store.marks(["a" * 12]) == {}


def test_what_cannot_be_marked(store: Store) -> None:
    committer(store)(pending("a"), fired("b"))
    with pytest.raises(UsageError, match="has not fired yet"):
        store.mark("a", "useful", by="Ana", at=NOW)
    with pytest.raises(UsageError, match="no incident 'c'"):
        store.mark("c", "useful", by="Ana", at=NOW)
    with pytest.raises(UsageError, match="at most 500 characters"):
        store.mark("b", "useful", by="Ana", at=NOW, because="x" * (LONGEST_BECAUSE + 1))
    assert store.marks(["a" * 12, "b" * 12]) == {}
    longest = "x" * LONGEST_BECAUSE
    assert store.mark("b", "useful", by="Ana", at=NOW, because=longest).because == longest
