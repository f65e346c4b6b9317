"""One incident's life, minute by minute."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from life_cycle_steps import advance
from small_page import small_page

from driftwatch.incidents.incident import Incident, Transition
from driftwatch.incidents.life_cycle import (
    Observation,
    RuleTiming,
    close,
    identity,
    incident_id,
)

START = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
TARGET = {"instance": "host:8000", "engine": "0"}
KEY = identity("CapBinds", TARGET)
T, F, U = True, False, None
ABSENT = "absent"


def timing(for_: float = 120, keep: float = 120) -> RuleTiming:
    return RuleTiming("CapBinds", "CapBinds", "page", for_, keep)


def run(
    verdicts: Sequence[bool | str | None],
    rule: RuleTiming | None = None,
    state: dict[str, Incident] | None = None,
    first_end: datetime = START + timedelta(minutes=1),
) -> tuple[dict[str, Incident], list[Transition]]:
    """Feed one verdict a minute; says what is open and what happened."""
    rule = rule or timing()
    incidents = dict(state or {})
    happened: list[Transition] = []
    for minute, verdict in enumerate(verdicts):
        seen = [] if isinstance(verdict, str) else [Observation(KEY, rule, TARGET, verdict)]
        end = first_end + timedelta(minutes=minute)
        incidents, transitions = advance(incidents, end, seen)
        happened += transitions
    return incidents, happened


def minute(number: int) -> datetime:
    return START + timedelta(minutes=number)


def events(happened: list[Transition]) -> list[tuple[str, datetime]]:
    return [(t.event, t.at) for t in happened]


def test_pending_until_for_is_over_then_firing() -> None:
    incidents, happened = run([T])
    assert happened == []
    assert incidents[KEY].state == "pending"
    assert incidents[KEY].firing_at is None
    assert incidents[KEY].started_at == START
    incidents, happened = run([T, T])
    assert events(happened) == [("firing", minute(2))]
    assert incidents[KEY].state == "firing"
    assert incidents[KEY].firing_at == minute(2)
    assert incidents[KEY].last_true_at == minute(2)


@pytest.mark.parametrize(
    ("for_seconds", "fires_at"), [(0, 1), (1, 1), (60, 1), (61, 2), (300, 5), (301, 6)]
)
def test_for_counts_true_minutes(for_seconds: float, fires_at: int) -> None:
    _, happened = run([T] * 8, timing(for_=for_seconds))
    assert events(happened) == [("firing", minute(fires_at))]


def test_false_drops_a_pending_incident_and_the_clock_starts_anew() -> None:
    assert run([T, F]) == ({}, [])
    incidents, happened = run([T, F, T])
    assert happened == []
    assert incidents[KEY].started_at == minute(2)
    assert incidents[KEY].true_seconds == 60


@pytest.mark.parametrize("gap", [U, ABSENT])
def test_unknown_and_unevaluated_minutes_are_no_evidence_for_firing(gap: bool | str | None) -> None:
    incidents, happened = run([T, gap, gap, gap, gap])
    assert happened == []
    assert incidents[KEY].state == "pending"
    assert incidents[KEY].true_seconds == 60
    _, happened = run([T, gap, gap, gap, gap, T])
    assert events(happened) == [("firing", minute(6))]


@pytest.mark.parametrize("gap", [U, ABSENT])
def test_unknown_and_unevaluated_minutes_resolve_nothing(gap: bool | str | None) -> None:
    incidents, happened = run([T, T, *[gap] * 500])
    assert events(happened) == [("firing", minute(2))]
    assert incidents[KEY].state == "firing"
    # and they do not count towards keep_firing_for between two false minutes
    incidents, happened = run([T, T, F, gap, gap, gap])
    assert incidents[KEY].false_seconds == 60
    _, happened = run([T, T, F, gap, gap, gap, F])
    assert events(happened)[-1] == ("resolved", minute(7))


def test_unknown_opens_nothing() -> None:
    assert run([U, F, U]) == ({}, [])


def test_downtime_is_no_evidence() -> None:
    incidents, _ = run([T])
    later = START + timedelta(hours=5)
    incidents, happened = run([T], state=incidents, first_end=later)
    assert events(happened) == [("firing", later)]
    incidents, happened = run([F], state=incidents, first_end=later + timedelta(hours=5))
    assert happened == []
    assert incidents[KEY].state == "firing"


@pytest.mark.parametrize(("keep", "resolves_at"), [(0, 3), (60, 3), (61, 4), (180, 5)])
def test_keep_firing_for_counts_false_minutes(keep: float, resolves_at: int) -> None:
    incidents, happened = run([T, T, F, F, F, F], timing(keep=keep))
    assert incidents == {}
    assert events(happened) == [("firing", minute(2)), ("resolved", minute(resolves_at))]
    resolved = happened[-1].incident
    assert resolved.state == "resolved"
    assert resolved.resolved_at == minute(resolves_at)
    assert resolved.last_true_at == minute(2)
    assert resolved.id == happened[0].incident.id


def test_true_again_while_kept_firing_is_the_same_incident() -> None:
    incidents, happened = run([T, T, F, T, F])
    assert events(happened) == [("firing", minute(2))]
    assert incidents[KEY].false_seconds == 60
    assert incidents[KEY].last_true_at == minute(4)


def test_after_resolved_a_new_one_begins() -> None:
    _, happened = run([T, F, T, F], timing(for_=0, keep=0))
    assert [event for event, _ in events(happened)] == ["firing", "resolved", "firing", "resolved"]
    ids = [t.incident.id for t in happened]
    assert ids[0] == ids[1] != ids[2] == ids[3]
    assert happened[2].incident.started_at == minute(2)


def test_since_is_the_beginning_but_no_evidence_for_for() -> None:
    began = START - timedelta(minutes=9)
    seen = Observation(KEY, timing(for_=120), TARGET, True, since=began)
    incidents, happened = advance({}, minute(1), [seen])
    assert happened == ()
    assert incidents[KEY].started_at == began
    assert incidents[KEY].true_seconds == 60


def test_one_beginning_named_twice_still_makes_two_ids() -> None:
    began = START - timedelta(minutes=9)
    rule = timing(for_=0, keep=0)
    seen = [Observation(KEY, rule, TARGET, v, since=began) for v in (True, False, True)]
    incidents: dict[str, Incident] = {}
    ids = []
    for number, observation in enumerate(seen, start=1):
        incidents, happened = advance(incidents, minute(number), [observation])
        ids += [t.incident.id for t in happened if t.event == "firing"]
    assert len(set(ids)) == 2


def test_since_in_the_future_is_not_believed() -> None:
    seen = Observation(KEY, timing(), TARGET, True, since=START + timedelta(hours=1))
    incidents, _ = advance({}, minute(1), [seen])
    assert incidents[KEY].started_at == START


def test_a_minute_counted_once_is_not_counted_again() -> None:
    incidents, _ = run([T])
    seen = [Observation(KEY, timing(), TARGET, True)]
    again, happened = advance(incidents, minute(1), seen)
    assert (again, happened) == (incidents, ())
    old, happened = advance(incidents, minute(0), [replace(seen[0], verdict=False)])
    assert (old, happened) == (incidents, ())


def test_a_raised_for_does_not_take_back_what_fires() -> None:
    incidents, _ = run([T, T])
    raised = RuleTiming("CapBinds", "CapBinds", "notice", 3600, 120)
    incidents, happened = run([T], raised, state=incidents, first_end=minute(3))
    assert happened == []
    assert incidents[KEY].state == "firing"
    assert incidents[KEY].severity == "page"


def test_a_pending_incident_takes_the_rule_as_it_is_now() -> None:
    incidents, _ = run([T])
    changed = RuleTiming("CapBinds", "CapBindsHard", "ticket", 120, 120)
    incidents, happened = run([T], changed, state=incidents, first_end=minute(2))
    assert [t.incident.severity for t in happened] == ["ticket"]
    assert incidents[KEY].alert == "CapBindsHard"


@pytest.mark.parametrize(
    ("verdicts", "opens"),
    [([F, T], True), ([U, T], True), ([F, U], False), ([U, F], False), ([F, F], False)],
)
def test_several_observations_of_a_key_are_one(verdicts: list[bool | None], opens: bool) -> None:
    rule = timing(for_=0)
    seen = [Observation(KEY, rule, TARGET, verdict) for verdict in verdicts]
    incidents, _ = advance({}, minute(1), seen)
    assert bool(incidents) is opens


def test_one_unknown_among_false_does_not_resolve() -> None:
    incidents, _ = run([T, T])
    seen = [Observation(KEY, timing(keep=0), TARGET, verdict) for verdict in (False, None)]
    after, happened = advance(incidents, minute(3), seen)
    assert (after, happened) == (incidents, ())


@pytest.mark.parametrize(
    ("overs", "stays"),
    [([T, F], True), ([F, T], True), ([U, F], True), ([T, U], True), ([T, T], False)],
)
def test_several_observations_are_over_when_all_are(overs: list[bool | None], stays: bool) -> None:
    incidents, _ = run([T, T, T])
    ends = replace(timing(keep=0), has_until=True)
    seen = [Observation(KEY, ends, TARGET, False, over=over) for over in overs]
    after, happened = advance(incidents, minute(4), seen)
    assert bool(after) is stays and bool(happened) is not stays
    # who says that it is not over says more than who does not know
    assert stays is False or (after[KEY].last_true_at == minute(4)) is (F in overs)


def test_acknowledgement_and_page_survive_every_step() -> None:
    incidents, _ = run([T, T])
    taken = replace(
        incidents[KEY],
        acknowledged_at=minute(2),
        acknowledged_by="Ana",
        page=small_page(),
        silenced_by="abc",
    )
    _, happened = run([T, F, F], state={KEY: taken}, first_end=minute(3))
    resolved = happened[-1].incident
    assert (resolved.acknowledged_by, resolved.silenced_by) == ("Ana", "abc")
    assert resolved.page == small_page()


def test_transitions_are_ordered_by_key_whatever_the_order_of_observations() -> None:
    rule = timing(for_=0)
    seen = [
        Observation(identity("R", {"instance": name}), rule, {"instance": name}, True)
        for name in ("c", "a", "b")
    ]
    one = advance({}, minute(1), seen)
    other = advance({}, minute(1), seen[::-1])
    assert one == other
    assert [t.incident.target["instance"] for t in one[1]] == ["a", "b", "c"]
    assert list(one[0]) == list(other[0])


def test_input_is_left_alone() -> None:
    incidents, _ = run([T])
    before = dict(incidents)
    advance(incidents, minute(2), [Observation(KEY, timing(), TARGET, True)])
    assert incidents == before


def test_identity_ignores_label_order_and_quotes_what_could_mislead() -> None:
    assert identity("R", {"a": "1", "b": "2"}) == identity("R", {"b": "2", "a": "1"})
    assert identity("R", {"a": '1",b="2'}) != identity("R", {"a": "1", "b": "2"})
    assert identity("R", {}) == "R{}"
    assert identity("R{", {}) != identity("R", {"": ""})


def test_id_is_twelve_hex_digits_and_the_zone_does_not_matter() -> None:
    from datetime import timezone

    there = START.astimezone(timezone(timedelta(hours=9)))
    assert incident_id(KEY, START) == incident_id(KEY, there)
    assert len(incident_id(KEY, START)) == 12
    int(incident_id(KEY, START), 16)


def test_who_is_gone_is_closed_with_the_reason() -> None:
    firing, _ = run([T, T])
    after, happened = close(firing, minute(5), {KEY: "it is gone", "other": "never open"})
    assert after == {}
    (told,) = happened
    assert (told.event, told.at, told.reason) == ("resolved", minute(5), "it is gone")
    assert (told.incident.state, told.incident.resolved_at) == ("resolved", minute(5))


def test_what_was_pending_is_dropped_without_a_word() -> None:
    pending, _ = run([T])
    assert close(pending, minute(5), {KEY: "it is gone"}) == ({}, ())


def test_closing_leaves_the_others_alone() -> None:
    firing, _ = run([T, T])
    assert close(firing, minute(5), {"other": "gone"}) == (firing, ())
