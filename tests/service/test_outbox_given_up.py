"""What a receiver never took: dead letters, pages that are over."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import pytest
from outbox_cases import NOW, Desk, commit, outbox_of, planned, refusing, value

from driftwatch.clock import ManualClock
from driftwatch.receivers.sender import Message
from driftwatch.store import Store

GONE = refusing("desk answered 404: no_service", permanent=True)


@pytest.fixture
def store(database: str) -> Iterator[Store]:
    with Store.open(database) as opened:
        yield opened


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(NOW)


def statuses(store: Store, number: int) -> list[tuple[str, str, str]]:
    return [(d.receiver, d.event, d.status) for d in store.deliveries(f"{number:012x}")]


def test_what_is_given_up_is_heard_by_nobody(store: Store, clock: ManualClock) -> None:
    outbox, metrics = outbox_of(store, clock, desk=Desk(GONE))
    commit(store, planned(1))
    assert [(a.receiver, a.result) for a in outbox.deliver_once()] == [("desk", "dead")]
    assert outbox.deliver_once() == []
    assert statuses(store, 1) == [("desk", "firing", "dead")]
    assert store.notified() == set()
    assert value(metrics, "driftwatch_deliveries_total", receiver="desk", result="dead") == 1


def test_a_dead_letter_counts_for_a_day(store: Store, clock: ManualClock) -> None:
    outbox, metrics = outbox_of(store, clock, desk=Desk(GONE))
    commit(store, planned(1))
    outbox.deliver_once()
    dead = {"receiver": "desk", "status": "dead"}
    for after, count in ((0, 1), (23, 1), (25, 0)):
        clock.set(NOW + timedelta(hours=after))
        outbox.deliver_once()
        assert value(metrics, "driftwatch_undelivered_pages") == count
        assert value(metrics, "driftwatch_receiver_undelivered", **dead) == count
    assert statuses(store, 1) == [("desk", "firing", "dead")]


def test_a_receiver_that_is_gone_from_the_configuration(store: Store, clock: ManualClock) -> None:
    outbox, metrics = outbox_of(store, clock)
    commit(store, planned(1))
    assert outbox.deliver_once() == []
    assert value(metrics, "driftwatch_deliveries_total", receiver="desk", result="dead") == 1
    (row,) = store.deliveries(f"{1:012x}")
    assert row.last_error == "the configuration has no receiver 'desk' any more"


def test_after_a_day_of_trying_it_is_given_up(store: Store, clock: ManualClock) -> None:
    desk = Desk(refusing("desk: timed out: no answer"))
    outbox, _ = outbox_of(store, clock, desk=desk)
    commit(store, planned(1))
    while [a.result for a in outbox.deliver_once()] != ["dead"]:
        clock.advance(timedelta(minutes=5))
    assert timedelta(hours=24) <= clock.now() - NOW <= timedelta(hours=24, minutes=10)
    assert len(desk.messages) > 100


def test_with_the_page_goes_what_waited_for_it(store: Store, clock: ManualClock) -> None:
    desk = Desk(refusing("503"))
    outbox, _ = outbox_of(store, clock, desk=desk)
    commit(store, planned(1))
    outbox.deliver_once()
    commit(store, planned(1, "updated"))
    desk.answer = GONE
    clock.advance(timedelta(minutes=1))
    outbox.deliver_once()
    assert statuses(store, 1) == [
        ("desk", "firing", "dead"),
        ("desk", "updated", "withdrawn"),
    ]


def test_a_page_that_is_over_is_one_message(store: Store, clock: ManualClock) -> None:
    """The receiver was down from before it fired until after it resolved."""
    desk, other = Desk(refusing("503")), Desk()
    outbox, metrics = outbox_of(store, clock, desk=desk, other=other)
    both = ("desk", "other")
    commit(store, *(planned(1, "firing", name) for name in both))
    outbox.deliver_once()
    commit(store, *(planned(1, "updated", name) for name in both))
    outbox.deliver_once()
    desk.answer = lambda message: None
    clock.advance(timedelta(hours=2))
    late = clock.now()
    commit(
        store,
        *(planned(1, "resolved", name).model_copy(update={"planned_at": late}) for name in both),
    )
    outbox.deliver_once()
    assert desk.taken == [("Rule1", "resolved")]
    assert other.taken == [("Rule1", e) for e in ("firing", "updated", "resolved")]
    of_desk = [d for d in store.deliveries(f"{1:012x}") if d.receiver == "desk"]
    assert [(d.event, d.status) for d in of_desk] == [
        ("firing", "withdrawn"),
        ("updated", "withdrawn"),
        ("resolved", "sent"),
    ]
    why = "withdrawn: the incident resolved before the receiver took this"
    assert of_desk[0].last_error == why
    assert value(metrics, "driftwatch_undelivered_pages") == 0


def test_fired_and_resolved_in_one_tick_is_one_message(store: Store, clock: ManualClock) -> None:
    desk = Desk()
    outbox, _ = outbox_of(store, clock, desk=desk)
    commit(store, planned(1), planned(1, "resolved"))
    outbox.deliver_once()
    assert [event for _, event in desk.taken] == ["resolved"]


def test_what_is_on_its_way_when_it_resolves_is_sent_and_resolved(
    store: Store, clock: ManualClock
) -> None:
    def resolve(message: Message) -> None:
        if message.event == "firing":
            commit(store, planned(1, "resolved"))

    desk = Desk(resolve)
    outbox, _ = outbox_of(store, clock, desk=desk)
    commit(store, planned(1))
    outbox.deliver_once()
    outbox.deliver_once()
    assert desk.taken == [("Rule1", "firing"), ("Rule1", "resolved")]
    assert [status for *_, status in statuses(store, 1)] == ["sent", "sent"]
