"""Incidents through the database: what a tick writes, and what it must leave alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta, timezone

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_page import small_page
from sqlalchemy.exc import IntegrityError
from store_cases import NOW, committer, pending

from driftwatch.errors import StoreError, UsageError
from driftwatch.incidents.incident import Incident, Transition
from driftwatch.incidents.life_cycle import Observation, RuleTiming, identity, step
from driftwatch.store import Store

Commit = Callable[..., None]


def firing(incident: Incident | None = None) -> Incident:
    return replace(
        incident or pending(),
        state="firing",
        firing_at=NOW + timedelta(minutes=2),
        page=small_page(labels={"a": "×"}),
    )


def resolved(incident: Incident | None = None) -> Incident:
    return replace(
        incident or firing(),
        state="resolved",
        resolved_at=NOW + timedelta(minutes=9),
        page=small_page(event="resolved"),
    )


def test_an_incident_comes_back_as_it_was(store: Store, commit: Commit) -> None:
    full = replace(
        firing(),
        started_at=NOW + timedelta(microseconds=1),
        silenced_by="quiet",
        false_seconds=60.0,
    )
    commit(full, pending("b"))
    assert store.open_incidents() == {full.key: full, pending("b").key: pending("b")}
    assert store.incident(full.id) == full


def test_times_come_back_in_utc_whatever_zone_they_had(store: Store, commit: Commit) -> None:
    there = timezone(timedelta(hours=-7))
    commit(replace(pending(), started_at=NOW.astimezone(there)))
    found = store.incident("a")
    assert found.started_at == NOW
    assert found.started_at.utcoffset() == timedelta(0)


def test_a_dropped_pending_incident_is_gone(store: Store, commit: Commit) -> None:
    commit(pending("a"), pending("b"))
    commit(pending("b"))
    assert list(store.open_incidents().values()) == [pending("b")]


def test_a_firing_incident_that_a_tick_does_not_mention_stays(store: Store, commit: Commit) -> None:
    commit(firing())
    commit()
    assert store.open_incidents() == {firing().key: firing()}


def test_resolved_is_written_from_the_transition_and_is_final(store: Store, commit: Commit) -> None:
    commit(firing())
    commit(happened=(Transition(resolved(), "resolved", NOW),))
    assert store.open_incidents() == {}
    assert store.incident("a") == resolved()
    commit(firing())
    assert store.incident("a") == resolved()


def test_one_resolves_and_the_next_opens_under_its_key_in_one_tick(
    store: Store, commit: Commit
) -> None:
    commit(firing())
    new = replace(pending("b"), key=firing().key)
    commit(new, happened=(Transition(resolved(), "resolved", NOW),))
    assert store.open_incidents() == {new.key: new}
    assert [i.state for i in store.incidents()] == ["pending", "resolved"]


def test_the_database_itself_refuses_two_open_incidents_of_a_key(
    store: Store, commit: Commit
) -> None:
    commit(firing())
    with pytest.raises(StoreError) as caught:
        commit(firing(), replace(pending("b"), key=firing().key))
    assert isinstance(caught.value.__cause__, IntegrityError)
    assert list(store.open_incidents().values()) == [firing()]


def test_a_page_once_rendered_is_kept_where_the_tick_brings_none(
    store: Store, commit: Commit
) -> None:
    commit(firing())
    commit(replace(firing(), page=None, true_seconds=600.0))
    assert store.incident("a") == replace(firing(), true_seconds=600.0)


def test_the_list_has_firing_first_then_pending_then_the_newest_resolved(
    store: Store, commit: Commit
) -> None:
    old = resolved(firing(pending("c")))
    new = replace(
        resolved(firing(pending("d"))),
        started_at=NOW + timedelta(hours=1),
        resolved_at=NOW + timedelta(hours=2),
    )
    commit(pending("a"), firing(pending("b")), old, new)
    assert [i.id[0] for i in store.incidents()] == ["b", "a", "d", "c"]
    assert [i.id[0] for i in store.incidents(since=NOW + timedelta(hours=1))] == ["b", "a", "d"]
    assert [i.id[0] for i in store.incidents(limit=1)] == ["b"]


def test_ids_may_be_given_by_their_first_digits(store: Store, commit: Commit) -> None:
    one = replace(pending("a"), id="abc123000000")
    two = replace(pending("b"), id="abd123000000")
    commit(one, two)
    assert store.incident("ABC").id == one.id
    assert store.incident("abd123000000") == two
    with pytest.raises(UsageError, match="more than one incident: abc123000000, abd123000000"):
        store.incident("ab")
    with pytest.raises(UsageError, match="no incident 'ff'"):
        store.incident("ff")


@pytest.mark.parametrize("text", ["", "%", "xyz", "a" * 13])
def test_what_is_no_id_is_refused(store: Store, commit: Commit, text: str) -> None:
    commit(pending())
    with pytest.raises(UsageError, match="is not the id of an incident"):
        store.incident(text)


def test_only_what_fires_can_be_acknowledged(store: Store, commit: Commit) -> None:
    commit(pending("a"), resolved(firing(pending("b"))))
    with pytest.raises(UsageError, match="has not fired yet"):
        store.acknowledge("a", "Ana", NOW)
    with pytest.raises(UsageError, match="already resolved"):
        store.acknowledge("b", "Ana", NOW)
    with pytest.raises(UsageError, match="no incident"):
        store.acknowledge("c", "Ana", NOW)


def test_an_acknowledgement_made_during_a_tick_is_not_lost(
    store: Store, commit: Commit, database: str
) -> None:
    commit(firing())
    read_by_the_tick = store.open_incidents()
    with Store.open(database, migrate=False) as beside:
        beside.acknowledge("a", "Ana", NOW)
    commit(*(replace(i, true_seconds=999.0) for i in read_by_the_tick.values()))
    found = store.incident("a")
    assert (found.acknowledged_by, found.true_seconds) == ("Ana", 999.0)
    commit(happened=(Transition(resolved(), "resolved", NOW),))
    assert store.incident("a").acknowledged_by == "Ana"


histories = st.lists(
    st.dictionaries(st.sampled_from("ab"), st.sampled_from([True, False, None])), max_size=12
)


@settings(deadline=None, derandomize=True, database=None, max_examples=8)
@given(histories)
def test_a_restart_after_every_minute_changes_nothing(
    tmp_path_factory: pytest.TempPathFactory, history: list[dict[str, bool | None]]
) -> None:
    """P4: the state machine through the database is the state machine in memory."""
    path = tmp_path_factory.mktemp("restart") / "driftwatch.db"
    in_memory: dict[str, Incident] = {}
    ended = 0
    for number, verdicts in enumerate(history, start=1):
        seen = [
            Observation(
                identity(name, {}), RuleTiming(name, name, "page", 120, 60), {}, verdicts[name]
            )
            for name in verdicts
        ]
        end = NOW + timedelta(minutes=number)
        happened = tuple(step(in_memory, end, seen))
        with Store.open(path) as store:
            after = store.open_incidents()
            same = tuple(step(after, end, seen))
            committer(store)(*after.values(), happened=same)
            assert same == happened
            ended += sum(t.event == "resolved" for t in happened)
            assert store.open_incidents() == in_memory
            assert sum(i.state == "resolved" for i in store.incidents()) == ended
