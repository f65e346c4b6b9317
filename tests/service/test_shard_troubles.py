"""Shards in trouble: memory that cannot be read, and shards that are taken during a tick."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import pytest
from service_cases import FrameSource, shipped_plan
from shard_cases import BEGIN, SHARDS, Processes, fleet_of, pools_of, service_of

from driftwatch.clock import ManualClock, SystemClock
from driftwatch.collect.schema import Collected
from driftwatch.service.rendezvous import shard_of
from driftwatch.service.run import Service
from driftwatch.store.store import Store
from driftwatch.testing.postgres_server import PostgresServer


@pytest.fixture
def fleet(shared_data: Path) -> FrameSource:
    return fleet_of(shared_data / "vllm-0.32" / name for name in ("run_cap", "run_main"))


@pytest.fixture
def processes(
    fleet: FrameSource, postgres: PostgresServer, postgres_url: str
) -> Iterator[Processes]:
    clock = ManualClock(BEGIN)
    plan = pools_of(shipped_plan(), fleet)
    make = service_of(fleet, plan, clock, "http://127.0.0.1:1/")
    made = Processes(postgres, postgres_url, clock, make)
    yield made
    made.close()


def test_memory_that_cannot_be_read_costs_its_own_shard_and_is_told(
    processes: Processes, postgres: PostgresServer, postgres_url: str
) -> None:
    database = postgres_url.partition("@/")[2].partition("?")[0]
    broken = shard_of("pool-0", SHARDS)
    processes.start("a")
    for _ in range(3):
        processes.tick()
    name = f"'shard-{broken}/tick'"
    postgres.query(f"UPDATE memory SET value = '\\x00ff' WHERE name = {name}", database)
    processes.kill("a")
    processes.start("b")
    for _ in range(5):
        processes.tick()
    service = processes.alive["b"].service
    watched = {one.share.shard for one in service._shards._watches.values() if one.share}
    assert watched == set(range(SHARDS)) - {broken}
    assert service.metrics.registry.get_sample_value("driftwatch_shards_unwatched") == 1.0
    assert service._shards.unwatched(processes.clock.now()) == [broken]
    # what docs/sre/operations.md says
    postgres.query(f"DELETE FROM memory WHERE name LIKE 'shard-{broken}/%'", database)
    for _ in range(2):
        processes.tick()
    assert service._shards.unwatched(processes.clock.now()) == []
    assert service.metrics.registry.get_sample_value("driftwatch_shards_unwatched") == 0.0


class SlowSource(FrameSource):
    """Answers when it is let."""

    def __init__(self, fleet: FrameSource) -> None:
        super().__init__(fleet.frame, fleet.targets)
        self.is_asked, self.go = threading.Event(), threading.Event()

    def collect(self, since: datetime, until: datetime) -> Collected:
        self.is_asked.set()
        self.go.wait(30)
        return super().collect(since, until)


def test_shards_that_are_taken_during_a_tick_do_not_wait_an_interval(
    fleet: FrameSource, tmp_path: Path
) -> None:
    source, ticks = SlowSource(fleet), threading.Semaphore(0)
    with Store.open(tmp_path / "d.db") as store:
        service = Service(
            *([source], shipped_plan(), store, [], SystemClock()),
            interval_seconds=600.0,
            on_outcome=lambda _: ticks.release(),
        )
        service.start()
        try:
            assert source.is_asked.wait(20)
            service.tick_soon()
            source.go.set()
            assert ticks.acquire(timeout=20)
            assert ticks.acquire(timeout=20)
            assert not ticks.acquire(timeout=1)
        finally:
            service.stop()
