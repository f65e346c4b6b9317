"""Tasks in a thread of this process, for one process on one database; what waits ends with it."""

from __future__ import annotations

import heapq
import threading
import time
from collections.abc import Callable, Mapping

import orjson
import structlog

from driftwatch.store.store import Store
from driftwatch.tasks.task import (
    PRIORITIES,
    QUEUES,
    TRIES,
    Function,
    Queue,
    QueueCounts,
    Task,
    reason_of,
)

_RETRY_SECONDS = 5.0


class InProcess:
    """An executor of one thread, that begins with the first task.

    Args:
        functions: by name of the task.
        open_store: the store that functions write to.
        stopping: set when it closes: functions that take long may look at it.
        retry_seconds: before a task that failed is tried again.
    """

    def __init__(
        self,
        functions: Mapping[str, Function],
        open_store: Callable[[], Store],
        stopping: threading.Event | None = None,
        retry_seconds: float = _RETRY_SECONDS,
    ) -> None:
        self._functions, self._open_store = functions, open_store
        self._stopping = threading.Event() if stopping is None else stopping
        self._retry_seconds = retry_seconds
        self._changed = threading.Condition()
        # (turn, when it came, the task): the first is done next
        self._waiting: list[tuple[tuple[int, int], float, Task]] = []
        self._running: Task | None = None
        self._count = 0
        self._thread: threading.Thread | None = None

    def defer(self, store: Store, task: Task) -> bool:
        """Have it done; it begins at once, whatever becomes of a transaction."""
        copied = Task(task.name, task.queue, task.key, orjson.loads(orjson.dumps(task.arguments)))
        with self._changed:
            if self._stopping.is_set() or any(one.key == task.key for _, _, one in self._waiting):
                return False
            self._count += 1
            turn = (-PRIORITIES[task.queue], self._count)
            heapq.heappush(self._waiting, (turn, time.monotonic(), copied))
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="driftwatch-tasks")
                self._thread.daemon = True
                self._thread.start()
            self._changed.notify_all()
        return True

    def counts(self, store: Store) -> Mapping[Queue, QueueCounts]:
        """Each queue."""
        now = time.monotonic()
        with self._changed:
            waiting = [(task.queue, now - since) for _, since, task in self._waiting]
            running = None if self._running is None else self._running.queue
        return {
            queue: QueueCounts(
                sum(one == queue for one, _ in waiting),
                int(running == queue),
                max((age for one, age in waiting if one == queue), default=0.0),
            )
            for queue in QUEUES
        }

    def finish(self) -> None:
        """Wait until nothing is left to be done."""
        with self._changed:
            self._changed.wait_for(lambda: not self._waiting and self._running is None)

    def close(self) -> None:
        """Finish what is being done; what waits is not begun."""
        self._stopping.set()
        with self._changed:
            self._waiting = []
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join()

    def _work(self) -> None:
        while True:
            with self._changed:
                self._running = None
                self._changed.notify_all()
                self._changed.wait_for(lambda: self._waiting or self._stopping.is_set())
                if self._stopping.is_set():
                    return
                _, _, self._running = heapq.heappop(self._waiting)
                task = self._running
            self._done(task)

    def _done(self, task: Task) -> None:
        log = structlog.get_logger()
        for tried in range(1, TRIES + 1):
            try:
                self._functions[task.name](self._open_store(), task.arguments)
                return
            except Exception as error:  # noqa: BLE001 - whatever it is, the other tasks go on
                reason = reason_of(error)
            log.error("task failed", task=task.name, tried=tried, reason=reason)
            if tried < TRIES and self._stopping.wait(self._retry_seconds):
                return
        log.error("task is dead", task=task.name, reason=reason)
