"""Storms and long runs of the outbox, and the list of many open incidents.

    python bench/delivery_load.py storm      # a service, 10,000 findings in one tick, 100 pages
    python bench/delivery_load.py ticks      # 5,000 ticks with deliveries: what grows
    python bench/delivery_load.py incidents  # `driftwatch incidents` with 1,000 open ones

Goals: the pages of a storm arrive within 10 s of the begin of the tick; after the first 1,000 ticks
memory, descriptors and threads do not grow, and the database grows by what it keeps of incidents
(printed as bytes a page); the list takes at most 0.2 s more than an empty one.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

import structlog
from delivering.fleet import CALM_MINUTES, Fleet, minute, service_of
from delivering.storm import PAGE, Receivers, Ticks, incident

from driftwatch.clock import ManualClock, SystemClock
from driftwatch.model import Transition
from driftwatch.receivers.sender import Conversation, Message
from driftwatch.service.outbox import Outbox
from driftwatch.service.own_metrics import OwnMetrics
from driftwatch.store import Store, TickRecord

FINDINGS, POOL = 10_000, 100  # servers of a pool
TICKS, PART = 5_000, 500
OPEN = 1_000


def outbox_of(store: Store, senders: Mapping[str, object]) -> Outbox:
    """An outbox in threads."""
    outbox = Outbox(store, SystemClock(), OwnMetrics().deliveries)
    outbox.adopt(senders)  # type: ignore[arg-type]
    outbox.start()
    return outbox


def storm(folder: Path) -> None:
    """Ten thousand servers of 100 pools queue in the same minute; three receivers."""
    with Store.open(folder / "d.db") as store, Receivers(("well",) * 3) as receivers:
        fleet, clock = Fleet(FINDINGS, POOL), ManualClock(minute(0))
        service = service_of(fleet, store, clock, receivers.senders(), folder)
        service._outbox.start()
        fleet.queues_from = minute(CALM_MINUTES)
        for number in range(1, CALM_MINUTES + 3):
            clock.set(minute(number))
            began, processor = time.monotonic(), time.process_time()
            outcome = service.tick_once()
            ended, processor = time.monotonic(), time.process_time() - processor
            fired = sum(t.event == "firing" for t in outcome.transitions)
            print(
                f"tick {number}: {ended - began:.2f} s, {processor:.2f} s of processor time, "
                f"{fired} pages, {len(store.open_incidents())} open incidents",
                flush=True,
            )
            if fired:
                storm_began, storm_ended = began, ended
            while store.undelivered_count():
                time.sleep(0.02)
        service._outbox.stop()
        arrivals = [at for each in receivers.arrivals().values() for at in each.values()]
    print(
        f"last of {len(arrivals)} pages {max(arrivals) - storm_began:.2f} s after the tick began, "
        f"{max(arrivals) - storm_ended:.2f} s after its commit (goal 10)"
    )


class Taken:
    """A receiver that takes everything."""

    def send(self, message: Message) -> Conversation | None:
        """Take it."""


def ticks(folder: Path) -> None:
    """One incident fires each tick and the one of the tick before resolves."""
    with Store.open(folder / "d.db") as store:
        names = [f"receiver-{n}" for n in range(4)]
        outbox = outbox_of(store, {name: Taken() for name in names})
        committing = Ticks(store, names)
        for number in range(TICKS):
            committing.fire([number])
            if number:
                committing.resolve([number - 1])
            outbox.wake()
            if number % PART == PART - 1:
                while store.undelivered_count():
                    time.sleep(0.05)
                print(f"{number + 1:5} ticks: {_sizes(folder)}", flush=True)
        outbox.stop()


def _sizes(folder: Path) -> str:
    status = Path("/proc/self/status").read_text().splitlines()
    memory = next(int(line.split()[1]) for line in status if line.startswith("VmRSS"))
    descriptors = len(list(Path("/proc/self/fd").iterdir()))
    size = sum(path.stat().st_size for path in folder.iterdir())
    threads = threading.active_count()
    return (
        f"{memory / 1024:.0f} MiB, {descriptors} descriptors, {threads} threads, "
        f"database {size / 1e6:.1f} MB"
    )


def incidents(folder: Path) -> None:
    """Processor seconds of the command, nine times each."""
    for name, count in (("empty", 0), ("full", OPEN)):
        with Store.open(folder / f"{name}.db") as store:
            now = datetime.now(UTC)
            fired = [incident(n, now) for n in range(count)]
            happened = [Transition(one, "firing", now) for one in fired]
            store.commit_tick(TickRecord(now, now, incidents=fired, transitions=happened))
    times: dict[str, list[float]] = {"empty": [], "full": []}
    for _ in range(9):
        for name, seconds in times.items():
            command = [sys.executable, "-m", "driftwatch", "incidents", "--db"]
            began = _children_seconds()
            subprocess.run([*command, folder / f"{name}.db"], capture_output=True, check=True)
            seconds.append(_children_seconds() - began)
    empty, full = (statistics.median(each) for each in times.values())
    print(
        f"start-up and an empty list {empty:.2f} s; listing {OPEN} open ones {full - empty:.2f} s "
        "more (goal 0.2)"
    )


def _children_seconds() -> float:
    """Processor time of ended children: what else the machine does is not in it."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def main(words: Sequence[str] | None = None) -> None:
    """One of the three."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    measures = {"storm": storm, "ticks": ticks, "incidents": incidents}
    parser.add_argument("measure", choices=measures)
    arguments = parser.parse_args(words)
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))
    print(f"load average {os.getloadavg()[0]:.1f}, a page of {len(str(PAGE))} characters")
    with tempfile.TemporaryDirectory(prefix="driftwatch-bench-") as folder:
        measures[arguments.measure](Path(folder))


if __name__ == "__main__":
    main()
