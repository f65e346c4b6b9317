"""Deliveries: claimed once, sent in order, tried again, given up; a hang delays no other."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from datetime import timedelta

import pytest
from fakes.manual_clock import ManualClock
from outbox_cases import NOW, Desk, commit, outbox_of, planned, refusing, value

from driftwatch.clock import SystemClock
from driftwatch.errors import StoreError
from driftwatch.receivers.sender import Message
from driftwatch.service.metrics import OwnMetrics
from driftwatch.service.outbox import Outbox
from driftwatch.store.deliveries import CLAIM
from driftwatch.store.store import Store
from tests.outbox import undelivered_count

LATER = timedelta(minutes=10)
GONE = refusing("desk answered 404: no_service", permanent=True)


@pytest.fixture
def store(database: str) -> Iterator[Store]:
    with Store.open(database) as opened:
        yield opened


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(NOW)


def rows(store: Store, number: int) -> list[tuple[str, str, str]]:
    return [(d.receiver, d.event, d.status) for d in store.deliveries(f"{number:012x}")]


def both(number: int, event: str = "firing") -> list[object]:
    return [planned(number, event, name) for name in ("desk", "other")]  # type: ignore[arg-type]


def test_two_processes_send_each_message_once(store: Store, clock: ManualClock) -> None:
    """What one has claimed the other leaves alone, until the claim is over."""
    desks = Desk(), Desk()
    first, second = (outbox_of(store, clock, desk=desk)[0] for desk in desks)
    commit(store, planned(1), planned(2))
    claimed = store.claim("desk", NOW)
    assert claimed is not None and claimed.attempts == 1
    assert [one.rule for one in second.deliver_once()] == ["Rule2"]
    assert first.deliver_once() == []
    clock.advance(CLAIM)
    assert [one.rule for one in first.deliver_once()] == ["Rule1"]
    assert [desk.taken for desk in desks] == [[("Rule1", "firing")], [("Rule2", "firing")]]


def test_what_cannot_be_sent_delays_nothing_new(store: Store, clock: ManualClock) -> None:
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
    commit(store, *both(1))  # type: ignore[arg-type]
    outbox.deliver_once()
    clock.advance(timedelta(seconds=1))
    commit(store, *both(1, "verified"), planned(2))  # type: ignore[arg-type]
    outbox.deliver_once()
    # the verdict waits behind the page at desk, and there only; another incident does not
    assert desk.taken == [("Rule2", "firing")]
    assert other.taken == [("Rule1", "firing"), ("Rule1", "verified")]
    desk.answer = lambda message: {"ts": message.event}
    clock.advance(LATER)
    outbox.deliver_once()
    assert desk.taken[1:] == [("Rule1", "firing"), ("Rule1", "verified")]
    # what the receiver called the first message is handed to the second one
    assert [m.conversation for m in desk.messages[-2:]] == [None, {"ts": "firing"}]


def test_retry_after_is_said_of_a_receiver_and_of_no_other(
    store: Store, clock: ManualClock
) -> None:
    desk, other = Desk(refusing("429", after=30.0)), Desk()
    outbox, _ = outbox_of(store, clock, desk=desk, other=other)
    commit(store, *both(1), *both(2))  # type: ignore[arg-type]
    outbox.deliver_once()
    assert (len(desk.messages), len(other.taken)) == (1, 2)
    clock.advance(timedelta(seconds=29))
    outbox.deliver_once()
    assert len(desk.messages) == 1
    desk.answer = lambda message: None
    clock.advance(timedelta(seconds=2))
    outbox.deliver_once()
    assert [rule for rule, _ in desk.taken] == ["Rule2", "Rule1"]


@pytest.mark.parametrize("hours", [0.5, 9.0])
def test_a_clock_that_is_set_back_holds_no_page_back(
    store: Store, clock: ManualClock, hours: float
) -> None:
    desk = Desk(refusing("503"))
    outbox, _ = outbox_of(store, clock, desk=desk)
    commit(store, planned(1), planned(2))
    outbox.deliver_once()
    clock.advance(timedelta(hours=-hours))
    store.make_deliveries_due(clock.now())  # as the tick does that notices it
    desk.answer = lambda message: None
    assert [a.result for a in outbox.deliver_once()] == ["sent", "sent"]


class _Unwritable:
    """The store, whose disk is full at times."""

    def __init__(self, store: Store) -> None:
        self._store, self.full = store, False

    def __getattr__(self, name: str) -> object:
        if self.full and name.startswith("write_result"):
            raise StoreError("the disk is full", code="full")
        return getattr(self._store, name)


def test_what_was_sent_and_could_not_be_noted_is_not_sent_again(
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


@pytest.mark.parametrize("text", ["a\x00b", "a\udcffb", "line\nline \U0001f525"])
def test_what_no_database_can_hold_stops_no_queue(
    store: Store, clock: ManualClock, text: str
) -> None:
    """An error of a page that cannot be made, and a name that a receiver gives its message."""

    def answer(message: Message) -> dict[str, str]:
        if message.page.rule == "Rule1":
            raise ValueError(text)
        return {"name": text}

    outbox, _ = outbox_of(store, clock, desk=Desk(answer))
    commit(store, planned(1), planned(2))
    assert [(a.rule, a.result) for a in outbox.deliver_once()] == [
        ("Rule1", "retried"),
        ("Rule2", "sent"),
    ]
    assert outbox.deliver_once() == []


def test_what_is_given_up_counts_for_a_day(store: Store, clock: ManualClock) -> None:
    outbox, metrics = outbox_of(store, clock, desk=Desk(GONE))
    commit(store, planned(1))
    assert [(a.receiver, a.result) for a in outbox.deliver_once()] == [("desk", "dead")]
    assert store.notified() == set()
    assert value(metrics, "driftwatch_deliveries_total", receiver="desk", result="dead") == 1
    for after, count in ((0, 1), (23, 1), (25, 0)):
        clock.set(NOW + timedelta(hours=after))
        assert outbox.deliver_once() == []
        assert value(metrics, "driftwatch_undelivered_pages") == count
        labels = {"receiver": "desk", "status": "dead"}
        assert value(metrics, "driftwatch_receiver_undelivered", **labels) == count


def test_a_receiver_that_left_the_configuration(store: Store, clock: ManualClock) -> None:
    outbox, metrics = outbox_of(store, clock)
    commit(store, planned(1))
    assert outbox.deliver_once() == []
    assert value(metrics, "driftwatch_deliveries_total", receiver="desk", result="dead") == 1
    (row,) = store.deliveries(f"{1:012x}")
    assert row.last_error == "the configuration has no such receiver any more"


def test_after_a_day_of_trying_it_is_given_up(store: Store, clock: ManualClock) -> None:
    desk = Desk(refusing("desk: no answer within 10 s"))
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
    commit(store, planned(1, "verified"))
    desk.answer = GONE
    clock.advance(timedelta(minutes=1))
    outbox.deliver_once()
    assert rows(store, 1) == [("desk", "firing", "dead"), ("desk", "verified", "withdrawn")]


def test_a_resolve_takes_the_place_of_a_page_that_was_never_sent(
    store: Store, clock: ManualClock
) -> None:
    """The receiver was down from before it fired until after it resolved."""
    desk, other = Desk(refusing("503")), Desk()
    outbox, metrics = outbox_of(store, clock, desk=desk, other=other)
    commit(store, *both(1))  # type: ignore[arg-type]
    outbox.deliver_once()
    desk.answer = lambda message: None
    clock.advance(timedelta(hours=2))
    late = clock.now()
    ended = [
        planned(1, "resolved", name).model_copy(update={"planned_at": late})
        for name in ("desk", "other")
    ]
    commit(store, *ended)
    outbox.deliver_once()
    assert desk.taken == [("Rule1", "resolved")]
    assert other.taken == [("Rule1", "firing"), ("Rule1", "resolved")]
    assert value(metrics, "driftwatch_undelivered_pages") == 0


def test_what_is_on_its_way_when_it_resolves_is_sent_and_resolved(
    store: Store, clock: ManualClock
) -> None:
    def resolve(message: Message) -> None:
        if message.event == "firing":
            commit(store, planned(1, "resolved"))
            beside.append(store.claim("desk", NOW))  # as another process asks

    beside: list[object] = []
    desk = Desk(resolve)
    outbox, _ = outbox_of(store, clock, desk=desk)
    commit(store, planned(1))
    outbox.deliver_once()
    outbox.deliver_once()
    assert desk.taken == [("Rule1", "firing"), ("Rule1", "resolved")]
    assert [status for *_, status in rows(store, 1)] == ["sent", "sent"]
    assert beside == [None]


def until(condition: Callable[[], bool], seconds: float = 30.0) -> float:
    """Wait for it; the seconds that it took."""
    began = time.monotonic()
    while not condition():
        assert time.monotonic() - began < seconds, "it never came"
        time.sleep(0.005)
    return time.monotonic() - began


class Hanging(Desk):
    """Takes nothing before it is let go."""

    def __init__(self) -> None:
        super().__init__(self._hang)
        self.reached, self.over = threading.Event(), threading.Event()

    def _hang(self, message: Message) -> None:
        self.reached.set()
        self.over.wait(60)


class Running:
    """An outbox in threads, and its metrics."""

    def __init__(self, store: Store, **desks: Desk) -> None:
        self.metrics = OwnMetrics()
        self.outbox = Outbox(store, SystemClock(), self.metrics)
        self.outbox.adopt(desks)

    def __enter__(self) -> Running:
        self.outbox.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.outbox.stop()

    def pending(self, receiver: str) -> float | None:
        labels = {"receiver": receiver, "status": "pending"}
        return value(self.metrics, "driftwatch_receiver_undelivered", **labels)


def test_one_that_hangs_delays_no_other_and_the_gauges_move_meanwhile(store: Store) -> None:
    slow, busy, well = Hanging(), Desk(refusing("503")), Desk()
    receivers = ("slow", "busy", "well")
    with Running(store, slow=slow, busy=busy, well=well) as running:
        until(lambda: running.pending("well") == 0)
        commit(store, *(planned(n, "firing", name) for n in range(20) for name in receivers))
        running.outbox.wake()
        until(lambda: len(well.taken) == 20)
        until(lambda: len(busy.messages) >= 20)
        until(lambda: len(slow.messages) == 1)  # its thread may begin last
        commit(store, *(planned(n, "resolved", name) for n in range(20) for name in receivers))
        running.outbox.wake()
        until(lambda: len(well.taken) == 40)
        until(lambda: running.pending("well") == 0)
        until(lambda: value(running.metrics, "driftwatch_undelivered_pages") > 20)
        age = "driftwatch_receiver_oldest_pending_seconds"
        assert value(running.metrics, age, receiver="slow") > 0
        assert value(running.metrics, age, receiver="well") == 0
        slow.over.set()


def test_a_stop_waits_so_long_and_no_longer(store: Store) -> None:
    slow = Hanging()
    running = Running(store, slow=slow)
    commit(store, planned(1), *(planned(n, "firing", "slow") for n in (2, 3)))
    running.outbox.start()
    assert slow.reached.wait(30)
    began = time.monotonic()
    running.outbox.stop(0.2)
    assert time.monotonic() - began < 5
    slow.over.set()
    # what was on its way is marked when it ends, and nothing is begun after the stop
    until(lambda: store.deliveries(f"{2:012x}")[0].status == "sent")
    time.sleep(0.2)
    assert len(slow.messages) == 1
