"""Tasks that are dead: tried often enough, and why they failed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, delete, func, insert, select

from driftwatch.store.database import Database
from driftwatch.store.tables import task_failures


@dataclass(frozen=True, slots=True)
class TaskFailure:
    """A dead task."""

    key: str
    name: str
    queue: str
    failed_at: datetime
    reason: str


class TaskFailures(Database):
    """Part of the store: what no executor could do; the last failure of each key."""

    def keep_task_failure(
        self, key: str, name: str, queue: str, failed_at: datetime, reason: str
    ) -> None:
        """Keep why a task is dead, in place of its failure before."""
        row = {"key": key, "name": name, "queue": queue, "failed_at": failed_at, "reason": reason}
        with self._writing() as connection:
            connection.execute(delete(task_failures).where(task_failures.c.key == key))
            connection.execute(insert(task_failures), [row])

    def forget_task_failure(self, key: str) -> None:
        """A task of this key was done."""
        same = task_failures.c.key == key
        with self._reading() as connection:
            if connection.execute(select(task_failures.c.key).where(same)).first() is None:
                return
        with self._writing() as connection:
            connection.execute(delete(task_failures).where(same))

    def task_failures(self) -> list[TaskFailure]:
        """Those that are kept, newest first."""
        query = select(task_failures).order_by(task_failures.c.failed_at.desc())
        with self._reading() as connection:
            return [TaskFailure(**row) for row in connection.execute(query).mappings()]

    def task_failure(self, key: str) -> TaskFailure | None:
        """That of one task; None: it is not dead."""
        return next((one for one in self.task_failures() if one.key == key), None)

    def task_failure_counts(self, since: datetime) -> Mapping[str, int]:
        """Queue → how many tasks are dead since then."""
        table = task_failures.c
        query = select(table.queue, func.count()).where(table.failed_at >= since)
        with self._reading() as connection:
            return dict(connection.execute(query.group_by(table.queue)).all())


def prune_task_failures(connection: Connection, before: datetime) -> None:
    """Forget those that failed before a time."""
    connection.execute(delete(task_failures).where(task_failures.c.failed_at < before))
