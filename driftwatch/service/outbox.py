"""The outbox: a thread and a queue for each receiver, so that one that hangs delays no other.

New deliveries wake the threads at once; a poll finds what a lost wake-up left. Pages are marked one
at a time, so that the metrics move while a receiver hangs.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import structlog

from driftwatch.clock import Clock
from driftwatch.errors import StoreError
from driftwatch.receivers.registry import FreshSender
from driftwatch.receivers.sender import Sender
from driftwatch.service.own_metrics import DEAD_COUNTS_FOR, OwnMetrics
from driftwatch.service.receiver_queue import Attempt, ReceiverQueue, Reposting
from driftwatch.store.store import Store

POLL_SECONDS = 5.0
# longer than a receiver's exchange over HTTP may take (driftwatch/receivers/http.py: 10 s), so
# that what is on its way is marked; a receiver that hangs longer is left behind
STOP_SECONDS = 12.0
_BACKLOG_SECONDS = 1.0  # between two readings of the backlog


class Outbox:
    """Sends what is planned, until :meth:`stop`.

    Of several processes on one database one at a time calls :meth:`deliver_to` for a receiver.
    """

    def __init__(self, store: Store, clock: Clock, metrics: OwnMetrics) -> None:
        self._store, self._clock, self._metrics = store, clock, metrics
        self._reposting = Reposting(store, metrics.alertmanager_up)
        self._log: Any = structlog.get_logger()
        self._changing = threading.Lock()
        self._running = False
        self._queues: dict[str, ReceiverQueue] = {}  # of every receiver that there was
        self._names: tuple[str, ...] = ()  # of those that there are
        self._repost_seconds: Mapping[str, float] = {}
        self._workers: dict[str, _Worker] = {}
        self._backlog_at = 0.0  # monotonic

    def adopt(
        self, senders: Mapping[str, Sender], repost_seconds: Mapping[str, float] | None = None
    ) -> None:
        """Send to these receivers from now on, and to some post again what fires, so often.

        What is on its way ends first: a receiver's queue is the same before and after, so that
        nothing is sent twice. What waits for a receiver that is gone is given up.
        """
        with self._changing:
            for name in self._queues.keys() | senders.keys():
                self._queue(name).sender = senders.get(name)
            self._names, self._repost_seconds = tuple(senders), repost_seconds or {}
        self.wake()

    def start(self) -> None:
        """Send in threads."""
        self._running = True
        self.wake()

    def wake(self) -> None:
        """There are new deliveries, or other receivers."""
        waiting = self._waiting_for_nobody() if self._running else ()
        with self._changing:
            if self._running:
                names = {*self._names, *waiting}
                for name in self._workers.keys() - names:
                    self._workers.pop(name).end()
                for name in sorted(names - self._workers.keys()):
                    self._workers[name] = _Worker(self, self._queue(name))
                for worker in self._workers.values():
                    worker.woken.set()

    def stop(self, seconds: float = STOP_SECONDS) -> None:
        """Begin nothing more, and wait for what is on its way, at most so long."""
        with self._changing:
            self._running = False
            workers, self._workers = self._workers, {}
        for worker in workers.values():
            worker.end()
        deadline = time.monotonic() + seconds
        for name, worker in workers.items():
            worker.join(max(0.0, deadline - time.monotonic()))
            if worker.is_alive():
                self._log.warning("left behind while it sends: it may be sent again", receiver=name)

    def why_silent(self) -> str | None:
        """Which receivers' threads ended by themselves: nothing is sent to them; None: none did."""
        with self._changing:
            dead = [name for name, worker in self._workers.items() if not worker.is_alive()]
        return f"nothing is sent to {', '.join(dead)}: the thread ended" if dead else None

    def deliver_once(self) -> list[Attempt]:
        """Send what is due, to all receivers at the same time; what became of each, in order.

        Raises StoreError: the database does not serve.
        """
        names = [*self._names, *sorted(self._store.waiting_receivers().difference(self._names))]
        with ThreadPoolExecutor(max(1, len(names))) as pool:
            return [one for each in pool.map(self.deliver_to, names) for one in each]

    def deliver_to(self, name: str) -> list[Attempt]:
        """Send what is due to one receiver; nothing while another thread does.

        Raises StoreError: the database does not serve.
        """
        with self._changing:
            queue = self._queue(name)
        now, attempts = self._clock.now(), []
        while (attempt := queue.send_next(due_by=now)) is not None:
            self.note(attempt)
            attempts.append(attempt)
        self.note_backlog(at_once=True)
        return attempts

    def due(self) -> list[str]:
        """The receivers, configured or not, to whom something is due."""
        now = self._clock.now()
        waiting = self._store.waiting_receivers()
        at = {name: self._store.next_attempt_at(name) for name in sorted(waiting)}
        return [name for name, due_at in at.items() if due_at is not None and due_at <= now]

    @property
    def reposted_to(self) -> list[str]:
        """The receivers that forget what fires unless it is posted again."""
        return sorted(self._repost_seconds)

    def repost_to(self, name: str) -> float:
        """Post what fires again to one of them, if it is one; seconds until the next time."""
        every_seconds = self._repost_seconds.get(name)
        if every_seconds is None:
            return POLL_SECONDS
        if isinstance(sender := self._queue(name).sender, FreshSender):
            self._reposting.post(name, sender)
        return every_seconds

    def note(self, attempt: Attempt) -> None:
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

    def note_backlog(self, *, at_once: bool = False) -> None:
        """The metrics of what waits, unless they were just noted."""
        if at_once or time.monotonic() - self._backlog_at >= _BACKLOG_SECONDS:
            self._backlog_at = time.monotonic()
            since = self._clock.now() - DEAD_COUNTS_FOR
            self._metrics.note_backlog(self._store.backlog(since), self._names)

    def _queue(self, name: str) -> ReceiverQueue:
        if name not in self._queues:
            self._queues[name] = ReceiverQueue(name, self._store, self._clock)
        return self._queues[name]

    def _waiting_for_nobody(self) -> frozenset[str]:
        """Receivers that the configuration does not have, and that deliveries wait for."""
        try:
            return self._store.waiting_receivers().difference(self._names)
        except StoreError:  # the next tick wakes again
            return frozenset(self._workers.keys() - set(self._names))


class _Worker(threading.Thread):
    """One thread that works off one queue, until it is ended."""

    def __init__(self, outbox: Outbox, queue: ReceiverQueue) -> None:
        super().__init__(name=f"driftwatch-outbox-{queue.name}", daemon=True)
        self.ending, self.woken = threading.Event(), threading.Event()
        self._outbox, self._queue = outbox, queue
        self._log: Any = structlog.get_logger()
        # at once: after a restart of ours an Alertmanager's alerts are near their end
        self._repost_at = 0.0  # monotonic
        self._trouble = ""  # why the store did not serve
        self.start()

    def end(self) -> None:
        """Begin nothing more."""
        self.ending.set()
        self.woken.set()

    def run(self) -> None:
        """Until it is ended; whatever goes wrong is tried again."""
        while not self.ending.is_set():
            self.woken.clear()
            pause, trouble = POLL_SECONDS, ""
            try:
                pause = self._work()
            except StoreError as error:
                trouble = error.message
                if trouble != self._trouble:
                    self._log.error("deliveries wait for the database", reason=trouble)
            except Exception as error:  # noqa: BLE001 - the thread of a receiver never ends
                self._log.error("not expected", receiver=self._queue.name, reason=repr(error))
            self._trouble = trouble
            self.woken.wait(pause)

    def _work(self) -> float:
        """Post again or send once; seconds until there is something to do."""
        outbox, name = self._outbox, self._queue.name
        if time.monotonic() >= self._repost_at:
            self._repost_at = time.monotonic() + outbox.repost_to(name)
        attempt = self._queue.send_next()
        if attempt is not None:
            outbox.note(attempt)
        outbox.note_backlog(at_once=attempt is None)
        if attempt is not None:
            return 0.0
        pause = max(0.05, self._queue.idle_seconds(POLL_SECONDS))
        return min(pause, max(0.0, self._repost_at - time.monotonic()))
