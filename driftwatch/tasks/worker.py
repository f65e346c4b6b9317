"""A worker: takes jobs of a PostgreSQL with procrastinate, and hands on those of silent workers.

A job may be done twice, as one whose worker was stopped is: what it writes is written once by a
compare-and-set of its own.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

import structlog
from procrastinate import App, JobContext, PsycopgConnector
from procrastinate.exceptions import AlreadyEnqueued, ConnectorException, UniqueViolation
from procrastinate.jobs import Job as StoredJob
from procrastinate.jobs import Status

from driftwatch.database_place import PostgresPlace
from driftwatch.store.database import BUSY_SECONDS
from driftwatch.store.postgres import WRITER_IDLE_SECONDS, connect_arguments, read_password

Queue = Literal["ticks", "deliveries", "slow"]
# How many jobs of a queue one process does at once: a tick takes a processor.
AT_ONCE: Mapping[Queue, int] = {"ticks": 1, "deliveries": 2, "slow": 1}
# signs of life that a worker may miss before its jobs are given to another one
MISSED = 3
# a job that ended so many workers is given up
TRIES = 3
_CONNECTIONS = 8
_RECONNECT_SECONDS = 5.0
_LONGEST_REASON = 500


@dataclass(frozen=True, slots=True)
class Job:
    """Something that is to be done once."""

    task: str
    # of two jobs with one key the second is dropped while the first waits, and waits while it runs
    key: str
    arguments: Mapping[str, Any] = field(default_factory=dict)  # JSON values


@dataclass(frozen=True, slots=True)
class Task:
    """What a job of a name does; ``cron``: when one is deferred, with seconds as a sixth field."""

    queue: Queue
    function: Callable[..., Iterable[Job] | None]  # in a thread; what is to be done after it
    cron: str | None = None


class Worker:
    """The jobs of one process, in a thread of its own from :meth:`start` to :meth:`stop`.

    Args:
        tasks: by name.
        heartbeat_seconds: between two signs of life.
        each: called with every sign of life.
    """

    def __init__(
        self,
        place: PostgresPlace,
        tasks: Mapping[str, Task],
        heartbeat_seconds: float,
        each: Callable[[], object] = lambda: None,
    ) -> None:
        self._tasks, self._each = tasks, each
        self._heartbeat_seconds = heartbeat_seconds
        self._log: Any = structlog.get_logger()
        self._looked_at = time.monotonic()
        self._trouble: str | None = "it starts"
        self._loop = asyncio.new_event_loop()
        self._loop.set_exception_handler(self._not_noted)
        self._stopping = asyncio.Event()
        self._threads = ThreadPoolExecutor(sum(AT_ONCE.values()) + 1, "driftwatch-jobs")
        self._thread = threading.Thread(target=self._run, name="driftwatch worker", daemon=True)
        self._app = App(connector=_connector(place))
        for name, task in tasks.items():
            register = self._app.task(name=name, queue=task.queue, pass_context=True)
            registered = register(self._wrapped(name, task))
            if task.cron is not None:
                keys = {"lock": name, "queueing_lock": name}
                self._app.periodic(cron=task.cron, **keys)(registered)  # type: ignore[arg-type]

    def start(self) -> None:
        """Take jobs."""
        self._thread.start()

    def stop(self) -> None:
        """Take no more, and finish those under way."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stopping.set)
            self._thread.join()
        self._threads.shutdown(wait=False)

    def why_unhealthy(self) -> str | None:
        """Why the process should be restarted; None = it should not, also without a database."""
        return None if self._thread.is_alive() else "the thread that takes jobs ended"

    def why_not_ready(self) -> str | None:
        """Why it does no jobs; None = it does."""
        silent = time.monotonic() - self._looked_at
        if self._trouble is None and silent > MISSED * self._heartbeat_seconds:
            return f"no look at the queue for {silent:.0f} s"
        return self._trouble

    def _not_noted(self, _: asyncio.AbstractEventLoop, context: Mapping[str, Any]) -> None:
        """That a job is done could not be noted: another worker has done it meanwhile."""
        error = context.get("exception")
        reason = context["message"] if error is None else reason_of(error)
        self._log.info("job not noted as done", reason=reason)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(self._until_stopped())

    async def _until_stopped(self) -> None:
        """Work; where the database goes away, again when it is back."""
        while not self._stopping.is_set():
            reason = "the database went away"
            try:
                async with self._app.open_async():
                    await self._work()
            except Exception as error:  # noqa: BLE001 - whatever the driver raises, it tries again
                reason = f"{reason}: {reason_of(error)}"
            if not self._stopping.is_set() and reason != self._trouble:
                self._log.error("takes no jobs", reason=reason)
            self._trouble = reason
            with suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), _RECONNECT_SECONDS)

    async def _work(self) -> None:
        """Until it is to stop, or one of its parts ends, as it does without a database."""
        parts = [
            *(self._app.run_worker_async(**self._options(queue)) for queue in AT_ONCE),
            self._requeue_stalled_jobs(),
            self._stopping.wait(),
        ]
        tasks = [asyncio.create_task(part) for part in parts]
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for one in tasks:
            one.cancel()  # a worker that is cancelled finishes the jobs under way
        await asyncio.gather(*tasks, return_exceptions=True)

    def _options(self, queue: Queue) -> dict[str, Any]:
        return {
            "queues": [queue],
            "concurrency": AT_ONCE[queue],
            "delete_jobs": "always",
            "install_signal_handlers": False,
            "fetch_job_polling_interval": min(5.0, self._heartbeat_seconds),
            "update_heartbeat_interval": self._heartbeat_seconds,
            "stalled_worker_timeout": MISSED * self._heartbeat_seconds,
        }

    async def _requeue_stalled_jobs(self) -> None:
        """Give jobs of workers that show no sign of life to another worker, again and again."""
        silent = MISSED * self._heartbeat_seconds
        while True:
            manager = self._app.job_manager
            for job in await manager.get_stalled_jobs(seconds_since_heartbeat=silent):
                await self._hand_on(job)
            await self._in_thread(self._each)
            self._looked_at = time.monotonic()
            if self._trouble is not None:
                self._log.info("takes jobs")
                self._trouble = None
            await asyncio.sleep(self._heartbeat_seconds)

    async def _hand_on(self, job: StoredJob) -> None:
        """Retry a silent worker's job; drop it where one with its key waits, or after TRIES."""
        manager, words = self._app.job_manager, {"task": job.task_name, "key": job.lock}
        try:
            if job.attempts + 1 < TRIES:
                try:
                    await manager.retry_job(job)
                except UniqueViolation:
                    await manager.finish_job(job, Status.FAILED, delete_job=True)
                self._log.warning("job handed on: its worker is silent", **words)
            else:
                await manager.finish_job(job, Status.FAILED, delete_job=True)
                self._log.error("job given up: it ended its workers", **words)
        except ConnectorException as error:
            # another worker handed it on, or its own has finished it
            self._log.info("job not handed on", **words, reason=reason_of(error.__cause__ or error))

    def _wrapped(self, name: str, task: Task) -> Callable[..., Any]:
        async def run(context: JobContext, timestamp: int = 0, **arguments: Any) -> None:
            try:
                following = await self._in_thread(partial(task.function, **arguments))
            except Exception as error:
                key = context.job.lock
                self._log.error("job failed", task=name, key=key, reason=reason_of(error))
                raise
            for one in following or ():
                await self._defer(one)

        return run

    async def _in_thread(self, function: Callable[[], Any]) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._threads, function)

    async def _defer(self, job: Job) -> None:
        queue = self._tasks[job.task].queue
        task = self._app.configure_task(job.task, lock=job.key, queueing_lock=job.key, queue=queue)
        with suppress(AlreadyEnqueued):  # the one that waits does it
            await task.defer_async(**job.arguments)


def reason_of(error: BaseException) -> str:
    """Why something failed, on one line."""
    text = " ".join(str(getattr(error, "message", None) or error).split())
    name = type(error).__name__
    return f"{name}: {text}"[:_LONGEST_REASON] if text else name


def _connector(place: PostgresPlace) -> PsycopgConnector:
    def arguments() -> dict[str, Any]:
        values = connect_arguments(place, BUSY_SECONDS)
        # one that is stopped in the middle must not keep the others from its jobs
        values["options"] += f" -c idle_in_transaction_session_timeout={WRITER_IDLE_SECONDS}s"
        if place.password_file is not None:
            values["password"] = read_password(place)
        return values

    return PsycopgConnector(kwargs=arguments, min_size=1, max_size=_CONNECTIONS)
