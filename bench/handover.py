"""How long a pool is unwatched when its process is killed, stops, or another one joins.

    python bench/handover.py --processes 3 4 --rounds 3

Real processes of ``driftwatch run`` at the default interval, on a real PostgreSQL, over recorded
pages. Per shard that changes hands: seconds from the signal (or from the start of the comer) to the
first tick of its pools that another process commits.
"""

from __future__ import annotations

import argparse
import json
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from driftwatch.service.rendezvous import dealt
from driftwatch.store.migrate import upgrade_database
from driftwatch.testing.exposition_server import ReplayedExposition, read_pages
from driftwatch.testing.postgres_server import PostgresServer

PAGES = Path(__file__).resolve().parents[2] / "shared/data/vllm-0.32/run_cap/scrapes.jsonl.gz"
POOLS, SHARDS = 12, 16
WATCHED_SECONDS = 50.0  # after each change
_PROGRESS = (
    "SELECT substr(l.name, 7)::int, l.holder, m.value FROM leases l "
    "JOIN memory m ON m.name = 'shard-' || substr(l.name, 7) || '/tick.progress' "
    "WHERE l.name LIKE 'shard %' AND l.expires_at > clock_timestamp()"
)


class Fleet:
    """Servers, a database, and the processes that share them."""

    def __init__(self, folder: Path, server: PostgresServer, pages: list[str]) -> None:
        self.running: dict[str, subprocess.Popen[bytes]] = {}
        self._folder, self._server, self._pages = folder, server, pages
        self._database = server.new_database()
        upgrade_database(server.url(self._database))

    def start(self, name: str) -> None:
        """One more process."""
        sources = [
            {"pages": [url], "labels": {"instance": f"pool-{n}:8000", "namespace": f"pool-{n}"}}
            for n, url in enumerate(self._pages)
        ]
        url = self._server.url(self._database)
        document = {"sources": sources, "database": url, "listen": "127.0.0.1:0", "shards": SHARDS}
        config = self._folder / f"{name}.yaml"
        config.write_text(json.dumps(document))
        command = [sys.executable, "-c", "from driftwatch.cli.main import main; main()"]
        with (self._folder / f"{name}.log").open("a") as log:
            self.running[name] = subprocess.Popen(
                [*command, "run", "-c", str(config), "--name", name], stderr=log
            )

    def end(self, name: str, number: signal.Signals) -> None:
        """End one of them."""
        gone = self.running.pop(name)
        gone.send_signal(number)

    def ticked(self) -> dict[int, tuple[str, str]]:
        """Shard → who holds it, and when its last tick was."""
        rows = self._server.query(_PROGRESS, self._database)
        return {shard: (holder, json.loads(value)["ticked_at"]) for shard, holder, value in rows}

    def settled(self) -> None:
        """Wait until every process has its shards, and each has ticked."""
        until = time.monotonic() + 180
        while True:
            time.sleep(1)
            now = self.ticked()
            if {s: holder for s, (holder, _) in now.items()} == dealt(SHARDS, self.running):
                break
            if time.monotonic() > until:
                raise TimeoutError(now)
        time.sleep(16)  # and one more tick of all

    def close(self) -> None:
        """End all."""
        for one in self.running.values():
            one.kill()
            one.wait()


def changed_hands(fleet: Fleet, act: Callable[[], None]) -> list[float]:
    """Seconds until each shard that goes to another process had its first tick there."""
    before = fleet.ticked()
    began = time.monotonic()
    act()
    seen: dict[int, float] = {}
    last: dict[int, str] = {shard: at for shard, (_, at) in before.items()}
    while time.monotonic() - began < WATCHED_SECONDS:
        for shard, (holder, at) in fleet.ticked().items():
            if holder != before[shard][0] and at != last[shard] and shard not in seen:
                seen[shard] = time.monotonic() - began
            elif holder == before[shard][0]:
                last[shard] = at
        time.sleep(0.1)
    return sorted(seen.values())


def measured(fleet: Fleet, rounds: int) -> dict[str, list[float]]:
    """Way to change hands → seconds of each shard that did; the oldest process is killed first."""
    taken: dict[str, list[float]] = {"kill -9": [], "SIGTERM": [], "joining": []}
    for turn in range(rounds):
        gone, comer = next(iter(fleet.running)), f"q{turn}"
        fleet.settled()
        taken["kill -9"] += changed_hands(fleet, partial(fleet.end, gone, signal.SIGKILL))
        fleet.settled()
        taken["joining"] += changed_hands(fleet, partial(fleet.start, comer))
        fleet.settled()
        taken["SIGTERM"] += changed_hands(fleet, partial(fleet.end, comer, signal.SIGTERM))
        fleet.start(gone)
    return taken


def main() -> int:
    """Measure, and print a line for each way to change hands."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--processes", type=int, nargs="+", default=[3, 4])
    options.add_argument("--rounds", type=int, default=3)
    arguments = options.parse_args()
    recorded = read_pages(PAGES)
    for count in arguments.processes:
        with ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            server = stack.enter_context(PostgresServer())
            pages = [stack.enter_context(ReplayedExposition(recorded)).url for _ in range(POOLS)]
            fleet = Fleet(folder, server, pages)
            stack.callback(fleet.close)
            for number in range(count):
                fleet.start(f"p{number}")
            for way, seconds in measured(fleet, arguments.rounds).items():
                print(
                    f"{count} processes, {way}: {len(seconds)} shards, "
                    f"median {statistics.median(seconds):.1f} s, worst {max(seconds):.1f} s",
                    flush=True,
                )
    return 0


if __name__ == "__main__":
    sys.exit(main())
