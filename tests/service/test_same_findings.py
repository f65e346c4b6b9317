"""One process on SQLite, one on PostgreSQL, and four that share shards tell the same."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path

import pytest
from polars.testing import assert_frame_equal
from service_cases import FrameSource, shipped_plan
from shard_cases import (
    BEGIN,
    TICK,
    Processes,
    fleet_of,
    minutes_of,
    pools_of,
    service_of,
    told,
)

from driftwatch.clock import ManualClock
from driftwatch.errors import StoreError
from driftwatch.store.store import Store
from driftwatch.testing.postgres_server import PostgresServer
from driftwatch.testing.webhook_server import WebhookServer

LENGTH = timedelta(minutes=18)
SCHEMA = json.loads((Path(__file__).parents[2] / "docs" / "page.schema.json").read_text())
RECORDED = ("run_cap", "run_main", "run_slow", "run_cap")


@pytest.fixture
def fleet(shared_data: Path) -> FrameSource:
    return fleet_of((shared_data / "vllm-0.32" / name for name in RECORDED), narrows=True)


def alone(fleet: FrameSource, database: str | Path) -> Store:
    """The database of one process that watched all of it."""
    clock = ManualClock(BEGIN)
    with WebhookServer(SCHEMA) as hook:
        store = Store.open(database)
        service = service_of(fleet, pools_of(shipped_plan(3), fleet), clock, hook.url)(store)
        while clock.now() < BEGIN + LENGTH:
            clock.advance(TICK)
            service.tick_once()
            service.deliver_once()
        service.stop()
    return store


def shared(fleet: FrameSource, server: PostgresServer, url: str) -> Store:
    """The database of four that are killed, stopped, ended and started again."""
    clock = ManualClock(BEGIN)
    with WebhookServer(SCHEMA) as hook:
        store = Store.open(url)
        make = service_of(fleet, pools_of(shipped_plan(3), fleet), clock, hook.url)
        processes = Processes(server, url, clock, make)
        processes.start("a")
        number = 0
        try:
            while clock.now() < BEGIN + LENGTH:
                number += 1
                if number in (3, 4, 6):
                    processes.start({3: "b", 4: "c", 6: "d"}[number])
                if number == 10:
                    processes.kill("a")
                if number == 14:
                    processes.pause("b")
                if number == 18:
                    # it still believes that it holds its shards: its tick must write nothing
                    with pytest.raises(StoreError, match="taken over"):
                        processes.go_on("b").tick()
                    processes.kill("b")
                    processes.start("b")
                if number == 22:
                    processes.end("c")
                if number == 24:
                    processes.start("a")
                if number == 30:
                    for name in ("a", "b", "d"):
                        processes.kill(name)
                    processes.start("e")
                if number == 34:
                    processes.start("f")
                processes.tick()
        finally:
            processes.close()
    return store


def test_kills_stops_and_comers_change_no_page_and_no_finding(
    fleet: FrameSource, tmp_path: Path, postgres: PostgresServer, postgres_url: str
) -> None:
    name = postgres.new_database()
    with (
        alone(fleet, tmp_path / "one.db") as one,
        alone(fleet, postgres.url(name)) as moved,
        shared(fleet, postgres, postgres_url) as several,
    ):
        expected = told(one)
        assert len(expected["incidents"]) >= 2
        assert expected["deliveries"]
        for other in (moved, several):
            assert told(other) == expected
            assert_frame_equal(minutes_of(other), minutes_of(one))
    postgres.drop_database(name)
