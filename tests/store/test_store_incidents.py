"""Incidents through the database: what a tick writes, and what it must leave alone."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from made_incidents import with_values
from small_page import small_page
from sqlalchemy.exc import IntegrityError
from store_cases import NOW, committer, pending

from driftwatch.errors import StoreError, UsageError
from driftwatch.incidents.incident import Incident, Transition
from driftwatch.incidents.life_cycle import PoolRule, Verdict, step
from driftwatch.model import TargetKey
from driftwatch.store.store import Store

Commit = Callable[..., None]
KEY = TargetKey("s:8000", "0")


def firing(incident: Incident | None = None) -> Incident:
    page, at = small_page(labels={"a": "×"}), NOW + timedelta(minutes=2)
    return with_values(incident or pending(), firing_at=at, page=page)


def resolved(incident: Incident | None = None) -> Incident:
    page, at = small_page(event="resolved"), NOW + timedelta(minutes=9)
    return with_values(incident or firing(), resolved_at=at, page=page)


def test_an_incident_comes_back_as_it_was(store: Store, commit: Commit) -> None:
    began = NOW + timedelta(microseconds=1)
    full = with_values(firing(), started_at=began, silenced_by="quiet", inhibited_by="Y")
    commit(full, pending("b"))
    assert store.open_incidents() == {full.key: full, pending("b").key: pending("b")}
    assert store.incident(full.id) == full


def test_a_dropped_pending_incident_is_gone(store: Store, commit: Commit) -> None:
    commit(pending("a"), pending("b"))
    commit(pending("b"))
    assert list(store.open_incidents().values()) == [pending("b")]


def test_resolved_is_written_from_the_transition_and_is_final(store: Store, commit: Commit) -> None:
    commit(firing())
    commit(happened=(Transition(resolved(), "resolved", NOW),))
    assert store.open_incidents() == {}
    assert store.incident("a") == resolved()
    commit(firing())
    assert store.incident("a") == resolved()


def test_the_database_itself_refuses_two_open_incidents_of_a_key(
    store: Store, commit: Commit
) -> None:
    commit(firing())
    with pytest.raises(StoreError) as caught:
        commit(firing(), pending("b", "a"))
    assert isinstance(caught.value.__cause__, IntegrityError)
    assert list(store.open_incidents().values()) == [firing()]


def test_a_page_once_rendered_is_kept_where_the_tick_brings_none(
    store: Store, commit: Commit
) -> None:
    commit(firing())
    commit(with_values(firing(), page=None, inhibited_by="Y"))
    assert store.incident("a") == with_values(firing(), inhibited_by="Y")


def test_the_list_has_firing_first_then_pending_then_the_newest_resolved(
    store: Store, commit: Commit
) -> None:
    old = resolved(firing(pending("c")))
    new = with_values(
        resolved(firing(pending("d"))),
        started_at=NOW + timedelta(hours=1),
        resolved_at=NOW + timedelta(hours=2),
    )
    commit(pending("a"), firing(pending("b")), old, new)
    assert [i.id[0] for i in store.incidents()] == ["b", "a", "d", "c"]
    assert [i.id[0] for i in store.incidents(since=NOW + timedelta(hours=1))] == ["b", "a", "d"]
    assert [i.id[0] for i in store.incidents(limit=1)] == ["b"]


def test_ids_may_be_given_by_their_first_digits(store: Store, commit: Commit) -> None:
    one = with_values(pending("a"), id="abc123000000")
    two = with_values(pending("b"), id="abd123000000")
    commit(one, two)
    assert store.incident("ABC").id == one.id
    assert store.incident("abd123000000") == two
    with pytest.raises(UsageError, match="more than one incident: abc123000000, abd123000000"):
        store.incident("ab")
    with pytest.raises(UsageError, match="no incident 'ff'"):
        store.incident("ff")
    for text in ("", "%", "xyz", "a" * 13):
        with pytest.raises(UsageError, match="is not the id of an incident"):
            store.incident(text)


def test_an_acknowledgement_made_during_a_tick_is_not_lost(
    store: Store, commit: Commit, database: str
) -> None:
    commit(firing())
    read_by_the_tick = store.open_incidents()
    with Store.open(database, migrate=False) as beside:
        beside.acknowledge("a", "Ana", NOW)
    commit(*(with_values(i, inhibited_by="Y") for i in read_by_the_tick.values()))
    found = store.incident("a")
    assert (found.acknowledged_by, found.inhibited_by) == ("Ana", "Y")
    commit(happened=(Transition(resolved(), "resolved", NOW),))
    assert store.incident("a").acknowledged_by == "Ana"


@settings(deadline=None, derandomize=True, database=None, max_examples=8)
@given(st.lists(st.sampled_from("TF?"), max_size=12))
def test_a_restart_after_every_minute_changes_nothing(
    tmp_path_factory: pytest.TempPathFactory, history: list[str]
) -> None:
    """P4: the state machine through the database is the state machine in memory."""
    path = tmp_path_factory.mktemp("restart") / "driftwatch.db"
    rule = PoolRule("X", "X", "page", "p", for_seconds=120.0, keep_firing_for_seconds=60.0)
    verdicts = {"T": Verdict(True, True), "F": Verdict(False, False), "?": Verdict(None, None)}
    in_memory: Incident | None = None
    for number, letter in enumerate(history, start=1):
        end, seen = NOW + timedelta(minutes=number), {KEY: verdicts[letter]}
        in_memory, event = step(in_memory, rule, end, seen)
        with Store.open(path) as store:
            same, also = step(store.open_incidents().get(rule.key), rule, end, seen)
            assert (same, also) == (in_memory, event)
            over = same is not None and same.state == "resolved"
            happened = () if same is None or also is None else (Transition(same, also, end),)
            committer(store)(*([] if same is None or over else [same]), happened=happened)
        in_memory = None if over else in_memory
