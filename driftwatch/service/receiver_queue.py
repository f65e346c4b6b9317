"""The queue of one receiver: one delivery at a time, each noted with its own time."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal, NamedTuple, Protocol

from driftwatch.clock import Clock
from driftwatch.errors import DeliveryError, StoreError
from driftwatch.incidents.delivery import AttemptResult, Backlog, Delivery
from driftwatch.notify.numbers import clean, cut
from driftwatch.receivers.sender import Conversation, Message, Sender, next_attempt

_LONGEST_ERROR = 300
# a process that was stopped since it read a delivery is not to send it
_READ_SECONDS = 10.0


def boot_seconds() -> float:
    """A clock that only grows, also while the process is stopped or the machine sleeps."""
    clock = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
    return time.clock_gettime(clock)


class DeliveryStore(Protocol):
    """What sending needs of a store. Every method raises StoreError where it does not serve."""

    def next_delivery(
        self, receiver: str, due_by: datetime, now: datetime | None = None
    ) -> Delivery | None:
        """The delivery to make next to a receiver; None: none is due."""

    def next_attempt_at(self, receiver: str) -> datetime | None:
        """When the next delivery to a receiver is due; None: none is pending."""

    def conversation(self, delivery: Delivery) -> Conversation | None:
        """What its receiver calls its message about the same incident; None before the first."""

    def write_results(self, results: Sequence[AttemptResult]) -> list[bool]:
        """What became of attempts."""

    def waiting_receivers(self) -> frozenset[str]:
        """The receivers, configured or not, that a delivery waits for."""

    def backlog(self, dead_since: datetime) -> dict[str, Backlog]:
        """What each receiver has not taken; ``dead_since``: from when given-up ones count."""


class Attempt(NamedTuple):
    """One attempt to deliver a message."""

    receiver: str
    result: Literal["sent", "retried", "dead"]
    reason: str  # why it was not taken, empty where it was
    subject: str  # incident id, week, day, silence id or change id
    event: str
    rule: str


class Results:
    """Writes the results of all receivers down: those that come while one is written, together.

    A commit waits for the disk; with one for each of many receivers the last would wait long.
    """

    def __init__(self, store: DeliveryStore) -> None:
        self._store = store
        self._writing, self._adding = threading.Lock(), threading.Lock()
        self._waiting: list[_Waiting] = []

    def write(self, result: AttemptResult) -> None:
        """Write one down; returns when it is committed.

        Raises StoreError: it is not.
        """
        mine = _Waiting(result)
        with self._adding:
            self._waiting.append(mine)
        with self._writing:
            if not mine.done:
                with self._adding:
                    batch, self._waiting = self._waiting, []
                self._write(batch)
        if mine.error is not None:
            raise mine.error

    def _write(self, batch: Sequence[_Waiting]) -> None:
        error: Exception | None = None
        try:
            self._store.write_results([one.result for one in batch])
        except StoreError as raised:  # each of them raises it
            error = raised
        except Exception as raised:  # noqa: BLE001 - one that cannot be written is one alone
            error = raised
            if len(batch) > 1:
                for one in batch:
                    self._write([one])
                return
        for one in batch:
            one.done, one.error = True, error


@dataclass
class _Waiting:
    """A result that waits for its commit."""

    result: AttemptResult
    done: bool = False
    error: Exception | None = None


class ReceiverQueue:
    """Sends what is due to one receiver, in order, by one thread at a time.

    A delivery is noted as sent only after its receiver took it: after a crash in between it is sent
    again with the same idempotency key, never lost. What was sent and could not be noted, because
    the database did not serve, is noted before anything else is sent.

    ``only_grows``: seconds of a clock that also counts while the process is stopped or the machine
    sleeps. What was read longer ago than :data:`_READ_SECONDS` is read again before it is sent:
    another process may have sent it.

    Attributes:
        sender: the receiver's; None: the configuration has no such receiver any more, and what
            waits for it is given up.
    """

    def __init__(
        self,
        name: str,
        store: DeliveryStore,
        results: Results,
        clock: Clock,
        only_grows: Callable[[], float] = boot_seconds,
    ) -> None:
        self.name, self._results, self._only_grows = name, results, only_grows
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
            if self._unwritten is not None:
                return self._write(self._unwritten)
            now = self._clock.now()
            if self._pause(now) > 0:
                return None
            read_at = self._only_grows()
            delivery = self._store.next_delivery(self.name, due_by or now, now)
            if delivery is None:
                return None
            earlier = self._store.conversation(delivery)
            # the last thing before it is sent: the process may have been stopped since it was read
            if self._only_grows() - read_at > _READ_SECONDS:
                return None
            self._unwritten = self._send(delivery, earlier)
            return self._write(self._unwritten)
        finally:
            self._sending.release()

    def idle_seconds(self, longest: float) -> float:
        """How long nothing will be due; at most ``longest``.

        Raises StoreError: the database does not serve.
        """
        now = self._clock.now()
        wait = self._pause(now)
        due_at = self._store.next_attempt_at(self.name)
        if due_at is None:
            return longest
        return min(longest, max(wait, (due_at - now).total_seconds(), 0.0))

    def _pause(self, now: datetime) -> float:
        until = self._paused_until
        seconds = 0.0 if until is None else (until - now).total_seconds()
        # more than there was: the clock went back
        return 0.0 if seconds > self._pause_seconds + 1.0 else seconds

    def _send(self, delivery: Delivery, earlier: Conversation | None) -> AttemptResult:
        try:
            if self.sender is None:
                text = f"the configuration has no receiver {self.name!r} any more"
                raise DeliveryError(text, permanent=True)
            conversation = self.sender.send(_message(delivery, earlier))
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
        key = f"{delivery.subject}/{delivery.receiver}"
        attempts, since = delivery.attempts + 1, delivery.planned_at
        again = None if failure.permanent else next_attempt(attempts, at, key, wish, since)
        return AttemptResult(delivery, at, failure.message, again)

    def _write(self, result: AttemptResult) -> Attempt:
        try:
            self._results.write(result)
        except StoreError:
            raise
        except Exception:  # noqa: BLE001 - what no database takes holds up no other delivery
            error = None if result.error is None else "its error cannot be stored"
            self._results.write(result._replace(error=error, conversation=None))
        self._unwritten = None
        if result.error is None:
            return _attempt(result.delivery, "sent", "")
        return _attempt(
            result.delivery, "retried" if result.next_attempt_at else "dead", result.error
        )


def _attempt(
    delivery: Delivery, result: Literal["sent", "retried", "dead"], reason: str
) -> Attempt:
    rule = str((delivery.payload or {}).get("rule", ""))
    return Attempt(delivery.receiver, result, reason, delivery.subject, delivery.event, rule)


def _message(delivery: Delivery, conversation: Conversation | None) -> Message:
    """What its receiver is sent."""
    return Message(
        delivery.kind,
        delivery.subject,
        delivery.event,
        delivery.number,
        delivery.reason,
        delivery.payload or {},
        conversation,
    )
