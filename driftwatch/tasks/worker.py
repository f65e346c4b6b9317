"""A worker: does the tasks of a PostgreSQL with procrastinate, and hands on those of dead ones."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import structlog
from procrastinate import App, JobContext, PsycopgConnector, RetryStrategy
from procrastinate.exceptions import ConnectorException
from procrastinate.jobs import Job, Status

from driftwatch.database_place import PostgresPlace
from driftwatch.store.database import BUSY_SECONDS
from driftwatch.store.postgres import connect_arguments, read_password
from driftwatch.store.store import Store
from driftwatch.tasks.task import TRIES, Function, Queue, reason_of

# signs of life that a worker may miss before its tasks are given to another one
MISSED = 3
_CONNECTIONS = 4


class Worker:
    """One process that does one task at a time.

    Args:
        place: whose tasks.
        store: of the same place; functions write to it.
        functions: by name of the task.
        queues: those whose tasks it does.
        heartbeat_seconds: between two signs of life.
    """

    def __init__(
        self,
        place: PostgresPlace,
        store: Store,
        functions: Mapping[str, Function],
        queues: Sequence[Queue],
        heartbeat_seconds: float,
    ) -> None:
        self._store, self._queues = store, list(queues)
        self._heartbeat_seconds = heartbeat_seconds
        self._log = structlog.get_logger()
        self._began = time.monotonic()
        self._looked_at: float | None = None
        self._app = App(connector=_connector(place))
        retry = RetryStrategy(max_attempts=TRIES - 1, wait=max(1, round(heartbeat_seconds)))
        for name, function in functions.items():
            register = self._app.task(name=name, pass_context=True, retry=retry)
            register(self._recorded(function))

    def run(self) -> bool:
        """Work until SIGTERM or SIGINT; the task under way is finished first.

        False: it ends because the database went away.
        """
        try:
            asyncio.run(self._run())
        except asyncio.CancelledError:
            return True
        except ConnectorException as error:
            self._log.error("database went away", reason=str(error.__cause__ or error))
        return False

    def why_unhealthy(self) -> str | None:
        """Why the process should be restarted; None = it should not."""
        silent = self._silent_seconds()
        if silent > max(6 * self._heartbeat_seconds, 60.0):
            return f"no look at the queue for {silent:.0f} s"
        return None

    def why_not_ready(self) -> str | None:
        """Why it does no tasks; None = it does."""
        if self._looked_at is None:
            return "it starts"
        silent = self._silent_seconds()
        if silent > MISSED * self._heartbeat_seconds:
            return f"no look at the queue for {silent:.0f} s"
        return None

    def _silent_seconds(self) -> float:
        looked_at = self._began if self._looked_at is None else self._looked_at
        return time.monotonic() - looked_at

    async def _run(self) -> None:
        """Raises CancelledError: a signal ended it."""
        async with self._app.open_async():
            looking = asyncio.create_task(self._look_after_dead_workers())
            working = asyncio.create_task(
                self._app.run_worker_async(
                    queues=self._queues,
                    delete_jobs="successful",
                    install_signal_handlers=False,
                    fetch_job_polling_interval=min(5.0, self._heartbeat_seconds),
                    update_heartbeat_interval=self._heartbeat_seconds,
                    stalled_worker_timeout=MISSED * self._heartbeat_seconds,
                )
            )
            for number in (signal.SIGTERM, signal.SIGINT):
                asyncio.get_running_loop().add_signal_handler(number, working.cancel)
            try:
                await working  # cancelled, it finishes the task under way
            finally:
                looking.cancel()
                with suppress(asyncio.CancelledError):
                    await looking

    async def _look_after_dead_workers(self) -> None:
        """Give tasks of workers that show no sign of life to another worker, again and again."""
        manager = self._app.job_manager
        while True:
            try:
                stalled = await manager.get_stalled_jobs(
                    seconds_since_heartbeat=MISSED * self._heartbeat_seconds
                )
                self._looked_at = time.monotonic()
                for job in stalled:
                    await self._hand_on(job)
            except ConnectorException as error:
                self._log.warning("look at the queue failed", reason=str(error.__cause__ or error))
            await asyncio.sleep(self._heartbeat_seconds)

    async def _hand_on(self, job: Job) -> None:
        """One that ended several workers is dead."""
        manager = self._app.job_manager
        if job.attempts + 1 < TRIES:
            self._log.warning("task handed on: its worker is silent", task=job.task_name)
            await manager.retry_job(job)
            return
        reason = f"its worker went silent, as {job.attempts} tries before failed too"
        self._log.error("task is dead", task=job.task_name, reason=reason)
        await manager.finish_job(job, Status.FAILED, delete_job=False)

    def _recorded(self, function: Function) -> Callable[..., None]:
        def run(context: JobContext, **arguments: Any) -> None:
            job = context.job
            try:
                function(self._store, arguments)
            except Exception as error:
                self._log.error(
                    "task failed",
                    task=job.task_name,
                    tried=job.attempts + 1,
                    reason=reason_of(error),
                )
                if job.attempts + 1 >= TRIES:
                    self._log.error("task is dead", task=job.task_name, reason=reason_of(error))
                raise
            self._log.info("task done", task=job.task_name, key=job.queueing_lock)

        return run


def _connector(place: PostgresPlace) -> PsycopgConnector:
    def arguments() -> dict[str, Any]:
        values = connect_arguments(place, BUSY_SECONDS)
        if place.password_file is not None:
            values["password"] = read_password(place)
        return values

    return PsycopgConnector(kwargs=arguments, min_size=1, max_size=_CONNECTIONS)
