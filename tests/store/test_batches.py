"""Memory and retention."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

from made_incidents import with_values
from outbox import planned
from small_page import small_page
from store_cases import NOW, pending, prune

from driftwatch.incidents.incident import Transition
from driftwatch.incidents.silence import parse_matchers
from driftwatch.store.store import Store
from tests.outbox import due_deliveries, mark_sent, undelivered_count

Commit = Callable[..., None]
MINUTE = timedelta(minutes=1)


def test_memory_is_kept_by_name(store: Store, commit: Commit) -> None:
    commit(memory={"a": b"1", "b": b"\x00\xff"})
    commit(memory={"a": b"2", "c": b""})
    assert store.memory() == {"a": b"2", "b": b"\x00\xff", "c": b""}


def test_prune_drops_old_incidents_where_nothing_is_to_be_sent(
    store: Store, commit: Commit
) -> None:
    fired = {
        digit: with_values(pending(digit), firing_at=NOW, page=small_page()) for digit in "abc"
    }
    pages = [planned(fired[digit].id, {}, NOW) for digit in "ab"]
    commit(*fired.values(), deliveries=tuple(pages))
    done = [
        Transition(with_values(fired[digit], resolved_at=NOW), "resolved", NOW) for digit in "ab"
    ]
    commit(fired["c"], happened=tuple(done))
    first = due_deliveries(store, NOW)[0]
    assert first.incident_id == fired["a"].id
    mark_sent(store, first, NOW)
    store.add_silence(parse_matchers(["a=b"]), until=NOW, by="A", at=NOW - MINUTE, comment="")
    kept = store.add_silence(
        parse_matchers(["a=b"]), until=NOW + 9 * MINUTE, by="A", at=NOW, comment=""
    )
    prune(store, incidents_before=NOW)
    assert len(store.incidents()) == 3  # resolved at that time, not before it
    prune(store, incidents_before=NOW + MINUTE)
    assert {i.id[0] for i in store.incidents()} == {"b", "c"}
    assert store.deliveries(fired["a"].id) == []
    assert undelivered_count(store) == 1
    assert store.silences() == [kept]
