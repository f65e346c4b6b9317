"""Who outside hears of a tick: only of complete ones, and a receiver of heartbeats that hangs
delays nothing."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from fakes.loopback import Answer, LoopbackServer, Request
from fakes.manual_clock import ManualClock
from made_incidents import incident_of
from outbox import planned
from service_cases import FrameSource, shipped_plan
from small_page import small_page
from structlog.testing import capture_logs

from driftwatch.collect.schema import Collected, Source, scrape_frame
from driftwatch.errors import Unavailable
from driftwatch.incidents.incident import Transition
from driftwatch.model import Target, TargetKey
from driftwatch.service.run import Service
from driftwatch.store.store import Store, TickRecord
from tests.outbox import due_deliveries, mark_failed, mark_sent

START = datetime(2026, 1, 5, tzinfo=UTC)
KEY = TargetKey("a:8000", "0")


class PingServer(LoopbackServer):
    """A check of a dead man's switch."""

    def judge(self, request: Request) -> Answer:
        return Answer(200, "OK")


@pytest.fixture
def pinged() -> Iterator[PingServer]:
    with PingServer() as server:
        yield server


class Api(FrameSource):
    """A source that may be down, or say nothing of which servers exist."""

    def __init__(self, name: str) -> None:
        super().__init__(scrape_frame([]), {KEY: Target(KEY)})
        self.name = name
        self.down = False
        self.silent: str | None = None

    def collect(self, since: datetime, until: datetime) -> Collected:
        if self.down:
            raise Unavailable("no connection")
        found = super().collect(since, until)
        return Collected(found.scrapes, found.targets, silent=self.silent)


class Beating:
    """A service that ticks by hand and sends its heartbeats before it goes on."""

    def __init__(self, sources: list[Source], store: Store, url: str, every: float) -> None:
        self.clock = ManualClock(START)
        self.service = Service(sources, shipped_plan(), store, [], self.clock, interval_seconds=1)
        self.service.beat(lambda: url, every)

    def tick(self, seconds: float = 15.0) -> None:
        self.clock.advance(timedelta(seconds=seconds))
        self.service.tick_once()

    def count(self, result: str) -> float:
        labels = {"result": result}
        registry = self.service.metrics.registry
        return registry.get_sample_value("driftwatch_heartbeats_total", labels) or 0.0


@contextmanager
def _beating(
    folder: Path, url: str, *sources: Api, every: float = 0.001
) -> Iterator[tuple[Beating, Store]]:
    with Store.open(folder / "d.db") as store:
        beating = Beating(list(sources), store, url, every)
        try:
            yield beating, store
        finally:
            beating.service.stop()


def _until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not true():
        assert time.monotonic() < deadline, "it never came"
        time.sleep(0.01)


def test_a_ping_follows_each_tick_that_every_source_answered(
    pinged: PingServer, tmp_path: Path
) -> None:
    one, other = Api("one"), Api("other")
    with (
        _beating(tmp_path, f"{pinged.address}/canary-uuid", one, other) as (beating, _),
        capture_logs() as logs,
    ):
        beating.tick()
        _until(lambda: beating.count("sent") == 1)
        other.down = True
        beating.tick()
        beating.tick()
        other.down = False
        beating.tick()
        _until(lambda: beating.count("sent") == 2)
        one.silent = "no list of targets"
        beating.tick()
        assert beating.count("withheld") == 3
    assert [(r.method, r.path) for r in pinged.requests] == [("GET", "/canary-uuid")] * 2
    heard = [
        (entry["event"], entry.get("reason")) for entry in logs if "heartbeat" in entry["event"]
    ]
    assert heard == [
        ("heartbeat withheld", "other cannot answer"),
        ("heartbeat goes on", None),
        ("heartbeat withheld", "one cannot answer"),
    ]


def test_an_incident_that_no_receiver_has_taken_withholds_it(
    pinged: PingServer, tmp_path: Path
) -> None:
    """Given up by one receiver is not heard either; taken by another is."""
    rule, page = shipped_plan().enabled[0], small_page(rule="r")
    since = START - timedelta(minutes=11)
    incident = incident_of(
        "a1b2c3d4e5f6", rule=rule.id, pool="default", servers=("a:8000",), at=since, page=page
    )
    with Store.open(tmp_path / "d.db") as store:
        pages = [planned(incident.id, page, since, name) for name in ("oncall", "team")]
        happened = [Transition(incident, "firing", since)]
        store.commit_tick(TickRecord(START, [incident], happened, deliveries=pages))
        refused, taken = due_deliveries(store, START)
        mark_failed(store, refused, START, "refused", None)
    with _beating(tmp_path, pinged.address, Api("one")) as (beating, store), capture_logs() as logs:
        beating.tick(1)
        mark_sent(store, taken, START)
        beating.tick(1)
        _until(lambda: beating.count("sent") == 1)
        assert beating.count("withheld") == 1
    (warning,) = [entry for entry in logs if entry["event"] == "heartbeat withheld"]
    assert warning["reason"] == "no receiver has taken the page of 1 open incident"


def test_a_heartbeat_that_hangs_delays_no_tick(pinged: PingServer, tmp_path: Path) -> None:
    pinged.hang_next()
    with _beating(tmp_path, pinged.address, Api("one")) as (beating, _):
        beating.tick()
        _until(lambda: len(pinged.requests) == 1)
        began = time.monotonic()
        for _ in range(5):
            beating.tick()
        assert time.monotonic() - began < 5
        assert beating.count("sent") == 0
        pinged._closing.set()
