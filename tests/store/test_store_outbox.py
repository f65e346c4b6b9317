"""The outbox: at least once, in order, never silently lost."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import outbox
import pytest
from made_incidents import with_values
from small_page import small_page
from sqlalchemy import select
from store_cases import NOW, pending, prune

from driftwatch.errors import StoreError
from driftwatch.incidents.delivery import AttemptResult, PlannedDelivery
from driftwatch.incidents.incident import Event, Transition
from driftwatch.incidents.planner import Routes, Subscription, plan_deliveries
from driftwatch.model import Advice, KnobMove, Reason
from driftwatch.store.deliveries import CLAIM
from driftwatch.store.store import Store
from driftwatch.store.tables import payloads
from driftwatch.verify.verification import Change, Verification
from tests.outbox import due_deliveries, mark_failed, mark_sent, undelivered_count

Commit = Callable[..., None]
SOON = NOW + timedelta(minutes=1)
LATE = NOW + timedelta(minutes=15)
SET = Advice(
    action="change", reason=Reason("x", "y"), moves=(KnobMove("max_num_seqs", None, 40.0),)
)
VERDICT = Verification(
    id="v" * 12,
    instance="a:8000",
    engine="0",
    pool="p",
    change=Change("knobs", NOW, {}),
    opened_at=NOW,
)
FIRING = with_values(pending(), firing_at=NOW, page=small_page())
RESOLVED = with_values(FIRING, resolved_at=SOON)


def planned(event: Event = "firing", receiver: str = "oncall", **rest: object) -> PlannedDelivery:
    one = outbox.planned("a" * 12, small_page(event=event), NOW, receiver, event)
    return one.model_copy(update=rest)


def test_a_planned_delivery_is_due_and_comes_back_as_it_was(store: Store, commit: Commit) -> None:
    commit(FIRING, deliveries=(planned(), planned()))
    (due,) = due_deliveries(store, NOW)
    assert (due.incident_id, due.event, due.receiver) == ("a" * 12, "firing", "oncall")
    assert (due.payload, due.planned_at) == (small_page(), NOW)
    assert (due.status, due.attempts, due.last_error, due.sent_at) == ("pending", 0, None, None)
    assert due_deliveries(store, NOW - timedelta(seconds=1)) == []
    assert undelivered_count(store) == 1
    assert mark_sent(store, due, SOON)
    commit(FIRING, deliveries=(planned(),))  # planned again, it is not sent again
    assert due_deliveries(store, SOON) == []


def test_a_page_is_stored_once_and_forgotten_after_it_was_sent(
    store: Store, commit: Commit
) -> None:
    names = ("boss", "desk", "log", "oncall")
    commit(FIRING, deliveries=tuple(planned(receiver=name) for name in names))
    assert payload_count(store) == 1
    boss, desk, *rest = due_deliveries(store, NOW)
    for one in rest:
        mark_sent(store, one, SOON)
    mark_failed(store, desk, SOON, "404", None)
    prune(store, payloads_before=SOON)
    assert {one.payload == boss.payload for one in store.deliveries("a" * 12)} == {True}
    prune(store, payloads_before=LATE)
    sent = {one.receiver: (one.status, one.payload) for one in store.deliveries("a" * 12)}
    assert sent == {
        "boss": ("pending", boss.payload),  # still to be sent, however long it waits
        "desk": ("dead", None),
        "log": ("sent", None),
        "oncall": ("sent", None),
    }
    (waiting,) = due_deliveries(store, LATE)
    mark_sent(store, waiting, LATE)
    prune(store, payloads_before=LATE + timedelta(days=7))
    assert payload_count(store) == 0
    assert [one.status for one in store.deliveries("a" * 12)].count("sent") == 3


def payload_count(store: Store) -> int:
    with store._reading() as connection:
        return len(connection.execute(select(payloads)).all())


def test_a_storm_is_sent_in_the_order_in_which_it_was_planned(store: Store, commit: Commit) -> None:
    storm = [with_values(FIRING, id=f"{n:012x}", pool=f"k{n}") for n in range(1201)]
    pages = [planned(subject=incident.id) for incident in reversed(storm)]
    happened = tuple(Transition(incident, "firing", NOW) for incident in storm)
    for _ in range(2):
        commit(*storm, happened=happened, deliveries=tuple(pages))
    due = due_deliveries(store, NOW)
    assert [d.incident_id for d in due] == [page.subject for page in pages]
    assert undelivered_count(store) == len(storm) == len(store.open_incidents())


def test_a_failed_one_waits_and_stays_counted(store: Store, commit: Commit) -> None:
    commit(FIRING, deliveries=(planned(),))
    (due,) = due_deliveries(store, NOW)
    assert mark_failed(store, due, NOW, "503", SOON)
    assert due_deliveries(store, SOON - timedelta(seconds=1)) == []
    (again,) = due_deliveries(store, SOON)
    assert (again.attempts, again.last_error, again.last_attempt_at) == (1, "503", NOW)
    assert undelivered_count(store) == 1
    assert mark_failed(store, again, SOON, "404", None)
    assert due_deliveries(store, SOON + timedelta(days=9)) == []
    (dead,) = store.deliveries("a" * 12)
    assert (dead.status, dead.attempts, dead.last_error) == ("dead", 2, "404")
    assert undelivered_count(store) == 1


def test_advice_that_came_later_waits_for_the_page_and_never_comes_after_the_end(
    store: Store, commit: Commit
) -> None:
    told = Transition(with_values(FIRING, page=small_page(advice=SET)), "updated", SOON)
    commit(FIRING, deliveries=(planned(),))
    for _ in range(2):
        commit(told.incident, happened=(told,), deliveries=(planned("updated"),))
    (due,) = due_deliveries(store, SOON)
    assert due.event == "firing"
    mark_sent(store, due, SOON)
    (late,) = due_deliveries(store, SOON)
    assert late.event == "updated"
    assert store.incident("a").page == small_page(advice=SET)
    mark_failed(store, late, SOON, "503", SOON)
    over = (Transition(RESOLVED, "resolved", SOON),)
    commit(happened=over, deliveries=(planned("resolved"), planned("updated")))
    assert [d.event for d in due_deliveries(store, SOON)] == ["resolved"]
    assert [(d.event, d.status) for d in store.deliveries("a" * 12)] == [
        ("firing", "sent"),
        ("updated", "withdrawn"),
        ("resolved", "pending"),
    ]


def test_a_verdict_is_told_to_who_had_the_page_also_after_the_end(
    store: Store, commit: Commit
) -> None:
    commit(FIRING, deliveries=(planned(), planned(receiver="dead")))
    dead = next(d for d in due_deliveries(store, NOW) if d.receiver == "dead")
    mark_failed(store, dead, NOW, "404", None)
    commit(happened=(Transition(RESOLVED, "resolved", SOON),))
    assert store.outbox_records() == []
    sent = {one.receiver: one.is_dead for one in store.outbox_records({"a" * 12})}
    assert sent == {"oncall": False, "dead": True}
    told = Transition(
        with_values(RESOLVED, page=small_page(event="verified", verification=VERDICT)),
        "verified",
        SOON,
    )
    plan = plan_deliveries(
        [told],
        Routes((Subscription("oncall", ()), Subscription("dead"))),
        (),
        SOON,
        open_incidents={},
        records=store.outbox_records({"a" * 12}),
    )
    commit(happened=plan.transitions, deliveries=plan.deliveries)
    assert [(d.event, d.receiver) for d in store.deliveries("a" * 12)][-1] == ("verified", "oncall")
    # the page of an incident that is over gets it as well, and stays the page of its end
    assert store.incident("a").page == small_page(verification=VERDICT)
    assert store.incident("a").state == "resolved"


def test_a_delivery_of_no_incident_is_refused_and_the_tick_is_kept_out_whole(
    store: Store, commit: Commit
) -> None:
    with pytest.raises(StoreError):
        commit(with_values(pending("b")), deliveries=(planned(),), memory={"m": b"1"})
    assert store.open_incidents() == {}
    assert store.memory() == {}


def test_the_queue_of_a_receiver(store: Store, commit: Commit) -> None:
    storm = [with_values(FIRING, id=f"{n:012x}", pool=f"k{n}") for n in range(4)]
    names = ("oncall", "log")
    pages = [planned(receiver=r, subject=i.id) for i in storm for r in names]
    commit(*storm, deliveries=tuple(pages))
    claimed = [store.claim("oncall", NOW) for _ in range(4)]
    assert [one and (one.subject, one.attempts) for one in claimed] == [(i.id, 1) for i in storm]
    assert store.claim("oncall", NOW) is None
    first, second, *rest = [one for one in claimed if one is not None]
    store.write_result(AttemptResult(first, NOW, "503", SOON))
    store.write_result(AttemptResult(second, NOW, "404"))
    assert store.backlog(NOW) == {"log": (4, NOW, 0), "oncall": (3, NOW, 1)}
    assert store.backlog(SOON)["oncall"].dead == 0
    for one in rest:
        store.write_result(AttemptResult(one, NOW))
    assert store.next_attempt_at("oncall") == SOON
    failed = {"attempts": 2, "last_attempt_at": SOON}
    again = first.model_copy(update=failed | {"next_attempt_at": SOON + CLAIM})
    assert store.claim("oncall", SOON) == again
    assert store.next_attempt_at("nobody") is None


def test_a_page_with_nan_is_refused_and_the_tick_is_kept_out_whole(
    store: Store, commit: Commit
) -> None:
    with pytest.raises(ValueError, match="JSON"):
        commit(FIRING, deliveries=(planned(payload={"x": float("nan")}),))
    assert store.open_incidents() == {}
