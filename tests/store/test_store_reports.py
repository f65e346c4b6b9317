"""Weekly reports in the store: made once, kept as long as said, each delivery marked once."""

from __future__ import annotations

from datetime import timedelta

from store_cases import NOW

from driftwatch.store import Store

LATER = NOW + timedelta(hours=1)


def _written(store: Store) -> None:
    store.write_report("2026-W09", {"week": {"name": "2026-W09"}}, ["oncall", "log"], NOW)


def test_it_is_pruned_by_when_it_was_made(store: Store) -> None:
    _written(store)
    store.prune(NOW, incidents_before=NOW)
    assert store.report_weeks() == ["2026-W09"]
    store.prune(NOW, incidents_before=LATER)
    assert store.report_weeks() == []


def test_a_receiver_that_is_down_is_tried_when_it_is_due_again(store: Store) -> None:
    _written(store)
    down, up = store.due_deliveries(NOW)
    store.mark_failed(down, NOW, "503", LATER)
    assert [d.id for d in store.due_deliveries(NOW)] == [up.id]
    assert {d.id for d in store.due_deliveries(LATER)} == {up.id, down.id}


def test_what_is_sent_or_given_up_is_not_marked_again(store: Store) -> None:
    _written(store)
    one, other = store.due_deliveries(NOW)
    assert store.mark_sent(one, NOW)
    assert not store.mark_failed(one, LATER, "late", None)
    assert store.mark_failed(other, NOW, "404", None)
    assert not store.mark_sent(other, LATER)
    assert store.undelivered_count() == 1
