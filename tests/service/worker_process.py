"""A worker in a process of its own; the test defers its jobs and drives its clock."""

from __future__ import annotations

import os
import sys
import threading
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import orjson
import polars as pl

from driftwatch.cli.logs import configure_logs, until_signal
from driftwatch.collect.schema import KEY, Collected, Own
from driftwatch.database_place import PostgresPlace, place_of
from driftwatch.model import Target, TargetKey
from driftwatch.pipeline.plan import Plan, Pool
from driftwatch.receivers.registry import Receiver
from driftwatch.receivers.sender import Message
from driftwatch.service.configuration import plan_of_rules
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


class StoredScrapes:
    """Scrapes of a file, handed out by time."""

    name, settle_seconds, narrows = "stored", 0.0, True

    def __init__(self, folder: Path) -> None:
        self._frame = pl.read_ipc(folder / "scrapes.arrow")
        listed = orjson.loads((folder / "targets.json").read_bytes())
        self.targets = {TargetKey(*key): Target(TargetKey(*key), labels) for key, labels in listed}

    def collect(self, since: datetime, until: datetime, own: Own | None = None) -> Collected:
        scrapes = self._frame.filter(pl.col("time").is_between(since, until, closed="left"))
        every = Collected(scrapes, self.targets)
        if own is None:
            return every
        rows = [tuple(key) for key in own(self.targets)]
        keys = pl.DataFrame(rows, dict.fromkeys(KEY, pl.String), orient="row")
        looks = scrapes["time"].dt.truncate("1m").unique()
        mine = scrapes.join(keys, on=KEY, how="semi", maintain_order="left")
        return replace(every, scrapes=mine, looks=looks)

    def close(self) -> None:
        pass


class FileSender:
    """Notes each message in a file that all workers write to."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def send(self, message: Message) -> None:
        with self._path.open("a") as file:
            file.write(f"{message.subject} {message.event} {message.number}\n")


def plan_for(targets: dict[TargetKey, Target]) -> Plan:
    """The shipped rules, and a pool for each ``pool`` label."""
    names = sorted({target.labels["pool"] for target in targets.values()})
    pools = tuple(Pool(name, {"pool": name}) for name in names)
    return replace(plan_of_rules(()), simulations=0, pools=pools, external_url="http://dw.test")


def service_on(store: Store, folder: Path, clock: Any, *, batches: int, several: bool) -> Service:
    source = StoredScrapes(folder)
    receivers = [Receiver("oncall", ("page", "ticket"), FileSender(folder / "sent"))]
    plan = plan_for(source.targets)
    return Service(
        *([source], plan, store, receivers, clock), batches=batches, is_one_of_several=several
    )


def main(url: str, folder: Path) -> int:
    configure_logs()
    place = place_of(url)
    assert isinstance(place, PostgresPlace)
    with Store.open(place, migrate=False) as store:
        clock: Any = FileClock(folder / "now")
        service = service_on(store, folder, clock, batches=BATCHES, several=True)
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
