"""The outbox: at least once, in order, never silently lost."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from store_cases import NOW, pending

from driftwatch.errors import StoreError
from driftwatch.model import Event, Incident, Transition
from driftwatch.notify.plan import PlannedDelivery, plan_deliveries
from driftwatch.notify.silence import parse_matchers
from driftwatch.store import Store, TickRecord

Commit = Callable[..., None]
SOON = NOW + timedelta(minutes=1)
FIRING = replace(pending(), state="firing", firing_at=NOW, page={"n": 1})
RESOLVED = replace(FIRING, state="resolved", resolved_at=SOON)


def planned(event: Event = "firing", receiver: str = "oncall") -> PlannedDelivery:
    reason = "first" if event == "firing" else "resolved"
    return PlannedDelivery("a" * 12, event, receiver, reason, {"event": event, "x": "×"}, NOW)


def test_a_planned_delivery_is_due_and_comes_back_as_it_was(store: Store, commit: Commit) -> None:
    commit(FIRING, deliveries=(planned(),))
    (due,) = store.due_deliveries(NOW)
    assert (due.incident_id, due.event, due.receiver) == ("a" * 12, "firing", "oncall")
    assert (due.reason, due.payload, due.planned_at) == (
        "first",
        {"event": "firing", "x": "×"},
        NOW,
    )
    assert (due.status, due.attempts, due.last_error, due.sent_at) == ("pending", 0, None, None)
    assert store.due_deliveries(NOW - timedelta(seconds=1)) == []
    assert store.undelivered_count() == 1


def test_planned_twice_is_sent_once(store: Store, commit: Commit) -> None:
    commit(FIRING, deliveries=(planned(), planned()))
    (first,) = store.due_deliveries(NOW)
    assert store.mark_sent(first, SOON)
    commit(FIRING, deliveries=(planned(),))
    assert store.due_deliveries(SOON) == []
    assert [d.status for d in store.deliveries("a" * 12)] == ["sent"]


def test_a_storm_is_sent_in_the_order_in_which_it_was_planned(store: Store, commit: Commit) -> None:
    storm = [replace(FIRING, id=f"{n:012x}", key=f"k{n}") for n in range(1201)]
    pages = [replace(planned(), incident_id=incident.id) for incident in reversed(storm)]
    happened = tuple(Transition(incident, "firing", NOW) for incident in storm)
    for _ in range(2):
        commit(*storm, happened=happened, deliveries=tuple(pages))
    due = store.due_deliveries(NOW)
    assert [d.incident_id for d in due] == [page.incident_id for page in pages]
    assert store.undelivered_count() == len(storm) == len(store.open_incidents())


def test_sent_is_sent(store: Store, commit: Commit) -> None:
    commit(FIRING, deliveries=(planned(),))
    (due,) = store.due_deliveries(NOW)
    assert store.mark_sent(due, SOON) is True
    assert store.mark_sent(due, SOON) is False
    assert store.mark_failed(due, SOON, "late", None) is False
    (found,) = store.deliveries("a" * 12)
    assert (found.status, found.attempts, found.sent_at) == ("sent", 1, SOON)
    assert store.undelivered_count() == 0


def test_a_failed_one_waits_and_stays_counted(store: Store, commit: Commit) -> None:
    commit(FIRING, deliveries=(planned(),))
    (due,) = store.due_deliveries(NOW)
    assert store.mark_failed(due, NOW, "503", SOON)
    assert store.due_deliveries(SOON - timedelta(seconds=1)) == []
    (again,) = store.due_deliveries(SOON)
    assert (again.attempts, again.last_error, again.last_attempt_at) == (1, "503", NOW)
    assert store.undelivered_count() == 1
    assert store.mark_failed(again, SOON, "404", None)
    assert store.due_deliveries(SOON + timedelta(days=9)) == []
    (dead,) = store.deliveries("a" * 12)
    assert (dead.status, dead.attempts, dead.last_error) == ("dead", 2, "404")
    assert store.undelivered_count() == 1


def test_a_success_clears_the_error(store: Store, commit: Commit) -> None:
    commit(FIRING, deliveries=(planned(),))
    (due,) = store.due_deliveries(NOW)
    store.mark_failed(due, NOW, "503", NOW)
    store.mark_sent(due, SOON)
    (found,) = store.deliveries("a" * 12)
    assert (found.attempts, found.last_error) == (2, None)


def test_a_resolve_waits_for_its_firing_page(store: Store, commit: Commit) -> None:
    commit(FIRING, deliveries=(planned(), planned(receiver="log")))
    commit(
        happened=(Transition(RESOLVED, "resolved", SOON),),
        deliveries=(planned("resolved"), planned("resolved", "log")),
    )
    due = store.due_deliveries(SOON)
    assert [(d.event, d.receiver) for d in due] == [("firing", "oncall"), ("firing", "log")]
    store.mark_sent(due[1], SOON)
    store.mark_failed(due[0], SOON, "503", SOON + timedelta(hours=1))
    # one slow receiver does not hold up the other
    assert [(d.event, d.receiver) for d in store.due_deliveries(SOON)] == [("resolved", "log")]


def test_a_resolve_of_a_page_that_was_given_up_is_taken_back(store: Store, commit: Commit) -> None:
    commit(FIRING, deliveries=(planned(),))
    commit(happened=(Transition(RESOLVED, "resolved", SOON),), deliveries=(planned("resolved"),))
    (due,) = store.due_deliveries(SOON)
    store.mark_failed(due, SOON, "gone", None)
    assert store.due_deliveries(SOON) == []
    assert [(d.event, d.status) for d in store.deliveries("a" * 12)] == [("firing", "dead")]
    assert store.undelivered_count() == 1


def test_a_dead_resolve_takes_nothing_else_with_it(store: Store, commit: Commit) -> None:
    commit(FIRING, deliveries=(planned(),))
    (due,) = store.due_deliveries(SOON)
    store.mark_sent(due, SOON)
    commit(happened=(Transition(RESOLVED, "resolved", SOON),), deliveries=(planned("resolved"),))
    (due,) = store.due_deliveries(SOON)
    store.mark_failed(due, SOON, "gone", None)
    assert [d.status for d in store.deliveries("a" * 12)] == ["sent", "dead"]


def _follow_up(event: Event) -> PlannedDelivery:
    return replace(planned(event), reason=event)


def test_advice_that_came_later_waits_for_the_page_and_never_comes_after_the_end(
    store: Store, commit: Commit
) -> None:
    told = Transition(replace(FIRING, page={"recommendation": {"to": 40}}), "advised", SOON)
    commit(FIRING, deliveries=(planned(),))
    for _ in range(2):
        commit(FIRING, happened=(told,), deliveries=(_follow_up("advised"),))
    (due,) = store.due_deliveries(SOON)
    assert due.event == "firing"
    store.mark_sent(due, SOON)
    (late,) = store.due_deliveries(SOON)
    assert (late.event, late.reason) == ("advised", "advised")
    assert store.incident("a").page == {"n": 1, "recommendation": {"to": 40}}
    store.mark_failed(late, SOON, "503", SOON)
    over = (Transition(RESOLVED, "resolved", SOON),)
    commit(happened=over, deliveries=(planned("resolved"), _follow_up("advised")))
    assert [d.event for d in store.due_deliveries(SOON)] == ["resolved"]
    assert [d.event for d in store.deliveries("a" * 12)] == ["firing", "resolved"]


def test_a_verdict_is_told_to_who_had_the_page_also_after_the_end(
    store: Store, commit: Commit
) -> None:
    commit(FIRING, deliveries=(planned(), planned(receiver="dead")))
    dead = next(d for d in store.due_deliveries(NOW) if d.receiver == "dead")
    store.mark_failed(dead, NOW, "404", None)
    commit(happened=(Transition(RESOLVED, "resolved", SOON),))
    assert store.notified() == frozenset()
    assert store.notified({"a" * 12}) == {("a" * 12, "oncall")}
    verdict = {"verification": {"verdict": "PASS"}}
    told = Transition(replace(RESOLVED, page={**verdict, "event": "verified"}), "verified", SOON)
    plan = plan_deliveries(
        [told],
        [("oncall", ()), ("dead", ("page",))],
        (),
        SOON,
        open_incidents={},
        notified=store.notified({"a" * 12}),
    )
    commit(happened=plan.transitions, deliveries=plan.deliveries)
    assert [(d.event, d.receiver) for d in store.deliveries("a" * 12)][-1] == ("verified", "oncall")
    # the page of an incident that is over gets it as well, and stays the page of its end
    assert store.incident("a").page == {"n": 1, **verdict}
    assert store.incident("a").state == "resolved"


def test_advice_waits_for_nobody_while_it_is_silenced(store: Store) -> None:
    silence = store.add_silence(
        parse_matchers(["alert=Alert"]), until=SOON, by="Ana", at=NOW, comment=""
    )
    for event, expected in (("advised", 0), ("verified", 1)):
        plan = plan_deliveries(
            [Transition(FIRING, event, NOW)],
            [("oncall", ("page",))],
            [silence],
            NOW,  # type: ignore[arg-type]
            open_incidents={},
            notified={(FIRING.id, "oncall")},
        )
        assert len(plan.deliveries) == expected


def test_who_was_notified(store: Store, commit: Commit) -> None:
    names = ("sent", "waiting", "dead")
    commit(FIRING, deliveries=tuple(planned(receiver=name) for name in names))
    by_name = {d.receiver: d for d in store.due_deliveries(NOW)}
    store.mark_sent(by_name["sent"], NOW)
    store.mark_failed(by_name["dead"], NOW, "404", None)
    assert store.notified() == {("a" * 12, "sent"), ("a" * 12, "waiting")}


def test_a_delivery_of_no_incident_is_refused_and_the_tick_is_kept_out_whole(
    store: Store, commit: Commit
) -> None:
    with pytest.raises(StoreError):
        commit(replace(pending("b")), deliveries=(planned(),), memory={"m": b"1"})
    assert store.open_incidents() == {}
    assert store.memory() == {}


def test_a_page_with_nan_is_refused_and_the_tick_is_kept_out_whole(
    store: Store, commit: Commit
) -> None:
    with pytest.raises(ValueError, match="JSON"):
        commit(FIRING, deliveries=(replace(planned(), payload={"x": float("nan")}),))
    assert store.open_incidents() == {}


def test_a_silenced_page_goes_out_when_the_silence_ends_across_a_restart(path: Path) -> None:
    """Plan, commit, end the process, plan again: the promise needs nothing but the database."""

    def tick(*happened: Transition, minutes: int) -> None:
        now = NOW + timedelta(minutes=minutes)
        with Store.open(path) as store:
            known: dict[str, Incident] = {
                **store.open_incidents(),
                **{t.incident.key: t.incident for t in happened},
            }
            plan = plan_deliveries(
                happened,
                [("oncall", ("page",))],
                store.silences(now),
                now,
                open_incidents=known,
                notified=store.notified(),
            )
            store.commit_tick(
                TickRecord(
                    incidents=plan.open_incidents.values(),
                    transitions=plan.transitions,
                    deliveries=plan.deliveries,
                    since=now,
                    until=now,
                )
            )

    with Store.open(path) as store:
        silence = store.add_silence(
            parse_matchers(["alert=Alert"]),
            until=NOW + timedelta(hours=1),
            by="Ana",
            at=NOW,
            comment="",
        )
    tick(Transition(FIRING, "firing", SOON), minutes=1)
    tick(minutes=59)
    with Store.open(path) as store:
        assert store.due_deliveries(NOW + timedelta(hours=9)) == []
        assert store.incident("a").silenced_by == silence.id
    tick(minutes=60)
    tick(minutes=61)
    with Store.open(path) as store:
        (due,) = store.due_deliveries(NOW + timedelta(hours=9))
        assert (due.reason, due.payload) == ("silence ended", FIRING.page)
        assert store.incident("a").silenced_by is None
