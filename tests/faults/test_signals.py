"""Signals to real `driftwatch run` processes while they collect and send, one on each database."""

from __future__ import annotations

import json
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path

import pytest
from fakes.loopback import Answer, Request
from fakes.postgres_server import PostgresServer
from open_incident_cases import (
    BEGIN,
    COVERAGE,
    QUEUES_FROM,
    QUEUES_UNTIL,
    Inbox,
    Server,
    stories,
)
from process_cases import Process, until

from driftwatch.clock import SystemClock

pytestmark = pytest.mark.kill

# its page waits to be sent when the process begins
DECIDED, BEGUN = 4.0, 5.0
HANGS, SLOW = "oncall", "log"
STOPPED_SECONDS = 6.0
ASLEEP_MINUTES = 120.0
# what is on its way has 12 s to end (driftwatch/service/outbox.py); the rest is a busy machine's
TERM_SECONDS = 30.0


class Doors(Inbox):
    """Takes every page; one receiver answers never, and one when it is let."""

    def __init__(self) -> None:
        super().__init__()
        self.hanging = True
        self.let = threading.Event()

    def judge(self, request: Request) -> Answer:
        if request.path == f"/{HANGS}" and self.hanging:
            return Answer(0, hang=True)
        if request.path == f"/{SLOW}":
            self.let.wait(60)
        return super().judge(request)

    def keys(self, name: str, event: str) -> list[str]:
        """The keys of a receiver's messages, in order."""
        return [
            request.headers["idempotency-key"]
            for request in list(self.requests)
            if request.path == f"/{name}" and json.loads(request.body)["event"] == event
        ]


class Life:
    """A story whose page waits, and a real process that goes on with it."""

    def __init__(self, stack: ExitStack, folder: Path, database: str, servers: list[Server]):
        folder.mkdir()
        tell = stack.enter_context(stories(folder))
        self.inbox = stack.enter_context(Doors())
        minutes = int(BEGUN + ASLEEP_MINUTES + 10)
        self.story, self.api = tell(
            servers, database, minutes, inbox=self.inbox, hooks=(HANGS, SLOW)
        )
        for minute in (1.0, 2.0, 3.0, DECIDED):
            self.story.decide(minute)
        assert self.inbox.requests == []
        self.folder, self.database = folder, database

    def start(self, stack: ExitStack, interval_seconds: float) -> Process:
        hooks = [
            {"name": name, "webhook": {"url": f"{self.inbox.address}/{name}"}}
            for name in (HANGS, SLOW)
        ]
        match = {"job": "vllm"}
        configuration = {
            "sources": [{"prometheus": self.api.address, "match": match, "dcgm": False}],
            "interval": f"{interval_seconds:g}s",
            "listen": "127.0.0.1:0",
            "rules": ["queues.yaml", str(COVERAGE)],
            "pools": [{"name": "chat"}],
            "receivers": hooks,
        }
        (self.folder / "driftwatch.yaml").write_text(json.dumps(configuration))
        self.api.reached = float("inf")
        self.process = stack.enter_context(
            Process(self.folder, "run", self.database, self.ahead_seconds(BEGUN))
        )
        return self.process

    def ahead_seconds(self, minute: float) -> float:
        """How far a clock is ahead that shows a minute of the story now."""
        at = BEGIN + timedelta(minutes=minute)
        return (at - SystemClock().now()).total_seconds()


@pytest.fixture
def databases(postgres: PostgresServer, postgres_template: str, tmp_path: Path) -> dict[str, str]:
    name = postgres.new_database(postgres_template)
    return {"sqlite": str(tmp_path / "d.db"), "postgres": postgres.url(name)}


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as opened:
        yield opened


def test_sigterm_in_a_tick_and_in_two_deliveries(
    databases: dict[str, str], tmp_path: Path, stack: ExitStack
) -> None:
    waits = [Server("chat-0:8000", (QUEUES_FROM, QUEUES_UNTIL))]
    lives = [Life(stack, tmp_path / kind, databases[kind], waits) for kind in databases]
    for life in lives:
        life.api.faults = [("", Answer(0, hang=True))]  # its first tick does not end
        life.start(stack, interval_seconds=60.0)
    processes = [life.process for life in lives]
    for life in lives:
        until(lambda life=life: len(life.inbox.requests) == 2, 60, *processes)  # type: ignore[misc]
        until(lambda life=life: life.api.queries, 60, *processes)  # type: ignore[misc]
        life.process.signal(signal.SIGTERM)
    began = time.monotonic()
    for life in lives:
        until(lambda life=life: "stopping" in life.process.log, 10, *processes)  # type: ignore[misc]
        life.inbox.let.set()  # after the signal: it is waited for
    for life in lives:
        assert life.process.process.wait(TERM_SECONDS) == 0, life.process.log
    assert time.monotonic() - began < TERM_SECONDS
    for life in lives:
        life.inbox.hanging = False
        life.api.faults = []
        life.story.restart()
        life.story.until(QUEUES_UNTIL)
        assert life.story.open_alerts() == ["Queues"]
        life.story.until(QUEUES_UNTIL + 4)
        (incident,) = life.story.store.incidents()
        assert (incident.rule, incident.state) == ("Queues", "resolved")
        # what nobody answered is sent again, what was answered is not
        assert life.inbox.keys(HANGS, "firing") == [f"{incident.id}-firing"] * 2
        assert life.inbox.keys(SLOW, "firing") == [f"{incident.id}-firing"]
        for name in (HANGS, SLOW):
            assert life.inbox.keys(name, "resolved") == [f"{incident.id}-resolved"]


@pytest.mark.parametrize("others_slept", [False, True])
def test_a_machine_that_sleeps_in_a_delivery_and_wakes_two_hours_later(
    others_slept: bool, databases: dict[str, str], tmp_path: Path, stack: ExitStack
) -> None:
    """Without the servers and their Prometheus, or with them."""
    kind = "sqlite" if others_slept else "postgres"
    wakes = BEGUN + ASLEEP_MINUTES

    def alter(minute: float, row: dict[str, float]) -> dict[str, float]:
        return {} if others_slept and BEGUN + 1 <= minute < wakes else row

    servers = [
        Server("chat-0:8000", (QUEUES_FROM, 999), alter),
        Server("chat-1:8000", alter=alter),
    ]
    life = Life(stack, tmp_path / kind, databases[kind], servers)
    life.inbox.hanging = False
    process = life.start(stack, interval_seconds=1.0)
    until(lambda: len(life.inbox.requests) == 2 and process.ticks >= 2, 60, process)
    ticks = process.ticks
    process.signal(signal.SIGSTOP)
    process.set_clock(life.ahead_seconds(wakes + 3))
    time.sleep(STOPPED_SECONDS)
    life.inbox.let.set()
    process.signal(signal.SIGCONT)
    until(lambda: process.ticks >= ticks + 4, 60, process)
    (incident,) = life.story.store.incidents()
    assert (incident.rule, incident.state) == ("Queues", "firing")
    assert incident.last_true_at >= BEGIN + timedelta(minutes=wakes)
    process.signal(signal.SIGTERM)
    assert process.process.wait(TERM_SECONDS) == 0
    assert [life.inbox.keys(name, "firing") for name in (HANGS, SLOW)] == [
        [f"{incident.id}-firing"]
    ] * 2
    assert len(life.inbox.requests) == 2
    assert "wall clock" not in process.log
