"""The outbox: a thread and a queue for each receiver, so that one that hangs delays no other.

New deliveries wake the threads at once; a poll finds what a lost wake-up left. Pages are marked one
at a time, so that the metrics move while a receiver hangs.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import structlog

from driftwatch.clock import Clock
from driftwatch.errors import StoreError
from driftwatch.receivers.sender import Sender
from driftwatch.service.own_metrics import DEAD_COUNTS_FOR, OwnMetrics
from driftwatch.service.receiver_queue import Attempt, DeliveryStore, ReceiverQueue, Results

POLL_SECONDS = 5.0
# longer than a receiver's exchange over HTTP may take (driftwatch/receivers/http.py: 10 s), so
# that what is on its way is marked; a receiver that hangs longer is left behind
STOP_SECONDS = 12.0
_METRICS_SECONDS = 1.0  # between two readings of the backlog


class _Worker:
    """One thread that works off one queue."""

    def __init__(self, name: str, work: Callable[[_Worker], None]) -> None:
        self.ending, self.woken = threading.Event(), threading.Event()
        self.thread = threading.Thread(target=work, args=(self,), name=name, daemon=True)

    def end(self) -> None:
        """Begin nothing more."""
        self.ending.set()
        self.woken.set()


class Outbox:
    """Sends what is planned, until :meth:`stop`.

    Of several processes on one database one at a time calls :meth:`deliver_to` for a receiver.
    """

    def __init__(
        self,
        store: DeliveryStore,
        clock: Clock,
        metrics: OwnMetrics,
    ) -> None:
        self._store, self._clock, self._metrics = store, clock, metrics
        self._results = Results(store)
        self._log: Any = structlog.get_logger()
        self._changing = threading.Lock()
        self._running = False
        self._queues: dict[str, ReceiverQueue] = {}  # of every receiver that there was
        self._names: tuple[str, ...] = ()  # of those that there are
        self._workers: dict[str, _Worker] = {}
        self._clerk: _Worker | None = None
        self._trouble: dict[str, str] = {}  # thread → why the store did not serve

    def adopt(self, senders: Mapping[str, Sender]) -> None:
        """Send to these receivers from now on.

        What is on its way ends first: a receiver's queue is the same before and after, so that
        nothing is sent twice. What waits for a receiver that is gone is given up.
        """
        with self._changing:
            for name in self._queues.keys() | senders.keys():
                self._queue(name).sender = senders.get(name)
            self._names = tuple(senders)
            if self._running:
                self._match_workers()

    def start(self) -> None:
        """Send in threads."""
        with self._changing:
            self._running = True
            self._clerk = _Worker("driftwatch-outbox", self._keep_books)
            self._match_workers()
            self._clerk.thread.start()

    def wake(self) -> None:
        """There are new deliveries."""
        with self._changing:
            for worker in (*self._workers.values(), *((self._clerk,) if self._clerk else ())):
                worker.woken.set()

    def stop(self, seconds: float = STOP_SECONDS) -> None:
        """Begin nothing more, and wait for what is on its way, at most so long."""
        with self._changing:
            self._running = False
            workers = dict(self._workers)
            if self._clerk is not None:
                workers[""] = self._clerk
            self._workers, self._clerk = {}, None
        for worker in workers.values():
            worker.end()
        deadline = time.monotonic() + seconds
        for name, worker in workers.items():
            worker.thread.join(max(0.0, deadline - time.monotonic()))
            if worker.thread.is_alive():
                self._log.warning("left behind while it sends: it may be sent again", receiver=name)

    def why_silent(self) -> str | None:
        """Which receivers' threads ended by themselves: nothing is sent to them; None: none did."""
        with self._changing:
            dead = [
                name
                for name, worker in self._workers.items()
                if not worker.thread.is_alive() and not worker.ending.is_set()
            ]
        return f"nothing is sent to {', '.join(dead)}: the thread ended" if dead else None

    def deliver_once(self) -> list[Attempt]:
        """Send what is due, to all receivers at the same time; what became of each, in order.

        Raises StoreError: the database does not serve.
        """
        with self._changing:
            queues = [self._queue(name) for name in self._names]
        queues += self._queues_of_nobody()
        with ThreadPoolExecutor(max(1, len(queues))) as pool:
            attempts = [one for each in pool.map(self._drain, queues) for one in each]
        self._note_backlog()
        return attempts

    def deliver_to(self, name: str) -> list[Attempt]:
        """Send what is due to one receiver; nothing while another thread does.

        Raises StoreError: the database does not serve.
        """
        with self._changing:
            queue = self._queue(name)
        attempts = self._drain(queue)
        self._note_backlog()
        return attempts

    def due(self) -> list[str]:
        """The receivers, configured or not, to whom something is due."""
        now = self._clock.now()
        waiting = self._store.waiting_receivers()
        at = {name: self._store.next_attempt_at(name) for name in sorted(waiting)}
        return [name for name, due_at in at.items() if due_at is not None and due_at <= now]

    def _drain(self, queue: ReceiverQueue) -> list[Attempt]:
        """Everything that is due now, once."""
        now, attempts = self._clock.now(), []
        while (attempt := queue.send_next(due_by=now)) is not None:
            self._note(attempt)
            attempts.append(attempt)
        return attempts

    def _queue(self, name: str) -> ReceiverQueue:
        if name not in self._queues:
            self._queues[name] = ReceiverQueue(name, self._store, self._results, self._clock)
        return self._queues[name]

    def _queues_of_nobody(self) -> list[ReceiverQueue]:
        """Of receivers that the configuration does not have, and that deliveries wait for."""
        waiting = self._store.waiting_receivers()
        with self._changing:
            return [self._queue(name) for name in sorted(waiting.difference(self._names))]

    def _match_workers(self) -> None:
        """A thread for each receiver that there is, and no other."""
        for name in [name for name in self._workers if name not in self._names]:
            self._workers.pop(name).end()
        for name in self._names:
            if name not in self._workers:
                queue = self._queue(name)
                worker = _Worker(f"driftwatch-outbox-{name}", partial(self._work, queue))
                self._workers[name] = worker
                worker.thread.start()
            self._workers[name].woken.set()

    def _work(self, queue: ReceiverQueue, worker: _Worker) -> None:
        """The thread of one receiver."""
        while not worker.ending.is_set():
            worker.woken.clear()
            pause = POLL_SECONDS
            try:
                attempt = queue.send_next()
                if attempt is not None:
                    self._note(attempt)
                    continue
                pause = max(0.05, queue.idle_seconds(POLL_SECONDS))
                self._served(queue.name, None)
            except StoreError as error:
                self._served(queue.name, error)
            except Exception as error:  # noqa: BLE001 - the thread of a receiver never ends
                self._log.error("not expected", receiver=queue.name, reason=repr(error))
            worker.woken.wait(pause)

    def _keep_books(self, worker: _Worker) -> None:
        """The thread of the metrics, and of what nobody is there for any more."""
        while not worker.ending.is_set():
            worker.woken.clear()
            try:
                for queue in self._queues_of_nobody():
                    self._drain(queue)
                self._note_backlog()
                self._served("", None)
            except StoreError as error:
                self._served("", error)
            except Exception as error:  # noqa: BLE001 - nor does this one
                self._log.error("not expected", reason=repr(error))
            if not worker.ending.wait(_METRICS_SECONDS):
                worker.woken.wait(POLL_SECONDS)

    def _note_backlog(self) -> None:
        since = self._clock.now() - DEAD_COUNTS_FOR
        self._metrics.note_backlog(self._store.backlog(since), self._names)

    def _served(self, name: str, error: StoreError | None) -> None:
        """Log that the database serves a thread or not, when that changes."""
        before = self._trouble.pop(name, None)
        if error is not None:
            self._trouble[name] = error.message
            if error.message != before:
                self._log.error("deliveries wait for the database", reason=error.message)

    def _note(self, attempt: Attempt) -> None:
        """Metrics and one log line, at the time of the attempt."""
        self._metrics.attempts.labels(attempt.receiver, attempt.result).inc()
        log = self._log.info if attempt.result == "sent" else self._log.warning
        what = attempt.event if attempt.event == "report" else "page"
        log(
            f"{what} {attempt.result}",
            receiver=attempt.receiver,
            id=attempt.subject,
            rule=attempt.rule,
            about=attempt.event,
            **({"reason": attempt.reason} if attempt.reason else {}),
        )
        with self._changing:
            if self._clerk is not None:
                self._clerk.woken.set()
