"""Acknowledgements: who took what, until when, and clicks that arrive twice."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta

import pytest
from store_cases import NOW, pending

from driftwatch.errors import UsageError
from driftwatch.incidents.delivery import PlannedDelivery
from driftwatch.model import Severity
from driftwatch.store import Store, TickRecord

Commit = Callable[..., None]
HOUR = timedelta(hours=1)
FIRING = replace(pending(), state="firing", firing_at=NOW, page={"n": 1})


@pytest.mark.parametrize(
    ("severity", "until"), [("page", NOW + 24 * HOUR), ("ticket", None), ("notice", None)]
)
def test_only_an_acknowledged_page_ends_by_itself(
    store: Store, commit: Commit, severity: Severity, until: object
) -> None:
    commit(replace(FIRING, severity=severity))
    result = store.acknowledge("a", "Ana", NOW, comment="restarting it", via="slack")
    assert result.is_new
    (action,) = store.actions("a" * 12)
    assert action == result.action
    assert (action.by, action.comment, action.until, action.via) == (
        "Ana",
        "restarting it",
        until,
        "slack",
    )
    incident = store.incident("a")
    assert (incident.acknowledged_by, incident.acknowledged_at) == ("Ana", NOW)
    assert (incident.acknowledged_until, incident.acknowledged_comment) == (until, "restarting it")
    assert store.unplanned_actions() == [action]


@pytest.mark.parametrize("prolonged", [False, True])
def test_one_that_is_prolonged_while_a_tick_ends_it_stays(store: Store, prolonged: bool) -> None:
    store.commit_tick(TickRecord(NOW, NOW, incidents=[FIRING]))
    until = store.acknowledge("a", "Ana", NOW, until=NOW + HOUR).incident.acknowledged_until
    assert until is not None
    if prolonged:  # after the tick has read it
        store.acknowledge("a", "Ana", until, until=NOW + 8 * HOUR)
    told = PlannedDelivery(
        FIRING.id, "unacknowledged", "oncall", "acknowledgement ended", {"n": 1}, until
    )
    ended = [(FIRING.id, until)]
    store.commit_tick(
        TickRecord(
            *(NOW, until), incidents=[FIRING], deliveries=[told], ended_acknowledgements=ended
        )
    )
    assert store.incident("a").acknowledged_by == ("Ana" if prolonged else None)
    assert len(store.deliveries(FIRING.id)) == (0 if prolonged else 1)


def test_a_second_one_stays_out_unless_it_brings_a_time_or_a_comment(
    store: Store, commit: Commit
) -> None:
    commit(FIRING)
    first = store.acknowledge("a", "Ana", NOW).incident
    assert store.acknowledge("a", "Bob", NOW + HOUR) == (first, False, None)
    assert len(store.actions("a" * 12)) == 1
    longer = store.acknowledge("a", "Ana", NOW + HOUR, until=NOW + 48 * HOUR)
    assert (longer.is_new, longer.incident.acknowledged_until) == (True, NOW + 48 * HOUR)
    handed = store.acknowledge("a", "Bob", NOW + 2 * HOUR, comment="my shift")
    assert (handed.incident.acknowledged_by, handed.incident.acknowledged_at) == (
        "Bob",
        NOW + 2 * HOUR,
    )


def test_giving_back_clears_it_and_it_can_be_taken_again(store: Store, commit: Commit) -> None:
    commit(FIRING)
    store.acknowledge("a", "Ana", NOW, comment="mine")
    back = store.unacknowledge("a", "Ana", NOW + HOUR, comment="not mine").incident
    assert (back.acknowledged_at, back.acknowledged_by) == (None, None)
    assert (back.acknowledged_until, back.acknowledged_comment) == (None, None)
    assert store.acknowledge("a", "Bob", NOW + 2 * HOUR).is_new
    assert [(a.action, a.by) for a in store.actions("a" * 12)] == [
        ("acknowledge", "Ana"),
        ("unacknowledge", "Ana"),
        ("acknowledge", "Bob"),
    ]
    # a tick that knows nothing of it leaves it alone
    commit(replace(FIRING, last_true_at=NOW + HOUR))
    assert store.incident("a").acknowledged_by == "Bob"


def test_a_click_that_arrives_twice_is_done_once(store: Store, commit: Commit) -> None:
    commit(FIRING)
    first = store.acknowledge("a", "Ana", NOW, request_id="T1")
    store.unacknowledge("a", "Ana", NOW + HOUR, request_id="T2")
    again = store.acknowledge("a", "Ana", NOW + 2 * HOUR, request_id="T1")
    assert (again.is_new, again.action) == (False, first.action)
    assert store.incident("a").acknowledged_by is None
    assert not store.unacknowledge("a", "Ana", NOW + 2 * HOUR, request_id="T2").is_new


def test_ten_that_arrive_at_once_are_done_once(database: str, store: Store, commit: Commit) -> None:
    commit(FIRING)

    def click(_: int) -> bool:
        with Store.open(database, migrate=False) as beside:
            return beside.acknowledge("a", "Ana", NOW, request_id="T1").is_new

    with ThreadPoolExecutor(10) as pool:
        assert sum(pool.map(click, range(10))) == 1
    assert len(store.actions("a" * 12)) == 1


def test_what_is_refused_is_not_written(store: Store, commit: Commit) -> None:
    commit(FIRING, pending("b"))
    for until in (NOW, NOW - HOUR, NOW + timedelta(days=367)):
        with pytest.raises(UsageError, match="has to end after it begins"):
            store.acknowledge("a", "Ana", NOW, until=until)
    with pytest.raises(UsageError, match="at most 500 characters"):
        store.acknowledge("a", "Ana", NOW, comment="x" * 501)
    with pytest.raises(UsageError, match="is not acknowledged"):
        store.unacknowledge("a", "Ana", NOW)
    with pytest.raises(UsageError, match="has not fired yet: there is nothing to give back"):
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
    assert [(a.action, a.incident_id, a.subject) for a in store.latest_actions(5)] == [
        ("end silence", None, "b" * 12),
        ("note", number, None),
    ]
    assert store.unplanned_actions() == []
    with pytest.raises(UsageError, match="no incident"):
        store.note_action("note", "Ana", NOW, incident_id="f" * 12)
