"""A tick is a transaction: whoever ticks a batch, how often and how late, commits the same once."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from batch_cases import BEGIN, RECORDED, fleet_of, minutes_of, pools_of, told
from fakes.manual_clock import ManualClock
from polars.testing import assert_frame_equal
from service_cases import FrameSource, NarrowSource, shipped_plan
from structlog.testing import capture_logs

from driftwatch.collect.schema import Collected
from driftwatch.receivers.registry import Receiver
from driftwatch.receivers.sender import Message
from driftwatch.service.liveness import why_withheld
from driftwatch.service.run import Service
from driftwatch.store.store import Store

MINUTE = timedelta(minutes=1)
LENGTH = 18  # minutes
BATCHES = 4


class Nobody:
    """A receiver that takes everything."""

    def send(self, message: Message) -> None:
        pass


class Interrupted(NarrowSource):
    """While it is asked, something else happens once."""

    between: Callable[[], object] | None = None

    def collect(self, *question: Any) -> Collected:
        between, self.between = self.between, None
        if between is not None:
            between()
        return super().collect(*question)


@pytest.fixture(scope="module")
def fleet(shared_data: Path) -> FrameSource:
    return fleet_of((shared_data / "vllm-0.32" / name for name in RECORDED), narrows=True)


class Processes:
    """Services on one database and one clock, as so many processes."""

    def __init__(self, database: Path, fleet: FrameSource, batches: int = BATCHES) -> None:
        self.database, self.fleet, self.clock = database, fleet, ManualClock(BEGIN)
        self.batches = batches
        self.store = Store.open(database)

    def start(self, batches: int | None = None, source: FrameSource | None = None) -> Service:
        receivers = [Receiver("oncall", ("page", "ticket"), Nobody())]
        return Service(
            [source or self.fleet],
            pools_of(shipped_plan(), self.fleet),
            Store.open(self.database),
            receivers,
            self.clock,
            batches=batches or self.batches,
        )


def end(service: Service) -> None:
    service.stop()
    service._store.close()


@pytest.fixture(scope="module")
def expected(fleet: FrameSource, tmp_path_factory: pytest.TempPathFactory) -> Store:
    """The database of one process with one batch, ticked each minute."""
    alone = Processes(tmp_path_factory.mktemp("one") / "one.db", fleet, batches=1)
    service = alone.start()
    for _ in range(LENGTH):
        alone.clock.advance(MINUTE)
        service.tick_once()
    end(service)
    assert len(told(alone.store)["incidents"]) >= 2
    assert told(alone.store)["deliveries"]
    return alone.store


def same(store: Store, expected: Store) -> None:
    mine, theirs = told(store), told(expected)
    for name in theirs:
        assert mine[name] == theirs[name], name
    assert_frame_equal(minutes_of(store), minutes_of(expected))


def test_batches_that_move_between_processes_tell_the_same(
    fleet: FrameSource, expected: Store, tmp_path: Path
) -> None:
    processes = Processes(tmp_path / "moved.db", fleet)
    two = [processes.start(), processes.start()]
    for minute in range(LENGTH):
        processes.clock.advance(MINUTE)
        if minute == 9:  # one dies, another one comes
            end(two[0])
            two[0] = processes.start()
        for number in range(BATCHES):
            two[(minute + number) // 2 % 2].tick(number)
    for one in two:
        end(one)
    same(processes.store, expected)


def test_a_tick_that_runs_twice_commits_once(fleet: FrameSource, tmp_path: Path) -> None:
    processes = Processes(tmp_path / "twice.db", fleet)
    one, other = processes.start(), processes.start()
    for _ in range(8):
        processes.clock.advance(MINUTE)
        first = [one.tick(number) for number in range(BATCHES)]
        again = [other.tick(number) for number in range(BATCHES)]
        assert not any(len(outcome.rows) for outcome in again)
        assert not any(outcome.transitions for outcome in again)
    assert any(len(outcome.rows) for outcome in first)
    minutes = minutes_of(processes.store)
    assert minutes.select("instance", "engine", "end").is_duplicated().sum() == 0
    end(one)
    end(other)


def test_a_tick_that_another_one_overtook_commits_nothing_and_the_next_is_right(
    fleet: FrameSource, expected: Store, tmp_path: Path
) -> None:
    processes = Processes(tmp_path / "lost.db", fleet)
    source = Interrupted(fleet.frame, fleet.targets)
    one, other = processes.start(source=source), processes.start()
    lost = 0
    for minute in range(LENGTH):
        processes.clock.advance(MINUTE)
        for number in range(BATCHES):
            if (minute + number) % 3:
                one.tick(number)
                continue
            source.between = lambda number=number: other.tick(number)
            with capture_logs() as logs:
                assert one.tick(number) is None
            lost += [entry["event"] for entry in logs].count("tick lost")
    assert lost == LENGTH * BATCHES // 3
    end(one)
    end(other)
    same(processes.store, expected)


def test_who_is_late_is_said_to_the_heartbeat(fleet: FrameSource, tmp_path: Path) -> None:
    processes = Processes(tmp_path / "heartbeat.db", fleet)
    one = processes.start()
    assert (
        why_withheld(processes.store, None, processes.clock.now()) == "no tick of batch 0, 1, 2, 3"
    )
    processes.clock.advance(MINUTE)
    one.tick_once()
    assert why_withheld(processes.store, None, processes.clock.now()) is None
    processes.clock.advance(3 * MINUTE)
    for number in (0, 1, 3):
        one.tick(number)
    assert why_withheld(processes.store, None, processes.clock.now()) == "no tick of batch 2"
    end(one)
