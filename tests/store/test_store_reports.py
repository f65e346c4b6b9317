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
