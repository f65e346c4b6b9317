"""The order of one receiver's queue, what a failure changes, and what it does not."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import pytest
from outbox_cases import NOW, Desk, commit, outbox_of, planned, refusing

from driftwatch.clock import ManualClock
from driftwatch.errors import StoreError
from driftwatch.receivers.sender import Message
from driftwatch.service.outbox import ReceiverQueue
from driftwatch.store import Store
from tests.outbox import undelivered_count

LATER = timedelta(minutes=10)


@pytest.fixture
def store(database: str) -> Iterator[Store]:
    with Store.open(database) as opened:
        yield opened


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(NOW)


def test_a_page_that_cannot_be_made_is_tried_again_and_the_next_one_is_sent(
    store: Store, clock: ManualClock
) -> None:
    def answer(message: Message) -> None:
        if message.payload["rule"] == "Rule1":
            raise KeyError("reason_code")

    desk = Desk(answer)
    outbox, _ = outbox_of(store, clock, desk=desk)
    commit(store, planned(1), planned(2))
    attempts = outbox.deliver_once()
    assert [(a.rule, a.result) for a in attempts] == [("Rule1", "retried"), ("Rule2", "sent")]
    assert attempts[0].reason == "not expected: KeyError: 'reason_code'"
    (waiting,) = store.deliveries(f"{1:012x}")
    assert waiting.next_attempt_at is not None
    assert waiting.next_attempt_at > NOW


def test_what_was_read_before_the_process_was_stopped_is_read_again(
    store: Store, clock: ManualClock
) -> None:
    desk, times = Desk(), iter([0.0, 60.0, 61.0, 61.0])
    queue = ReceiverQueue("desk", store, clock, lambda: next(times))
    queue.sender = desk
    commit(store, planned(1))
    assert queue.send_next() is None
    assert desk.messages == []
    attempt = queue.send_next()
    assert attempt is not None
    assert attempt.result == "sent"


def test_what_is_new_goes_before_what_failed(store: Store, clock: ManualClock) -> None:
    desk = Desk(refusing("503", rules=["Rule1", "Rule2"]))
    outbox, _ = outbox_of(store, clock, desk=desk)
    commit(store, planned(1), planned(2))
    outbox.deliver_once()
    clock.advance(LATER)
    commit(store, planned(3))
    assert [a.rule for a in outbox.deliver_once()] == ["Rule3", "Rule1", "Rule2"]


def test_about_one_incident_everything_comes_in_order(store: Store, clock: ManualClock) -> None:
    desk, other = Desk(refusing("503", rules=["Rule1"])), Desk()
    outbox, _ = outbox_of(store, clock, desk=desk, other=other)
    both = ("desk", "other")
    commit(store, *(planned(1, "firing", name) for name in both))
    outbox.deliver_once()
    clock.advance(timedelta(seconds=1))
    commit(store, *(planned(1, "verified", name) for name in both), planned(2))
    outbox.deliver_once()
    # the verdict waits behind the page at desk, and there only; another incident does not
    assert desk.taken == [("Rule2", "firing")]
    assert other.taken == [("Rule1", "firing"), ("Rule1", "verified")]
    desk.answer = lambda message: None
    clock.advance(LATER)
    outbox.deliver_once()
    assert desk.taken[1:] == [("Rule1", "firing"), ("Rule1", "verified")]


def test_retry_after_is_said_of_a_receiver_and_of_no_other(
    store: Store, clock: ManualClock
) -> None:
    desk, other = Desk(refusing("429", after=30.0)), Desk()
    outbox, _ = outbox_of(store, clock, desk=desk, other=other)
    commit(store, *(planned(n, "firing", name) for n in (1, 2) for name in ("desk", "other")))
    outbox.deliver_once()
    assert (len(desk.messages), len(other.taken)) == (1, 2)
    clock.advance(timedelta(seconds=29))
    commit(store, planned(3), planned(3, "firing", "other"))
    outbox.deliver_once()
    assert (len(desk.messages), len(other.taken)) == (1, 3)
    desk.answer = lambda message: None
    clock.advance(timedelta(seconds=2))
    outbox.deliver_once()
    # the one that was refused waits its own time as well, which is no shorter
    assert [rule for rule, _ in desk.taken[:2]] == ["Rule2", "Rule3"]


def test_a_conversation_is_handed_to_the_next_message(store: Store, clock: ManualClock) -> None:
    desk = Desk(lambda message: {"ts": message.event})
    outbox, _ = outbox_of(store, clock, desk=desk)
    commit(store, planned(1))
    outbox.deliver_once()
    commit(store, planned(1, "resolved"))
    outbox.deliver_once()
    assert [m.conversation for m in desk.messages] == [None, {"ts": "firing"}]


class _Unwritable:
    """The store, whose disk is full at times."""

    def __init__(self, store: Store) -> None:
        self._store, self.full = store, False

    def __getattr__(self, name: str) -> object:
        if self.full and name == "write_result":
            raise StoreError("the disk is full", code="full")
        return getattr(self._store, name)


def test_what_was_sent_and_could_not_be_marked_is_not_sent_again(
    store: Store, clock: ManualClock
) -> None:
    desk, disk = Desk(), _Unwritable(store)
    outbox, _ = outbox_of(disk, clock, desk=desk)  # type: ignore[arg-type]
    commit(store, planned(1), planned(2))
    disk.full = True
    for _ in range(3):
        with pytest.raises(StoreError):
            outbox.deliver_once()
    assert desk.taken == [("Rule1", "firing")]
    disk.full = False
    outbox.deliver_once()
    assert desk.taken == [("Rule1", "firing"), ("Rule2", "firing")]
    assert undelivered_count(store) == 0


@pytest.mark.parametrize("hours", [0.5, 9.0])
def test_a_clock_that_is_set_back_holds_no_page_back(
    store: Store, clock: ManualClock, hours: float
) -> None:
    """A machine that woke with a wrong clock planned, tried and was told to wait."""
    desk = Desk(refusing("429", after=3000.0))
    outbox, _ = outbox_of(store, clock, desk=desk)
    commit(store, planned(1), planned(2))
    outbox.deliver_once()
    clock.advance(timedelta(hours=-hours))
    desk.answer = lambda message: None
    assert [a.result for a in outbox.deliver_once()] == ["sent", "sent"]
