"""The outbox: a queue and a thread for each receiver, so that one that hangs delays no other.

Any process may send: it claims each delivery in the database first. New deliveries wake the
threads; a poll finds what other processes planned. To an Alertmanager, which forgets what nobody
repeats, all that fires is posted each interval besides.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from typing import Any, Literal, NamedTuple

import structlog

from driftwatch.clock import Clock
from driftwatch.errors import ConfigError, DeliveryError, StoreError
from driftwatch.incidents.delivery import AttemptResult, Delivery
from driftwatch.notify.page import Page
from driftwatch.numbers import clean, cut
from driftwatch.receivers.alertmanager import AlertmanagerSender
from driftwatch.receivers.sender import (
    LONGEST_RETRY_AFTER_SECONDS,
    Message,
    Sender,
    next_attempt,
)
from driftwatch.service.metrics import DEAD_COUNTS_FOR, OwnMetrics
from driftwatch.service.notes import Trouble
from driftwatch.store.store import Store

POLL_SECONDS = 2.0
# longer than an exchange over HTTP may take (driftwatch/receivers/http.py: 10 s), so that what is
# on its way is noted; a receiver that hangs longer is left behind
STOP_SECONDS = 12.0
_BACKLOG_SECONDS = 1.0  # between two readings of the backlog
_LONGEST_ERROR = 300


class Attempt(NamedTuple):
    """One attempt to deliver a message."""

    receiver: str
    result: Literal["sent", "retried", "dead"]
    reason: str  # why it was not taken, empty where it was
    subject: str  # incident id or week
    event: str
    rule: str


class ReceiverQueue(threading.Thread):
    """Sends what is due to one receiver, in order.

    A delivery is noted as sent only after its receiver took it: after a crash in between it is sent
    again with the same idempotency key. What was sent and could not be noted, because the database
    did not serve, is noted before anything else is sent.

    Attributes:
        sender: the receiver's; None: the configuration has no such receiver any more.
        repost_seconds: how often what fires is posted again; None: never.
    """

    def __init__(self, name: str, outbox: Outbox) -> None:
        super().__init__(name=f"driftwatch-outbox-{name}", daemon=True)
        self.receiver, self._outbox = name, outbox
        self._store, self._clock = outbox.store, outbox.clock
        self.sender: Sender | None = None
        self.repost_seconds: float | None = None
        self.woken, self.ending = threading.Event(), threading.Event()
        self._sending = threading.Lock()
        self._unwritten: AttemptResult | None = None
        self._claimed: Delivery | None = None  # with the note of the one before
        self._paused_until: datetime | None = None  # Retry-After
        # at once: after a restart of ours an Alertmanager's alerts are near their end
        self._repost_at = 0.0  # monotonic
        self._refused: dict[str, Trouble] = {}  # by host of an Alertmanager

    def run(self) -> None:
        """Until it is ended; whatever goes wrong is tried again."""
        log = structlog.get_logger()
        store = Trouble("deliveries wait for the database", "deliveries go on")
        while not self.ending.is_set():
            self.woken.clear()
            pause = POLL_SECONDS
            try:
                pause = self._work()
                store.note(None)
            except StoreError as error:
                store.note(error.message)
            except Exception as error:  # noqa: BLE001 - the thread of a receiver never ends
                log.error("not expected", receiver=self.receiver, reason=repr(error))
            self.woken.wait(pause)

    def _work(self) -> float:
        """Post again or send once; seconds until there is something to do."""
        if self.repost_seconds is not None and time.monotonic() >= self._repost_at:
            self._repost_at = time.monotonic() + self.repost_seconds
            self.repost()
        if self.send_next() is not None:
            self._outbox.note_backlog()
            return 0.0
        self._outbox.note_backlog(at_once=True)
        pause, now = POLL_SECONDS, self._clock.now()
        if (due_at := self._store.next_attempt_at(self.receiver)) is not None:
            wait = max(self._pause_seconds(now), (due_at - now).total_seconds(), 0.05)
            pause = min(pause, wait)
        if self.repost_seconds is not None:
            pause = min(pause, max(0.0, self._repost_at - time.monotonic()))
        return pause

    def send_next(self) -> Attempt | None:
        """Send the next delivery that is due; None: there is none, or another thread sends.

        Raises StoreError: the database does not serve.
        """
        if not self._sending.acquire(blocking=False):
            return None
        try:
            now, sender = self._clock.now(), self.sender
            if self._unwritten is None:
                claimed, self._claimed = self._claimed, None
                if claimed is None and sender is not None and self._pause_seconds(now) <= 0:
                    claimed = self._store.claim(self.receiver, now)
                if claimed is None or sender is None:
                    return None
                self._unwritten = self._send(sender, claimed)
            attempt = self._write(self._unwritten)
        finally:
            self._sending.release()
        self._outbox.note(attempt)
        return attempt

    def _pause_seconds(self, now: datetime) -> float:
        seconds = (self._paused_until - now).total_seconds() if self._paused_until else 0.0
        # longer than any pause: the clock went back
        return seconds if seconds <= LONGEST_RETRY_AFTER_SECONDS else 0.0

    def _send(self, sender: Sender, delivery: Delivery) -> AttemptResult:
        about = (delivery.kind, delivery.subject, delivery.event, delivery.number)
        try:
            earlier = self._store.conversation(delivery)
            conversation = sender.send(Message(*about, delivery.payload or {}, earlier))
        except DeliveryError as error:
            failure = error
        except ConfigError as error:  # a secret cannot be read just now
            text = f"{self.receiver}: {error.problems[0].message}"
            failure = DeliveryError(text, permanent=False)
        except Exception as error:  # noqa: BLE001 - one page that cannot be made holds up no other
            # what a library raises may hold what no database takes
            text = cut(clean(f"not expected: {type(error).__name__}: {error}"), _LONGEST_ERROR)
            failure = DeliveryError(text, permanent=False)
        else:
            return AttemptResult(delivery, self._clock.now(), conversation=conversation)
        at, wish = self._clock.now(), failure.retry_after_seconds
        if wish is not None:  # the receiver waits, not this page alone
            self._paused_until = at + timedelta(seconds=wish)
        key = f"{delivery.subject}/{delivery.receiver}"
        again = next_attempt(delivery.attempts, at, key, delivery.planned_at, wish)
        return AttemptResult(delivery, at, failure.message, None if failure.permanent else again)

    def _write(self, result: AttemptResult) -> Attempt:
        goes_on = not (self.ending.is_set() or self._pause_seconds(result.at) > 0)
        try:
            if goes_on:
                self._claimed = self._store.write_result_and_claim(result)
            else:
                self._store.write_result(result)
        except StoreError:
            raise
        except Exception:  # noqa: BLE001 - what no database takes holds up no other delivery
            error = None if result.error is None else "its error cannot be stored"
            self._store.write_result(result._replace(error=error, conversation=None))
        self._unwritten = None
        one, failed = result.delivery, "retried" if result.next_attempt_at else "dead"
        rule = one.payload.rule if isinstance(one.payload, Page) else ""
        what: Any = "sent" if result.error is None else failed
        return Attempt(one.receiver, what, result.error or "", one.subject, one.event, rule)

    def repost(self) -> None:
        """Post again all that fires, to an Alertmanager; what goes wrong is logged when it begins.

        What resolves while it is posted ended there first and fires again: it is ended anew.
        """
        sender, log = self.sender, structlog.get_logger()
        if not isinstance(sender, AlertmanagerSender):
            return
        try:
            posted = self._firing()
            answers = sender.keep(posted.values())
            ended = posted.keys() - self._firing().keys()
            if ended:
                sender.keep([posted[id_] for id_ in sorted(ended)], over=True)
        except Exception as error:  # noqa: BLE001 - what is new is sent, and this tried again
            log.warning(
                "not posted again", receiver=self.receiver, reason=str(error) or repr(error)
            )
            return
        for host, failure in answers.items():
            self._outbox.metrics.alertmanager_up.labels(self.receiver, host).set(failure is None)
            if host not in self._refused:
                words = ("alertmanager refused", "alertmanager answers again")
                self._refused[host] = Trouble(*words, receiver=self.receiver, host=host)
            self._refused[host].note(None if failure is None else failure.message)

    def _firing(self) -> dict[str, Page]:
        """Incident id → page, with who has it, of what fires and was planned for the receiver."""
        planned, pages = self._store.notified(or_given_up=True), dict[str, Page]()
        for one in self._store.open_incidents().values():
            if one.is_firing and one.page is not None and (one.id, self.receiver) in planned:
                by = {"acknowledgement": one.acknowledgement}
                pages[one.id] = one.page.model_copy(update=by)
        return pages


class Outbox:
    """Sends what is planned, in threads from :meth:`start` to :meth:`stop`."""

    def __init__(self, store: Store, clock: Clock, metrics: OwnMetrics) -> None:
        self.store, self.clock, self.metrics = store, clock, metrics
        self._log: Any = structlog.get_logger()
        self._changing = threading.Lock()
        self._running = False
        self.queues: dict[str, ReceiverQueue] = {}  # of every receiver that there was
        self._names: tuple[str, ...] = ()  # of those that there are
        self._backlog_at = 0.0  # monotonic

    def adopt(
        self, senders: Mapping[str, Sender], repost_seconds: Mapping[str, float] | None = None
    ) -> None:
        """Send to these receivers from now on, and to some post again what fires, so often.

        What is on its way ends first: a receiver keeps its queue, so that nothing is sent twice.
        """
        with self._changing:
            for name in self.queues.keys() | senders.keys():
                queue = self.queues.setdefault(name, ReceiverQueue(name, self))
                queue.sender = senders.get(name)
                queue.repost_seconds = (repost_seconds or {}).get(name)
            self._names = tuple(senders)
        self.wake()

    def start(self) -> None:
        """Send in threads."""
        self._running = True
        self.wake()

    def wake(self) -> None:
        """There are new deliveries, or other receivers."""
        with self._changing:
            for queue in self.queues.values() if self._running else ():
                if queue.ident is None:
                    queue.start()
                queue.woken.set()

    def stop(self, seconds: float = STOP_SECONDS) -> None:
        """Begin nothing more, and wait for what is on its way, at most so long."""
        with self._changing:
            self._running = False
            running = [queue for queue in self.queues.values() if queue.is_alive()]
        for queue in running:
            queue.ending.set()
            queue.woken.set()
        deadline = time.monotonic() + seconds
        for queue in running:
            queue.join(max(0.0, deadline - time.monotonic()))
            if queue.is_alive():
                text = "left behind while it sends: it may be sent again"
                self._log.warning(text, receiver=queue.receiver)

    def why_silent(self) -> str | None:
        """Which receivers' threads ended by themselves: nothing is sent to them; None: none did."""
        with self._changing:
            dead = [n for n in self._names if self._running and not self.queues[n].is_alive()]
        return f"nothing is sent to {', '.join(dead)}: the thread ended" if dead else None

    def deliver_once(self) -> list[Attempt]:
        """Send what is due to all receivers at the same time. Returns each attempt, in order.

        Raises StoreError: the database does not serve.
        """

        def deliver(name: str) -> list[Attempt]:
            return list(iter(self.queues[name].send_next, None))

        self.give_up_unknown_receivers()
        with ThreadPoolExecutor(max(1, len(self._names))) as pool:
            attempts = [one for each in pool.map(deliver, self._names) for one in each]
        self.note_backlog(at_once=True)
        return attempts

    def give_up_unknown_receivers(self) -> None:
        """Give up what waits for receivers that the configuration does not have.

        Raises StoreError: the database does not serve.
        """
        for name, count in self.store.give_up_unknown_receivers(
            self._names, self.clock.now()
        ).items():
            self.metrics.attempts.labels(name, "dead").inc(count)
            reason = "the configuration has no such receiver any more"
            self._log.warning("given up", receiver=name, deliveries=count, reason=reason)

    def note(self, attempt: Attempt) -> None:
        """Metrics and one log line, at the time of the attempt."""
        self.metrics.attempts.labels(attempt.receiver, attempt.result).inc()
        log = self._log.info if attempt.result == "sent" else self._log.warning
        about = {"receiver": attempt.receiver, "id": attempt.subject, "rule": attempt.rule}
        reason = {"reason": attempt.reason} if attempt.reason else {}
        what = attempt.event if attempt.event == "report" else "page"
        log(f"{what} {attempt.result}", **about, about=attempt.event, **reason)

    def note_backlog(self, *, at_once: bool = False) -> None:
        """The metrics of what waits, unless they were just noted."""
        if at_once or time.monotonic() - self._backlog_at >= _BACKLOG_SECONDS:
            self._backlog_at = time.monotonic()
            since = self.clock.now() - DEAD_COUNTS_FOR
            self.metrics.note_backlog(self.store.backlog(since), self._names)
