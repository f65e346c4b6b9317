"""The schedule of one process: APScheduler with a memory job store, and what it cannot do alone."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import structlog
from apscheduler.events import EVENT_JOB_ERROR, EVENT_JOB_MISSED, JobExecutionEvent
from apscheduler.executors.pool import ThreadPoolExecutor
from apscheduler.schedulers.background import BackgroundScheduler

Failed = Callable[[str, BaseException | None], None]


class Ticker:
    """Calls jobs in threads: each one at a time, those that are late once.

    Args:
        failed: called with a job that raised, and its error; None = it was missed.
    """

    def __init__(self, failed: Failed) -> None:
        self._failed, self._log = failed, structlog.get_logger()
        self._scheduler = BackgroundScheduler(
            timezone=UTC,
            executors={
                "ticks": ThreadPoolExecutor(1),
                "actions": ThreadPoolExecutor(1),
                "slow": ThreadPoolExecutor(1),
            },
            job_defaults={"coalesce": True, "max_instances": 1, "misfire_grace_time": 3600},
        )
        self._scheduler.add_listener(self._ended, EVENT_JOB_ERROR | EVENT_JOB_MISSED)
        self._stopping = threading.Event()

    def every(self, seconds: float, name: str, job: Callable[[], object], thread: str) -> None:
        """Call a job each so many seconds, at once first."""
        now = datetime.now(UTC)
        options = {"id": name, "executor": thread, "next_run_time": now}
        self._scheduler.add_job(job, "interval", seconds=seconds, **options)

    def hourly(self, minute: int, name: str, job: Callable[[], object], thread: str) -> None:
        """Call a job in a minute of each hour, and a minute from now."""
        options = {"id": name, "executor": thread}
        soon = datetime.now(UTC) + timedelta(minutes=1)
        self._scheduler.add_job(job, "cron", minute=minute, next_run_time=soon, **options)

    def start(self, ticked_at: Callable[[], float], interval_seconds: float) -> None:
        """Begin; ``ticked_at``: when the last tick began, monotonic."""
        self._scheduler.start()

        def watch() -> None:
            """APScheduler waits on the wall clock: re-arm it after a step back."""
            while not self._stopping.wait(interval_seconds / 2):
                job = self._scheduler.get_job("tick")
                if time.monotonic() - ticked_at() <= 2 * interval_seconds or job is None:
                    continue
                now = datetime.now(UTC)
                ahead = ((job.next_run_time or now) - now).total_seconds()
                if ahead > interval_seconds:
                    self._log.warning("wall clock stepped back", seconds=round(ahead))
                    for one in self._scheduler.get_jobs():
                        one.modify(next_run_time=now)

        threading.Thread(target=watch, name="driftwatch-watchdog", daemon=True).start()

    def stop(self) -> None:
        """Wait for the jobs under way; nothing where it was never started."""
        self._stopping.set()
        if self._scheduler.running:
            self._scheduler.shutdown(wait=True)

    def _ended(self, event: JobExecutionEvent) -> None:
        self._failed(event.job_id, getattr(event, "exception", None))
