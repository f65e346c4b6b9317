"""Four workers on PostgreSQL, killed and stopped, find what one process on SQLite does."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import orjson
import pytest
import worker_process
from batch_cases import BEGIN, RECORDED, fleet_of, minutes_of, told
from fakes.manual_clock import ManualClock
from polars.testing import assert_frame_equal
from procrastinate import App, SyncPsycopgConnector
from procrastinate.exceptions import AlreadyEnqueued
from service_cases import FrameSource

from driftwatch.database_place import PostgresPlace, place_of
from driftwatch.store.deliveries import CLAIM
from driftwatch.store.postgres import connect_arguments
from driftwatch.store.store import Store

pytestmark = [pytest.mark.postgres, pytest.mark.kill]
SCRIPT = Path(worker_process.__file__)
MINUTE = timedelta(minutes=1)
LENGTH = 18  # minutes
WORKERS = 4
# of the real clock: three signs of life, the next look, a tick, on a machine that does much else
TAKEN_OVER_SECONDS = 60.0


@pytest.fixture
def fleet(shared_data: Path) -> FrameSource:
    return fleet_of(shared_data / "vllm-0.32" / name for name in RECORDED)


@pytest.fixture
def folder(fleet: FrameSource, tmp_path: Path) -> Path:
    """What workers read: scrapes, targets, the time; and where they tell what they sent."""
    made = tmp_path / "shared"
    made.mkdir()
    fleet.frame.write_ipc(made / "scrapes.arrow")
    listed = [[list(key), dict(one.labels)] for key, one in fleet.targets.items()]
    (made / "targets.json").write_bytes(orjson.dumps(listed))
    (made / "sent").touch()
    return made


class Workers:
    """The processes, the clock and the jobs of one database."""

    def __init__(self, url: str, folder: Path) -> None:
        self.url, self.folder = url, folder
        self.running: list[subprocess.Popen[bytes]] = []
        self.stopped: list[subprocess.Popen[bytes]] = []
        self.store = Store.open(url)
        self.set_clock(BEGIN)
        place = place_of(url)
        assert isinstance(place, PostgresPlace)
        self._app = App(connector=SyncPsycopgConnector(kwargs=connect_arguments(place, 10.0)))
        self._app.open()

    def start(self) -> None:
        with (self.folder / f"log-{time.monotonic_ns()}").open("w") as log:
            command = [sys.executable, str(SCRIPT), self.url, str(self.folder)]
            self.running.append(subprocess.Popen(command, stderr=log))

    def wait_for(self, true: Callable[[], object], seconds: float = TAKEN_OVER_SECONDS) -> None:
        end = time.monotonic() + seconds
        while not true():
            assert time.monotonic() < end, f"not within {seconds} s\n{self.logged()}"
            time.sleep(0.05)

    def all_ready(self) -> bool:
        return all((self.folder / f"ready-{one.pid}").exists() for one in self.running)

    def logged(self) -> str:
        return "\n".join(log.read_text()[-3000:] for log in sorted(self.folder.glob("log-*")))

    def set_clock(self, now: datetime) -> None:
        new = self.folder / "now.new"
        new.write_text(now.isoformat())
        new.rename(self.folder / "now")

    def minute(self) -> None:
        """What the clock defers each minute, and the look for what is to be sent."""
        for task in ("minute", "sweep"):
            keys = {"lock": task, "queueing_lock": task, "queue": "deliveries"}
            with suppress(AlreadyEnqueued):
                self._app.configure_task(task, **keys).defer()

    def reached(self, minute: datetime) -> bool:
        """Every batch has a verdict about every minute until then."""
        there = self.store.batches()
        return len(there) == worker_process.BATCHES and all(
            one.ticked_at is not None and one.ticked_at >= minute for one in there
        )

    def close(self) -> None:
        self._app.close()
        self.store.close()
        for one in (*self.running, *self.stopped):
            one.kill()
            one.wait()


@pytest.fixture
def workers(postgres_url: str, folder: Path) -> Iterator[Workers]:
    made = Workers(postgres_url, folder)
    yield made
    made.close()


def alone(folder: Path, database: Path) -> tuple[dict[str, list[dict[str, Any]]], Any]:
    """What one process finds on SQLite."""
    clock = ManualClock(BEGIN)
    with Store.open(database) as store:
        service = worker_process.service_on(store, folder, clock, 1)
        for _ in range(LENGTH):
            clock.advance(MINUTE)
            service.tick_once()
            service.deliver_once()
        service.stop()
        return told(store), minutes_of(store)


def test_kills_and_a_stop_change_no_finding_and_no_page(
    workers: Workers, folder: Path, tmp_path: Path
) -> None:
    expected, minutes = alone(folder, tmp_path / "one.db")
    (folder / "sent").write_text("")
    assert expected["incidents"] and expected["deliveries"]
    rng = random.Random(1)
    killed, stopped = rng.sample(range(2, LENGTH - 3), 2), rng.randrange(2, LENGTH - 6)
    goes_on = stopped + rng.randrange(1, 4)
    for _ in range(WORKERS):
        workers.start()
    workers.wait_for(workers.all_ready, 300.0)
    for minute in range(1, LENGTH + 1):
        now = BEGIN + minute * MINUTE
        workers.set_clock(now)
        workers.minute()
        time.sleep(rng.uniform(0.0, 0.6))
        if minute in killed:
            one = workers.running.pop(rng.randrange(len(workers.running)))
            one.kill()
            one.wait()
            workers.minute()  # the next ones wait while those of the dead are to be handed on
        if minute == stopped:
            one = workers.running.pop(rng.randrange(len(workers.running)))
            one.send_signal(signal.SIGSTOP)
            workers.stopped.append(one)
        if minute == goes_on:
            one = workers.stopped.pop()
            one.send_signal(signal.SIGCONT)
            workers.running.append(one)
        workers.wait_for(lambda now=now: workers.reached(now))
    # what a process that was killed had claimed is due when its claim is over
    workers.set_clock(over := now + CLAIM)
    workers.wait_for(lambda: not any(r.pending for r in workers.store.backlog(over).values()))
    found = told(workers.store)
    for name in expected:
        assert found[name] == expected[name], name
    assert_frame_equal(minutes_of(workers.store), minutes)
    sent = Counter((folder / "sent").read_text().splitlines())
    planned = {f"{one['subject']} {one['event']} {one['number']}" for one in expected["deliveries"]}
    assert set(sent) == planned
    # each of the three may have been between sending and its mark
    assert sent.total() <= len(planned) + 3
