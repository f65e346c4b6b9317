"""GPU readings, memory and retention."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import polars as pl
import pytest
from made_incidents import with_values
from outbox import planned
from polars.testing import assert_frame_equal
from small_page import small_page
from store_cases import NOW, pending, readings

from driftwatch.incidents.incident import Transition
from driftwatch.incidents.silence import parse_matchers
from driftwatch.store import Store
from tests.outbox import due_deliveries, mark_sent, undelivered_count

Commit = Callable[..., None]
MINUTE = timedelta(minutes=1)


@pytest.mark.parametrize("count", [4, 300])
def test_gpu_readings_come_back_half_open_and_once(
    store: Store, commit: Commit, count: int
) -> None:
    """GPUs without a UUID are told apart by their index."""
    commit(gpus=readings(count))
    assert_frame_equal(store.gpus(NOW, NOW + timedelta(days=1)), readings(count))
    assert store.gpus(NOW, NOW + timedelta(seconds=30)).height == 4
    assert store.gpus(NOW - MINUTE, NOW).is_empty()
    commit(gpus=readings(count).with_columns(power_watts=pl.lit(7.0)))  # a tick that ran again
    again = store.gpus(NOW, NOW + timedelta(days=1))
    assert (again.height, set(again["power_watts"])) == (2 * count, {7.0})


def test_memory_is_kept_by_name(store: Store, commit: Commit) -> None:
    commit(memory={"a": b"1", "b": b"\x00\xff"})
    commit(memory={"a": b"2", "c": b""})
    assert store.memory() == {"a": b"2", "b": b"\x00\xff", "c": b""}


def test_prune_drops_old_readings_only(store: Store, commit: Commit) -> None:
    gone = with_values(pending(), firing_at=NOW, resolved_at=NOW - timedelta(days=9))
    later = readings(4, NOW + timedelta(days=1))
    commit(gone, gpus=readings(4))
    commit(gpus=later)
    assert store.prune(NOW + timedelta(hours=13)) == 1
    assert_frame_equal(store.gpus(NOW - MINUTE, NOW + timedelta(days=2)), later)
    assert store.incidents() == [gone]


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
    store.prune(NOW, incidents_before=NOW)
    assert len(store.incidents()) == 3  # resolved at that time, not before it
    store.prune(NOW, incidents_before=NOW + MINUTE)
    assert {i.id[0] for i in store.incidents()} == {"b", "c"}
    assert store.deliveries(fired["a"].id) == []
    assert undelivered_count(store) == 1
    assert store.silences() == [kept]
