"""The queue of one receiver: one delivery at a time, each noted with its own time.

To an Alertmanager, which forgets it, what fires is posted again besides, each interval. No outbox
row an interval: what is posted is what the store holds at that moment, so that a restart of theirs
or of ours needs no book.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any, Literal, NamedTuple

import structlog
from prometheus_client import Gauge

from driftwatch.clock import Clock
from driftwatch.errors import DeliveryError, StoreError
from driftwatch.incidents.delivery import AttemptResult, Delivery
from driftwatch.model import Incident
from driftwatch.notify.numbers import clean, cut, utc_text
from driftwatch.receivers.registry import FreshSender
from driftwatch.receivers.sender import Conversation, Message, Sender, next_attempt
from driftwatch.store.store import Store

_LONGEST_ERROR = 300
# a process that was stopped since it read a delivery is not to send it
_READ_SECONDS = 10.0


def boot_seconds() -> float:
    """A clock that only grows, also while the process is stopped or the machine sleeps."""
    clock = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
    return time.clock_gettime(clock)


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
        sender: the receiver's; None: the configuration has no such receiver any more, and what
            waits for it is given up.
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
        due_at = self._store.next_attempt_at(self.name)
        if due_at is None:
            return longest
        return min(longest, max(self._pause(now), (due_at - now).total_seconds(), 0.0))

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
            self._store.write_result(result)
        except StoreError:
            raise
        except Exception:  # noqa: BLE001 - what no database takes holds up no other delivery
            error = None if result.error is None else "its error cannot be stored"
            self._store.write_result(result._replace(error=error, conversation=None))
        self._unwritten = None
        if result.error is None:
            return _attempt(result.delivery, "sent", "")
        return _attempt(
            result.delivery, "retried" if result.next_attempt_at else "dead", result.error
        )


class Reposting:
    """Posts again what fires; ``up``: by receiver and Alertmanager, 1 if it took the last alerts.

    A thread at a time for a receiver.
    """

    def __init__(self, store: Store, up: Gauge) -> None:
        self._store, self._up = store, up
        self._log: Any = structlog.get_logger()
        self._refused: dict[tuple[str, str], str] = {}  # (receiver, host) → why, as last logged

    def post(self, name: str, sender: FreshSender) -> None:
        """Post what fires to one receiver now; that it was not taken is logged."""
        try:
            posted = self._firing(name)
            answers = sender.keep(posted.values())
            # what resolved while it was posted, or got other labels, ended there first, and fires
            # again now
            firing = self._firing(name)
            ended = [
                page
                for id_, page in posted.items()
                if id_ not in firing or firing[id_]["target"] != page["target"]
            ]
            if ended:
                sender.keep(ended, over=True)
        except Exception as error:  # noqa: BLE001 - what is new is sent, and this tried again
            self._log.warning("not posted again", receiver=name, reason=str(error) or repr(error))
            return
        for host, failure in answers.items():
            self._up.labels(name, host).set(failure is None)
            before = self._refused.pop((name, host), None)
            if failure is not None:
                self._refused[name, host] = reason = failure.message
                if reason != before:
                    self._log.warning(
                        "alertmanager refused", receiver=name, host=host, reason=reason
                    )
            elif before is not None:
                self._log.info("alertmanager answers again", receiver=name, host=host)

    def _firing(self, name: str) -> dict[str, Mapping[str, Any]]:
        """Incident id → page of what fires and is the receiver's to know.

        Also one that was given up: who did not take it for an hour may take it now.
        """
        notified = self._store.notified(or_given_up=True)
        return {
            one.id: page_of(one)
            for one in self._store.open_incidents().values()
            if one.state == "firing" and one.page is not None and (one.id, name) in notified
        }


def page_of(incident: Incident) -> dict[str, Any]:
    """The page as it is now, with who has the incident."""
    page = dict(incident.page or {})
    if incident.acknowledged_at is not None:
        page["acknowledgement"] = {
            "by": incident.acknowledged_by,
            "at": utc_text(incident.acknowledged_at),
            "comment": incident.acknowledged_comment or "",
        }
    return page


def _attempt(
    delivery: Delivery, result: Literal["sent", "retried", "dead"], reason: str
) -> Attempt:
    rule = str((delivery.payload or {}).get("rule", ""))
    return Attempt(delivery.receiver, result, reason, delivery.subject, delivery.event, rule)


def _message(delivery: Delivery, conversation: Conversation | None) -> Message:
    return Message(
        delivery.kind,
        delivery.subject,
        delivery.event,
        delivery.number,
        delivery.reason,
        delivery.payload or {},
        conversation,
    )
