"""The service as jobs, for any number of processes on one PostgreSQL.

Each minute every batch has a tick. Every process sends what it claims first. What two
processes do commits once.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta

from driftwatch.clock import Clock
from driftwatch.database_place import PostgresPlace
from driftwatch.service.report_material import SETTLED_MINUTE
from driftwatch.service.run import Service
from driftwatch.store.store import Store
from driftwatch.tasks.worker import Job, Task, Worker

# of a new PostgreSQL: enough for eight processes with two batches each
BATCHES = 16
# How often it is looked for what people did, and for pages that are to be tried again.
_SWEEP = "* * * * * */5"
# of a minute in which its ticks may begin
_LATEST_SECOND = 55


class DatabaseClock:
    """The time of the database, so that it does not matter which process ticks a batch."""

    def __init__(self, store: Store, own: Clock) -> None:
        self._store, self._own = store, own
        self._ahead = timedelta()
        self.look()

    def look(self) -> None:
        """Compare the process's own clock with the database's."""
        at = self._store.database_time()
        self._ahead = timedelta() if at is None else at - self._own.now()

    def now(self) -> datetime:
        """Aware, UTC."""
        return self._own.now() + self._ahead


class Fleet(Worker):
    """One process of several that do the service's jobs.

    Args:
        service: that nobody else starts.
        crons: task → when it is deferred, in place of what it is by itself.
    """

    def __init__(
        self,
        service: Service,
        store: Store,
        place: PostgresPlace,
        clock: DatabaseClock,
        *,
        heartbeat_seconds: float = 10.0,
        crons: Mapping[str, str | None] | None = None,
    ) -> None:
        self._service, self._store, self._clock = service, store, clock
        # every source has the minute before by then
        second = min(math.ceil(service.settle_seconds) + 1, _LATEST_SECOND)
        tasks = {
            "minute": Task("deliveries", self._minute, f"* * * * * {second}"),
            "tick": Task("ticks", self._tick),
            "sweep": Task("deliveries", self._sweep, _SWEEP),
            "heartbeat": Task(
                "deliveries", service.send_heartbeat, f"* * * * * {(second + 30) % 60}"
            ),
            "compaction": Task("slow", service.prune, "0 * * * *"),
            "reports": Task("slow", service.make_reports, f"{SETTLED_MINUTE} * * * *"),
        }
        changed = {
            name: Task(task.queue, task.function, (crons or {}).get(name, task.cron))
            for name, task in tasks.items()
        }
        super().__init__(place, changed, heartbeat_seconds, self._look)

    def start(self) -> None:
        """Take jobs until :meth:`stop`."""
        self._service.listen_to_slack()
        self._service.outbox.start()
        super().start()

    def stop(self) -> None:
        """Finish the jobs under way."""
        self._service.end_waiting()
        super().stop()
        self._service.stop()

    def _look(self) -> None:
        self._clock.look()
        self._service.note_unwatched(self._clock.now())

    def _minute(self) -> Iterable[Job]:
        """A tick of every batch."""
        numbers = [one.number for one in self._store.batches()]
        return [_tick_job(number) for number in numbers]

    def _tick(self, batch: int) -> Iterable[Job]:
        """A tick; again where the one committed meanwhile may be of an earlier minute."""
        is_lost = self._service.tick(batch) is None
        return [_tick_job(batch)] if is_lost else []

    def _sweep(self) -> None:
        self._service.plan_actions_once()


def _tick_job(batch: int) -> Job:
    return Job("tick", f"batch {batch}", {"batch": batch})
