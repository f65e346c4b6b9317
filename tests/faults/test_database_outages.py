"""A database that serves for reading at most, while incidents fire and end and pages are marked."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest
from fakes.loopback import Answer, Request
from fakes.manual_clock import ManualClock
from fakes.postgres_server import PostgresServer
from kill_rounds.judge import RECEIVERS, Inbox
from kill_rounds.world import TICKS, Place, live, service_of, time_of
from sqlalchemy import Connection, event

from driftwatch.errors import StoreError
from driftwatch.store.store import Store
from tests.outbox import undelivered_count

# it does not serve these ticks; after the page came, it cannot be marked in the later ones
TICKS_WITHOUT = {*range(3, 7), *range(11, 14)}
MARKS_WITHOUT = {7, 8, 14, 16}
RAISE = "DO $$ BEGIN RAISE EXCEPTION 'injected' USING ERRCODE = '{}'; END $$"


class Receivers(Inbox):
    """Takes every page; the database may stop serving before it has answered."""

    outage: Outage | None = None

    def judge(self, request: Request) -> Answer:
        if self.outage is not None:
            self.outage.begin()
        return super().judge(request)


class Outage:
    """One kind of fault of one database, on and off; counts the failures that it caused."""

    def __init__(self, kind: str, store: Store, server: PostgresServer | None) -> None:
        self.kind, self._store, self._server = kind, store, server
        self.codes: list[str] = []
        self._on = False
        self._beginning = threading.Lock()  # two receivers may be answering
        self._stack = ExitStack()
        event.listen(store._engine, "begin", self._begun)

    def begin(self) -> None:
        with self._beginning:
            if not self._on and self.kind == "locked":
                self._stack.enter_context(_other_writer(self._store))
            self._on = True

    def end(self) -> None:
        self._on = False
        self._stack.close()

    def _begun(self, connection: Connection) -> None:
        writes = connection.get_execution_options().get("driftwatch_writes", False)
        run = connection.exec_driver_sql
        if self._server is None:
            if self.kind == "full":
                run(f"PRAGMA max_page_count = {1 if self._on else 1 << 30}")
            elif self.kind == "read-only":
                run(f"PRAGMA query_only = {'ON' if self._on else 'OFF'}")
        elif self._on and self.kind == "unreachable":
            name = connection.exec_driver_sql("SELECT current_database()").scalar_one()
            self._server.query(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                f"WHERE datname = '{name}' AND pid <> pg_backend_pid()"
            )
        elif self._on and writes and self.kind in ("full", "conflict"):
            run(RAISE.format({"full": "53100", "conflict": "40001"}[self.kind]))
        elif self._on and writes and self.kind == "read-only":
            run("SET TRANSACTION READ ONLY")


def _other_writer(store: Store) -> ExitStack:
    """Another process in the middle of its write transaction, as a shell or a backup."""
    stack = ExitStack()
    path = getattr(store.place, "path", None)
    if path is None:
        other = stack.enter_context(Store.open(store.place, migrate=False))
        stack.enter_context(other._writing())
        return stack
    raw = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    raw.execute("BEGIN IMMEDIATE")
    stack.callback(raw.close)
    return stack


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, dict[str, bytes]]]:
    """Receiver → key → body of a service that nothing disturbs."""
    folder = tmp_path_factory.mktemp("undisturbed")
    with Receivers() as inbox:
        live(_place(folder, str(folder / "d.db"), inbox), 1, TICKS)
        yield {name: dict(inbox.posts(name)) for name in RECEIVERS}


def _place(folder: Path, database: str, inbox: Inbox) -> Place:
    return Place(folder, database, {name: f"{inbox.address}/{name}" for name in RECEIVERS})


@pytest.mark.parametrize(
    ("database", "kind"),
    [
        *(("sqlite", "full"), ("sqlite", "read-only"), ("sqlite", "locked")),
        *(("postgres", "full"), ("postgres", "read-only"), ("postgres", "locked")),
        *(("postgres", "unreachable"), ("postgres", "conflict")),
    ],
    indirect=["database"],
)
def test_after_an_outage_every_page_is_sent_once(
    database: str,
    kind: str,
    tmp_path: Path,
    request: pytest.FixtureRequest,
    expected: dict[str, dict[str, bytes]],
) -> None:
    on_postgres = database.startswith("postgresql")
    server = request.getfixturevalue("postgres") if on_postgres else None
    clock = ManualClock(time_of(1))
    busy = 0.1 if kind == "locked" else 5.0  # a loaded machine holds a lock for longer
    with Receivers() as inbox, Store.open(database, busy_seconds=busy) as store:
        outage = Outage(kind, store, server)
        service = service_of(_place(tmp_path, database, inbox), store, clock)
        for tick in range(1, TICKS + 2):
            clock.set(time_of(tick))
            if tick in TICKS_WITHOUT:
                outage.begin()
            inbox.outage = outage if tick in MARKS_WITHOUT else None
            for step in (service.tick_once, service.deliver_once):
                try:
                    step()
                except StoreError as error:
                    outage.codes.append(error.code)
            outage.end()
        with suppress(StoreError):
            service.stop()
        assert set(outage.codes) == {kind}
        # a full disk may have room for a small tick
        assert len(outage.codes) > len(TICKS_WITHOUT) * (0.5 if kind == "full" else 1)
        assert {name: dict(inbox.posts(name)) for name in RECEIVERS} == expected
        assert {name: len(inbox.posts(name)) for name in RECEIVERS} == {"oncall": 6, "log": 6}
        assert undelivered_count(store) == 0


def test_ready_says_that_the_database_is_locked(database: str, tmp_path: Path) -> None:
    """A running service: the page that waits is sent once, and marked when the lock is gone."""
    with Receivers() as inbox, Store.open(database, busy_seconds=0.1) as store:
        clock = ManualClock(time_of(1))
        service = service_of(_place(tmp_path, database, inbox), store, clock)
        service._interval_seconds = 0.2
        for tick in range(1, 6):
            clock.set(time_of(tick))
            service.tick_once()
        assert service.why_not_ready() is None
        assert inbox.requests == []
        with _other_writer(store):
            service.start()
            _until(lambda: service._last_error)
            assert inbox.requests == []  # nothing can be claimed
            service._completed = time.monotonic() - 31.0
            why = service.why_not_ready() or ""
            assert why.startswith("no complete tick for 31 s: ")
            assert "is locked by another" in why
            assert undelivered_count(store) > 0
        _until(lambda: service.why_not_ready() is None and undelivered_count(store) == 0)
        service.stop()
        assert {name: len(inbox.posts(name)) for name in RECEIVERS} == {"oncall": 1, "log": 1}


def _until(true: Callable[[], object], seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.02)
