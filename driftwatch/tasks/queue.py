"""Tasks in procrastinate's tables of a PostgreSQL, for workers to do."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

from sqlalchemy import text

from driftwatch.database_place import Place, PostgresPlace
from driftwatch.errors import StoreError, UsageError
from driftwatch.store.queue_schema import has_procrastinate, is_queue_behind
from driftwatch.store.store import Store
from driftwatch.tasks.task import PRIORITIES, QUEUES, Queue, QueueCounts, Task

if TYPE_CHECKING:
    from procrastinate.manager import JobManager


_COUNTS = text(
    "SELECT j.queue_name, count(*) FILTER (WHERE j.status = 'todo'), "
    "count(*) FILTER (WHERE j.status = 'doing'), "
    "coalesce(extract(epoch FROM now() - min(e.at) FILTER (WHERE j.status = 'todo')), 0) "
    "FROM procrastinate_jobs j "
    "LEFT JOIN procrastinate_events e ON e.job_id = j.id AND e.type = 'deferred' "
    "WHERE j.status IN ('todo', 'doing') GROUP BY j.queue_name"
)


def require_queue(place: Place) -> PostgresPlace:
    """The database of workers.

    Raises UsageError: it is not PostgreSQL, or procrastinate is not installed.
    """
    if not isinstance(place, PostgresPlace):
        raise UsageError(
            f"workers need PostgreSQL, and the database is {place}",
            help_text="leave out tasks.run_by, or name a PostgreSQL as database",
        )
    if not has_procrastinate():
        raise UsageError(
            "procrastinate is not installed",
            help_text="pip install 'vllm-driftwatch[postgres]', in a checkout pip install "
            "'.[postgres]'",
        )
    return place


class WorkerQueue:
    """An executor whose tasks are done by other processes: ``driftwatch worker``."""

    def defer(self, store: Store, task: Task) -> bool:
        """Note it in the same transaction as what else this thread writes."""
        from procrastinate.exceptions import AlreadyEnqueued
        from procrastinate.jobs import Job

        job = Job(
            queue=task.queue,
            priority=PRIORITIES[task.queue],
            lock=task.key,
            queueing_lock=task.key,
            task_name=task.name,
            task_kwargs=dict(task.arguments),
        )
        with store.one_transaction() as connection:
            point = connection.begin_nested()
            try:
                _jobs().defer_job(job, connection=connection.connection.driver_connection)
            except AlreadyEnqueued:
                point.rollback()
                return False
            point.commit()
        return True

    def counts(self, store: Store) -> Mapping[Queue, QueueCounts]:
        """Each queue."""
        with store.one_view() as connection:
            there: dict[Any, QueueCounts] = {
                queue: QueueCounts(waiting, running, float(age))
                for queue, waiting, running, age in connection.execute(_COUNTS)
            }
        return {queue: there.get(queue, QueueCounts()) for queue in QUEUES}

    def close(self) -> None:
        """Nothing of it is this process's."""


@cache
def _jobs() -> JobManager:
    """Writes over the connection that each call gives it, and opens none."""
    from procrastinate import SyncPsycopgConnector
    from procrastinate.manager import JobManager

    return JobManager(SyncPsycopgConnector())


def require_tables(store: Store) -> None:
    """Check that procrastinate's tables are there.

    Raises StoreError: ``older-schema``.
    """
    with store.one_view() as connection:
        if is_queue_behind(connection):
            raise StoreError(
                f"database {store.place} has not the tables of this version's procrastinate",
                code="older-schema",
                help_text="stop the workers, then run: driftwatch db upgrade",
            )
