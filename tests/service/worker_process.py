"""A worker in a process of its own; the test defers its jobs and drives its clock."""

from __future__ import annotations

import os
import sys
import threading
from datetime import datetime
from pathlib import Path
from typing import Any

import orjson
import polars as pl
from batch_cases import pools_of
from service_cases import NarrowSource, shipped_plan

from driftwatch.cli.process import configure_logs, until_signal
from driftwatch.database_place import PostgresPlace, place_of
from driftwatch.model import Target, TargetKey
from driftwatch.receivers.registry import Receiver
from driftwatch.receivers.sender import Message
from driftwatch.service.fleet import Fleet
from driftwatch.service.run import Service
from driftwatch.store.store import Store

# between two signs of life; a worker is silent after three
HEARTBEAT_SECONDS = 0.3
BATCHES = 6
CRONS = ("minute", "sweep", "heartbeat", "compaction", "reports")


class FileClock:
    """The time that a file says."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def now(self) -> datetime:
        return datetime.fromisoformat(self._path.read_text())

    def look(self) -> None:
        pass


def stored_fleet(folder: Path) -> NarrowSource:
    """Scrapes of a file, handed out by time."""
    listed = orjson.loads((folder / "targets.json").read_bytes())
    targets = {TargetKey(*key): Target(TargetKey(*key), labels) for key, labels in listed}
    return NarrowSource(pl.read_ipc(folder / "scrapes.arrow"), targets)


class FileSender:
    """Notes each message in a file that all workers write to."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def send(self, message: Message) -> None:
        with self._path.open("a") as file:
            file.write(f"{message.subject} {message.event} {message.number}\n")


def service_on(store: Store, folder: Path, clock: Any, batches: int) -> Service:
    source = stored_fleet(folder)
    receivers = [Receiver("oncall", ("page", "ticket"), FileSender(folder / "sent"))]
    given = [source], pools_of(shipped_plan(), source), store, receivers, clock
    return Service(*given, batches=batches)


def main(url: str, folder: Path) -> int:
    configure_logs()
    place = place_of(url)
    assert isinstance(place, PostgresPlace)
    with Store.open(place, migrate=False) as store:
        clock: Any = FileClock(folder / "now")
        service = service_on(store, folder, clock, BATCHES)
        fleet = Fleet(
            *(service, store, place, clock),
            heartbeat_seconds=HEARTBEAT_SECONDS,
            crons=dict.fromkeys(CRONS),
        )
        fleet.start()
        threading.Thread(target=tell_ready, args=(fleet, folder), daemon=True).start()
        until_signal()
        fleet.stop()
    return 0


def tell_ready(fleet: Fleet, folder: Path) -> None:
    while fleet.why_not_ready() is not None:
        threading.Event().wait(0.05)
    (folder / f"ready-{os.getpid()}").touch()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], Path(sys.argv[2])))
