"""The outbox: a queue and a thread for each receiver, so that one that hangs delays no other.

New deliveries wake the threads at once; a poll finds what a lost wake-up left. To an Alertmanager,
which forgets it, what fires is posted again besides, each interval. No outbox row an interval: what
is posted is what the store holds at that moment, so that a restart of theirs or of ours needs no
book.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from typing import Any, Literal, NamedTuple

import structlog

from driftwatch.clock import Clock
from driftwatch.errors import DeliveryError, StoreError
from driftwatch.incidents.delivery import Acknowledgement, AttemptResult, Delivery
from driftwatch.incidents.follow_up import acknowledgement_json
from driftwatch.numbers import clean, cut
from driftwatch.receivers.registry import FreshSender
from driftwatch.receivers.sender import Conversation, Message, Sender, next_attempt
from driftwatch.service.own_metrics import DEAD_COUNTS_FOR, OwnMetrics
from driftwatch.store.store import Store

POLL_SECONDS = 5.0
# longer than a receiver's exchange over HTTP may take (driftwatch/receivers/http.py: 10 s), so
# that what is on its way is marked; a receiver that hangs longer is left behind
STOP_SECONDS = 12.0
_BACKLOG_SECONDS = 1.0  # between two readings of the backlog
_LONGEST_ERROR = 300
# a process that was stopped since it read a delivery is not to send it
_READ_SECONDS = 10.0


def boot_seconds() -> float:
    """A clock that only grows, also while the process is stopped or the machine sleeps."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


class Attempt(NamedTuple):
    """One attempt to deliver a message."""

    receiver: str
    result: Literal["sent", "retried", "dead"]
    reason: str  # why it was not taken, empty where it was
    subject: str  # incident id or week
    event: str
    rule: str


class ReceiverQueue:
    """Sends what is due to one receiver, in order, by one thread at a time.

    A delivery is noted as sent only after its receiver took it: after a crash in between it is sent
    again with the same idempotency key, never lost. What was sent and could not be noted, because
    the database did not serve, is noted before anything else is sent.

    ``only_grows``: seconds of a clock that also counts while the process is stopped or the machine
    sleeps. What was read longer ago than :data:`_READ_SECONDS` is read again before it is sent:
    another process may have sent it.

    Attributes:
        sender: the receiver's; None: the configuration has no such receiver any more.
    """

    def __init__(
        self,
        name: str,
        store: Store,
        clock: Clock,
        only_grows: Callable[[], float] = boot_seconds,
    ) -> None:
        self.name, self._only_grows = name, only_grows
        self.sender: Sender | None = None
        self._store, self._clock = store, clock
        self._sending = threading.Lock()
        self._unwritten: AttemptResult | None = None
        self._paused_until: datetime | None = None
        self._pause_seconds = 0.0  # how long it was to last

    def send_next(self, due_by: datetime | None = None) -> Attempt | None:
        """Send the next delivery that is due (now, or by an earlier time); None: nothing to do.

        Nothing either while another thread sends, or the receiver's ``Retry-After`` lasts.
        Raises StoreError: the database does not serve.
        """
        if not self._sending.acquire(blocking=False):
            return None
        try:
            now, sender = self._clock.now(), self.sender
            if self._unwritten is None:
                if sender is None or self._pause(now) > 0:
                    return None
                read_at = self._only_grows()
                delivery = self._store.next_delivery(self.name, due_by or now, now)
                if delivery is None:
                    return None
                earlier = self._store.conversation(delivery)
                # the last thing before it is sent: the process may have been stopped since
                if self._only_grows() - read_at > _READ_SECONDS:
                    return None
                self._unwritten = self._send(sender, delivery, earlier)
            return self._write(self._unwritten)
        finally:
            self._sending.release()

    def idle_seconds(self, longest: float) -> float:
        """How long nothing will be due; at most ``longest``.

        Raises StoreError: the database does not serve.
        """
        now = self._clock.now()
        due_at = self._store.next_attempt_at(self.name)
        if due_at is None:
            return longest
        return min(longest, max(self._pause(now), (due_at - now).total_seconds(), 0.0))

    def _pause(self, now: datetime) -> float:
        until = self._paused_until
        seconds = 0.0 if until is None else (until - now).total_seconds()
        # more than there was: the clock went back
        return 0.0 if seconds > self._pause_seconds + 1.0 else seconds

    def _send(
        self, sender: Sender, delivery: Delivery, earlier: Conversation | None
    ) -> AttemptResult:
        about = (delivery.kind, delivery.subject, delivery.event, delivery.number)
        try:
            conversation = sender.send(Message(*about, delivery.payload or {}, earlier))
        except DeliveryError as error:
            failure = error
        except Exception as error:  # noqa: BLE001 - one page that cannot be made holds up no other
            # what a library raises may hold what no database takes
            text = cut(clean(f"not expected: {type(error).__name__}: {error}"), _LONGEST_ERROR)
            failure = DeliveryError(text, permanent=False)
        else:
            return AttemptResult(delivery, self._clock.now(), conversation=conversation)
        at, wish = self._clock.now(), failure.retry_after_seconds
        if wish is not None:
            # said of the receiver and not of this page: it is asked nothing until then
            self._paused_until, self._pause_seconds = at + timedelta(seconds=wish), wish
        key, attempts = f"{delivery.subject}/{delivery.receiver}", delivery.attempts + 1
        again = next_attempt(attempts, at, key, delivery.planned_at, wish)
        return AttemptResult(delivery, at, failure.message, None if failure.permanent else again)

    def _write(self, result: AttemptResult) -> Attempt:
        try:
            self._store.write_result(result)
        except StoreError:
            raise
        except Exception:  # noqa: BLE001 - what no database takes holds up no other delivery
            error = None if result.error is None else "its error cannot be stored"
            self._store.write_result(result._replace(error=error, conversation=None))
        self._unwritten = None
        one, failed = result.delivery, "retried" if result.next_attempt_at else "dead"
        rule = str((one.payload or {}).get("rule", ""))
        what: Any = "sent" if result.error is None else failed
        return Attempt(one.receiver, what, result.error or "", one.subject, one.event, rule)


class Outbox:
    """Sends what is planned, until :meth:`stop`.

    Of several processes on one database one at a time calls :meth:`deliver_to` for a receiver.
    """

    def __init__(self, store: Store, clock: Clock, metrics: OwnMetrics) -> None:
        self._store, self._clock, self._metrics = store, clock, metrics
        self._log: Any = structlog.get_logger()
        self._changing = threading.Lock()
        self._running = False
        self._queues: dict[str, ReceiverQueue] = {}  # of every receiver that there was
        self._names: tuple[str, ...] = ()  # of those that there are
        self._repost_seconds: Mapping[str, float] = {}
        self._refused: dict[tuple[str, str], str] = {}  # (receiver, host) → why, as last logged
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
                queue = self._queues.setdefault(name, ReceiverQueue(name, self._store, self._clock))
                queue.sender = senders.get(name)
            self._names, self._repost_seconds = tuple(senders), repost_seconds or {}
        self.wake()

    def start(self) -> None:
        """Send in threads."""
        self._running = True
        self.wake()

    def wake(self) -> None:
        """There are new deliveries, or other receivers."""
        with self._changing:
            if not self._running:
                return
            for name in self._workers.keys() - set(self._names):
                self._workers.pop(name).end()
            for name in self._names:
                if name not in self._workers:
                    self._workers[name] = _Worker(self, self._queues[name])
                self._workers[name].woken.set()

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
        self.give_up_strangers()
        with ThreadPoolExecutor(max(1, len(self._names))) as pool:
            return [one for each in pool.map(self.deliver_to, self._names) for one in each]

    def deliver_to(self, name: str) -> list[Attempt]:
        """Send what is due to one receiver; nothing while another thread does.

        Raises StoreError: the database does not serve.
        """
        queue, now, attempts = self._queues.get(name), self._clock.now(), list[Attempt]()
        while queue is not None and (attempt := queue.send_next(due_by=now)) is not None:
            self.note(attempt)
            attempts.append(attempt)
        self.note_backlog(at_once=True)
        return attempts

    def due(self) -> list[str]:
        """The receivers to whom something is due."""
        now = self._clock.now()
        at = {name: self._store.next_attempt_at(name) for name in sorted(self._names)}
        return [name for name, due_at in at.items() if due_at is not None and due_at <= now]

    def give_up_strangers(self) -> None:
        """Give up what waits for receivers that the configuration does not have.

        Raises StoreError: the database does not serve.
        """
        for name, count in self._store.give_up_strangers(self._names, self._clock.now()).items():
            self._metrics.attempts.labels(name, "dead").inc(count)
            reason = "the configuration has no such receiver any more"
            self._log.warning("given up", receiver=name, deliveries=count, reason=reason)

    @property
    def reposted_to(self) -> list[str]:
        """The receivers that forget what fires unless it is posted again."""
        return sorted(self._repost_seconds)

    def repost_to(self, name: str) -> float:
        """Post what fires again to one of them, if it is one; seconds until the next time."""
        every_seconds = self._repost_seconds.get(name)
        sender = self._queues[name].sender if name in self._queues else None
        if every_seconds is None or not isinstance(sender, FreshSender):
            return POLL_SECONDS
        try:
            posted = self._firing(name)
            answers = sender.keep(posted.values())
            # what resolved while it was posted, or got other labels, ended there first, and fires
            # again now
            now = self._firing(name)
            target_of = {id_: page["target"] for id_, page in now.items()}
            ended = [page for id_, page in posted.items() if target_of.get(id_) != page["target"]]
            if ended:
                sender.keep(ended, over=True)
        except Exception as error:  # noqa: BLE001 - what is new is sent, and this tried again
            self._log.warning("not posted again", receiver=name, reason=str(error) or repr(error))
            return every_seconds
        for host, failure in answers.items():
            self._metrics.alertmanager_up.labels(name, host).set(failure is None)
            before = self._refused.pop((name, host), None)
            about = {"receiver": name, "host": host}
            if failure is not None:
                self._refused[name, host] = failure.message
                if failure.message != before:
                    self._log.warning("alertmanager refused", **about, reason=failure.message)
            elif before is not None:
                self._log.info("alertmanager answers again", **about)
        return every_seconds

    def _firing(self, name: str) -> dict[str, dict[str, Any]]:
        """Incident id → page, with who has it, of what fires and is the receiver's to know.

        Also one that was given up: who did not take it for a day may take it now.
        """
        notified, pages = self._store.notified(or_given_up=True), dict[str, dict[str, Any]]()
        for one in self._store.open_incidents().values():
            if one.state == "firing" and one.page is not None and (one.id, name) in notified:
                taken = Acknowledgement.of_incident(one)
                by = {} if taken is None else {"acknowledgement": acknowledgement_json(taken)}
                pages[one.id] = {**one.page, **by}
        return pages

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


class _Worker(threading.Thread):
    """One thread that works off one queue, until it is ended."""

    def __init__(self, outbox: Outbox, queue: ReceiverQueue) -> None:
        super().__init__(name=f"driftwatch-outbox-{queue.name}", daemon=True)
        self.ending, self.woken = threading.Event(), threading.Event()
        self._outbox, self._queue = outbox, queue
        # at once: after a restart of ours an Alertmanager's alerts are near their end
        self._repost_at = 0.0  # monotonic
        self.start()

    def end(self) -> None:
        """Begin nothing more."""
        self.ending.set()
        self.woken.set()

    def run(self) -> None:
        """Until it is ended; whatever goes wrong is tried again."""
        log: Any = structlog.get_logger()
        before = ""  # why the store did not serve
        while not self.ending.is_set():
            self.woken.clear()
            pause, trouble = POLL_SECONDS, ""
            try:
                pause = self._work()
            except StoreError as error:
                trouble = error.message
                if trouble != before:
                    log.error("deliveries wait for the database", reason=trouble)
            except Exception as error:  # noqa: BLE001 - the thread of a receiver never ends
                log.error("not expected", receiver=self._queue.name, reason=repr(error))
            before = trouble
            self.woken.wait(pause)

    def _work(self) -> float:
        """Post again or send once; seconds until there is something to do."""
        outbox = self._outbox
        if time.monotonic() >= self._repost_at:
            self._repost_at = time.monotonic() + outbox.repost_to(self._queue.name)
        attempt = self._queue.send_next()
        if attempt is not None:
            outbox.note(attempt)
        outbox.note_backlog(at_once=attempt is None)
        if attempt is not None:
            return 0.0
        pause = max(0.05, self._queue.idle_seconds(POLL_SECONDS))
        return min(pause, max(0.0, self._repost_at - time.monotonic()))
