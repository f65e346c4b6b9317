"""A worker in a process of its own, with tasks that tell in a folder what they do."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

from driftwatch.cli.logs import configure_logs
from driftwatch.database_place import PostgresPlace, place_of
from driftwatch.service.slow_tasks import COMPACTION, compact
from driftwatch.store.store import Store
from driftwatch.tasks.task import QUEUES, Arguments
from driftwatch.tasks.worker import Worker

# between two signs of life; a worker is dead after three
HEARTBEAT_SECONDS = 0.3
Begin = Callable[[], "subprocess.Popen[bytes]"]  # a worker


def functions(folder: Path):
    def slow(store: Store, arguments: Arguments) -> None:
        """Begin, wait for leave, write a report; the weekly report's own way to be there once."""
        (folder / f"began-{os.getpid()}").touch()
        while not (folder / "go").exists():
            time.sleep(0.02)
        now = datetime.fromisoformat(arguments["now"])
        is_first = store.write_report(arguments["week"], {"by": os.getpid()}, ["out"], now)
        (folder / f"{'wrote' if is_first else 'was-late'}-{os.getpid()}").touch()

    def note(store: Store, arguments: Arguments) -> None:
        with (folder / "order").open("a") as file:
            file.write(f"{arguments['line']}\n")

    def fails(store: Store, arguments: Arguments) -> None:
        note(store, {"line": "tried"})
        raise ValueError("no luck\ntoday")

    return {"slow": slow, "note": note, "fails": fails, COMPACTION: compact}


def main(url: str, folder: Path) -> int:
    configure_logs()
    place = place_of(url)
    assert isinstance(place, PostgresPlace)
    with Store.open(place, migrate=False) as store:
        worker = Worker(place, store, functions(folder), QUEUES, HEARTBEAT_SECONDS)
        (folder / f"ready-{os.getpid()}").touch()
        return 0 if worker.run() else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], Path(sys.argv[2])))
