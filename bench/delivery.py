"""How long a page takes from commit to arrival while one receiver hangs and one refuses.

    python bench/delivery.py [--pages 1000] [--a-tick 20] [--database postgresql://...]

Through the real store, the outbox's threads and the bounded HTTP client. The receivers are real
servers in a process of their own: one never answers, one answers 503, four take everything. Pages
are committed --a-tick at a time, and resolve five ticks later. The alternative, in the same run and
named *one queue*, is what driftwatch 0.6 did: a pass every 2 s over everything that is due, one
delivery after the other.

Goal: p99 <= 5 s for each healthy receiver.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path

import structlog
from delivering.storm import Receivers, Ticks, store_at

from driftwatch.clock import SystemClock
from driftwatch.errors import DeliveryError
from driftwatch.receivers.sender import Message, Sender, next_attempt
from driftwatch.service.outbox import Outbox
from driftwatch.service.own_metrics import OwnMetrics
from driftwatch.store import Store

KINDS = ("hang", "refuse", "well", "well", "well", "well")
GOAL_SECONDS = 5.0
PASS_SECONDS = 2.0  # of the one queue
OPEN_TICKS = 5  # after so many ticks a page resolves
WAIT_SECONDS = 60.0  # for the last arrival after the last commit


class OneQueue:
    """The alternative: every delivery after the one before."""

    def __init__(self, store: Store, senders: Mapping[str, Sender]) -> None:
        self._store, self._senders = store, senders
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._work, daemon=True)

    def start(self) -> None:
        """Begin to pass."""
        self._thread.start()

    def wake(self) -> None:
        """It polls."""

    def stop(self) -> None:
        """End with what is on its way."""
        self._ending.set()
        self._thread.join()

    def _work(self) -> None:
        while not self._ending.wait(PASS_SECONDS):
            now = datetime.now(UTC)
            for one in self._store.due_deliveries(now):
                if self._ending.is_set():
                    return
                payload = one.payload or {}
                try:
                    self._senders[one.receiver].send(
                        Message("incident", one.subject, one.event, 0, one.reason, payload)
                    )
                except DeliveryError as error:
                    again = next_attempt(one.attempts + 1, now, one.subject)
                    self._store.mark_failed(one, now, error.message, again)
                else:
                    self._store.mark_sent(one, now)


def measured(
    arguments: argparse.Namespace, pages: int, make: Callable[[Store, Mapping[str, Sender]], object]
) -> dict[str, dict[str, list[float]]]:
    """Event -> healthy receiver -> seconds from commit to arrival; inf where it did not come."""
    with (
        tempfile.TemporaryDirectory(prefix="driftwatch-bench-") as folder,
        store_at(Path(folder), arguments.database) as store,
        Receivers(KINDS) as receivers,
    ):
        loop = make(store, receivers.senders())
        ticks = Ticks(store, list(receivers.ports))
        committed: dict[str, float] = {}
        loop.start()  # type: ignore[attr-defined]
        batches = [
            range(start, min(start + arguments.a_tick, pages))
            for start in range(0, pages, arguments.a_tick)
        ]
        for tick in range(len(batches) + OPEN_TICKS):
            began = time.monotonic()
            for event, commit, number in (
                ("firing", ticks.fire, tick),
                ("resolved", ticks.resolve, tick - OPEN_TICKS),
            ):
                if 0 <= number < len(batches):
                    commit(batches[number])
                    at = time.monotonic()
                    loop.wake()  # type: ignore[attr-defined]
                    committed |= {f"{n:012x}-{event}": at for n in batches[number]}
            time.sleep(max(0.0, arguments.tick_seconds - (time.monotonic() - began)))
        healthy = [name for name in receivers.ports if name.startswith("well")]
        _settle(store, healthy)
        loop.stop()  # type: ignore[attr-defined]
        arrivals = receivers.arrivals()
    return {
        event: {
            name: sorted(
                arrivals[name].get(key, float("inf")) - at
                for key, at in committed.items()
                if key.endswith(event)
            )
            for name in healthy
        }
        for event in ("firing", "resolved")
    }


def _settle(store: Store, healthy: list[str]) -> None:
    """Wait until the healthy receivers have everything, or too long."""
    deadline = time.monotonic() + WAIT_SECONDS
    since = datetime.now(UTC)
    while time.monotonic() < deadline:
        waiting = store.backlog(since)
        if not any(waiting[name].pending for name in healthy if name in waiting):
            return
        time.sleep(0.5)


def show(name: str, result: dict[str, dict[str, list[float]]]) -> float:
    """Print a table; the worst p99."""
    worst = 0.0
    for event, receivers in result.items():
        for receiver, seconds in receivers.items():
            p50, p99 = (seconds[int(len(seconds) * q)] for q in (0.5, 0.99))
            missing = seconds.count(float("inf"))
            worst = max(worst, p99)
            print(
                f"{name:10} {event:9} {receiver:7} {len(seconds):6} p50 {p50:7.3f} s  "
                f"p99 {p99:7.3f} s  max {seconds[-1]:7.3f} s  never {missing}"
            )
    return worst


def main() -> None:
    """Both ways, one after the other."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--pages", type=int, default=1000)
    parser.add_argument("--a-tick", type=int, default=10, help="pages that one tick commits")
    parser.add_argument("--tick-seconds", type=float, default=2.5)
    parser.add_argument("--one-queue-pages", type=int, default=40, help="0 = without it")
    parser.add_argument("--database", help="URL of an empty PostgreSQL database")
    arguments = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))
    print(f"load average {os.getloadavg()[0]:.1f}, {os.cpu_count()} processors")

    def threads(store: Store, senders: Mapping[str, Sender]) -> Outbox:
        outbox = Outbox(store, SystemClock(), OwnMetrics().deliveries)
        outbox.adopt(senders)
        return outbox

    began = time.process_time()
    worst = show("threads", measured(arguments, arguments.pages, threads))
    print(f"processor time {time.process_time() - began:.1f} s, ticks included")
    if arguments.one_queue_pages:
        show("one queue", measured(arguments, arguments.one_queue_pages, OneQueue))
    print(f"worst p99 of threads {worst:.3f} s, goal {GOAL_SECONDS:g} s")


if __name__ == "__main__":
    main()
