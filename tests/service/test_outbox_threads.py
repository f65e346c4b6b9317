"""One receiver that hangs delays no other, and holds up neither a stop nor a reload."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from outbox_cases import Desk, commit, planned, refusing, value

from driftwatch.clock import SystemClock
from driftwatch.errors import StoreError
from driftwatch.receivers.sender import Message
from driftwatch.service.outbox import Outbox
from driftwatch.service.own_metrics import OwnMetrics
from driftwatch.store import Store
from tests.outbox import undelivered_count


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.open(tmp_path / "d.db") as opened:
        yield opened


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
        assert len(slow.messages) == 1
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


def test_a_database_that_does_not_serve_for_a_while(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk, full = Desk(), threading.Event()
    monkeypatch.setattr("driftwatch.service.outbox.POLL_SECONDS", 0.1)
    serve = store.claim

    def claim(*args: object) -> object:
        if full.is_set():
            raise StoreError("the disk is full", code="full")
        if not desk.messages:
            raise RuntimeError("something that nobody thought of")
        return serve(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(store, "claim", claim)
    with Running(store, desk=desk) as running:
        full.set()
        commit(store, planned(1))
        running.outbox.wake()
        time.sleep(0.3)
        full.clear()
        time.sleep(0.3)
        assert desk.messages == []
        monkeypatch.setattr(store, "claim", serve)
        until(lambda: len(desk.taken) == 1)


def test_receivers_come_go_and_change_while_one_hangs(store: Store) -> None:
    slow = Hanging()
    with Running(store, slow=slow) as running:
        commit(store, *(planned(n, "firing", "slow") for n in (1, 2)))
        running.outbox.wake()
        assert slow.reached.wait(30)
        # another address for it, and one more receiver
        changed, extra = Desk(), Desk()
        running.outbox.adopt({"slow": changed, "extra": extra})
        commit(store, planned(3, "firing", "extra"))
        running.outbox.wake()
        until(lambda: extra.taken == [("Rule3", "firing")])
        # it goes and comes again, all while the first message is on its way
        running.outbox.adopt({"extra": extra})
        running.outbox.adopt({"slow": changed, "extra": extra})
        assert changed.messages == []
        slow.over.set()
        until(lambda: undelivered_count(store) == 0)
    assert slow.taken == [("Rule1", "firing")]
    assert changed.taken == [("Rule2", "firing")]
