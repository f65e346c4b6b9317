"""What people do, in the database: acknowledgements, marks, silences; weekly reports."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest
from made_incidents import with_values
from small_page import small_page
from store_cases import NOW, committer, pending, prune

from driftwatch.errors import UsageError
from driftwatch.incidents.incident import Incident
from driftwatch.incidents.silence import Silence, parse_matchers
from driftwatch.notify.page import Acknowledgement
from driftwatch.store.actions import Mark
from driftwatch.store.incidents import LONGEST_BECAUSE
from driftwatch.store.store import Store
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
    store.unacknowledge("a", "Ana", NOW + HOUR)
    again = store.acknowledge("a", "Ana", NOW + 2 * HOUR, request_id="T1")
    assert (again.is_new, again.action) == (False, first.action)
    assert store.incident("a").acknowledged_by is None


def test_what_is_refused_is_not_written(store: Store, commit: Commit) -> None:
    commit(FIRING, pending("b"))
    with pytest.raises(UsageError, match="at most 500 characters"):
        store.acknowledge("a", "Ana", NOW, comment="x" * 501)
    with pytest.raises(UsageError, match="is not acknowledged"):
        store.unacknowledge("a", "Ana", NOW)
    with pytest.raises(UsageError, match="has not fired yet: it cannot be unacknowledged"):
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


def fired(digit: str = "a") -> Incident:
    return with_values(pending(digit), firing_at=NOW)


def test_who_marks_last_stands(store: Store) -> None:
    committer(store)(fired("a"), fired("b"))
    store.mark("a", "useful", by="Ana", at=NOW)
    later = NOW + HOUR
    longest = "x" * LONGEST_BECAUSE
    told = store.mark("aaaa", "not useful", by="Bob", at=later, because=longest)
    assert told == Mark("a" * 12, "not useful", later, "Bob", longest)
    assert store.marks(["a" * 12, "b" * 12]) == {"a" * 12: told}


def test_a_tick_leaves_marks_alone_and_they_go_with_their_incident(store: Store) -> None:
    tick = committer(store)
    tick(fired())
    store.mark("a", "not useful", by="Ana", at=NOW)
    over = with_values(fired(), resolved_at=NOW)
    tick(fired())
    tick(over)
    assert list(store.marks(["a" * 12])) == ["a" * 12]
    prune(store, incidents_before=NOW + timedelta(days=400))
    assert store.marks(["a" * 12]) == {}


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


def test_it_is_pruned_by_when_it_was_made(store: Store) -> None:
    store.write_report("2026-W09", {"week": {"name": "2026-W09"}}, ["oncall", "log"], NOW)
    prune(store, incidents_before=NOW)
    assert store.report_weeks() == ["2026-W09"]
    prune(store, incidents_before=NOW + HOUR)
    assert store.report_weeks() == []
