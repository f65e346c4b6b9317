"""Acknowledgements: who took what, and clicks that arrive twice."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest
from made_incidents import with_values
from small_page import small_page
from store_cases import NOW, pending

from driftwatch.errors import UsageError
from driftwatch.notify.page import Acknowledgement
from driftwatch.store import Store
from tests.outbox import latest_actions

Commit = Callable[..., None]
HOUR = timedelta(hours=1)
FIRING = with_values(pending(), firing_at=NOW, page=small_page())


def test_who_took_it_with_which_words(store: Store, commit: Commit) -> None:
    commit(FIRING)
    result = store.acknowledge("a", "Ana", NOW, comment="restarting it", via="slack")
    assert result.is_new
    (action,) = store.actions("a" * 12)
    assert action == result.action
    assert (action.by, action.comment, action.via) == ("Ana", "restarting it", "slack")
    incident = store.incident("a")
    expected = Acknowledgement(by="Ana", at=NOW, comment="restarting it", via="slack")
    assert incident.acknowledgement == expected
    assert incident.state == "acknowledged"
    assert store.unplanned_actions() == [action]


def test_a_second_one_stays_out_unless_it_brings_a_comment(store: Store, commit: Commit) -> None:
    commit(FIRING)
    first = store.acknowledge("a", "Ana", NOW).incident
    assert store.acknowledge("a", "Bob", NOW + HOUR) == (first, False, None)
    assert len(store.actions("a" * 12)) == 1
    handed = store.acknowledge("a", "Bob", NOW + 2 * HOUR, comment="my shift")
    by = handed.incident.acknowledgement
    assert by is not None and (by.by, by.at) == ("Bob", NOW + 2 * HOUR)


def test_giving_back_clears_it_and_it_can_be_taken_again(store: Store, commit: Commit) -> None:
    commit(FIRING)
    store.acknowledge("a", "Ana", NOW, comment="mine")
    back = store.unacknowledge("a", "Ana", NOW + HOUR, comment="not mine").incident
    assert back.acknowledgement is None
    assert store.acknowledge("a", "Bob", NOW + 2 * HOUR).is_new
    assert [(a.action, a.by) for a in store.actions("a" * 12)] == [
        ("acknowledge", "Ana"),
        ("unacknowledge", "Ana"),
        ("acknowledge", "Bob"),
    ]
    # a tick that knows nothing of it leaves it alone
    commit(with_values(FIRING, inhibited_by="Y"))
    assert store.incident("a").acknowledged_by == "Bob"


def test_a_click_that_arrives_twice_is_done_once(store: Store, commit: Commit) -> None:
    commit(FIRING)
    first = store.acknowledge("a", "Ana", NOW, request_id="T1")
    store.unacknowledge("a", "Ana", NOW + HOUR, request_id="T2")
    again = store.acknowledge("a", "Ana", NOW + 2 * HOUR, request_id="T1")
    assert (again.is_new, again.action) == (False, first.action)
    assert store.incident("a").acknowledged_by is None
    assert not store.unacknowledge("a", "Ana", NOW + 2 * HOUR, request_id="T2").is_new


def test_what_is_refused_is_not_written(store: Store, commit: Commit) -> None:
    commit(FIRING, pending("b"))
    with pytest.raises(UsageError, match="at most 500 characters"):
        store.acknowledge("a", "Ana", NOW, comment="x" * 501)
    with pytest.raises(UsageError, match="is not acknowledged"):
        store.unacknowledge("a", "Ana", NOW)
    with pytest.raises(UsageError, match="has not fired yet: it cannot be given back"):
        store.unacknowledge("b", "Ana", NOW)
    assert store.actions("a" * 12) == store.unplanned_actions() == []


def test_what_nobody_is_told_of_is_kept_once(store: Store, commit: Commit) -> None:
    commit(FIRING)
    number = "a" * 12
    for _ in range(2):
        store.note_action(
            "note", "Ana", NOW, incident_id=number, comment="looks like the batch", request_id="7"
        )
    assert store.note_action("end silence", "Ben", NOW, subject="b" * 12, via="web")
    assert [(a.action, a.by, a.comment) for a in store.actions(number)] == [
        ("note", "Ana", "looks like the batch")
    ]
    assert [(a.action, a.incident_id, a.subject) for a in latest_actions(store, 5)] == [
        ("end silence", None, "b" * 12),
        ("note", number, None),
    ]
    assert store.unplanned_actions() == []
    with pytest.raises(UsageError, match="no incident"):
        store.note_action("note", "Ana", NOW, incident_id="f" * 12)
