"""The outbox loop: send what is due, note what came of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Literal, NamedTuple, Protocol

from driftwatch.errors import DeliveryError
from driftwatch.notify.delivery import Sender, next_attempt
from driftwatch.notify.plan import Delivery


class Outbox(Protocol):
    """What the loop needs of a store."""

    def due_deliveries(self, now: datetime) -> list[Delivery]:
        """Pending deliveries whose time has come."""

    def mark_sent(self, delivery: Delivery, at: datetime) -> bool:
        """A receiver took it."""

    def mark_failed(
        self, delivery: Delivery, at: datetime, error: str, next_attempt_at: datetime | None
    ) -> bool:
        """It did not; None = given up."""


class Attempt(NamedTuple):
    """One attempt to deliver a page."""

    receiver: str
    result: Literal["sent", "retried", "dead"]
    reason: str  # why it was not taken, empty where it was
    incident_id: str
    event: str  # firing, advised, verified or resolved; of a report ``report``
    rule: str


def deliver_due(
    outbox: Outbox,
    senders: Mapping[str, Sender],
    now: datetime,
    stopping: Callable[[], bool] = lambda: False,
) -> list[Attempt]:
    """Send everything that is due, each receiver on its own.

    A delivery is marked only after the receiver took it: after a crash in between it is sent
    again, never lost. Once ``stopping`` says so, nothing more is begun: each may take its whole
    time-out.

    Returns:
        what became of each attempt.
    """
    results = []
    for delivery in outbox.due_deliveries(now):
        if stopping():
            break
        page = delivery.payload
        about = (delivery.incident_id, str(page["event"]), str(page["rule"]))
        sender = senders.get(delivery.receiver)
        if sender is None:
            reason = f"the configuration has no receiver {delivery.receiver!r} any more"
            outbox.mark_failed(delivery, now, reason, None)
            results.append(Attempt(delivery.receiver, "dead", reason, *about))
            continue
        failure = None
        try:
            sender.send(page)
        except DeliveryError as error:
            failure = error
        except Exception as error:  # noqa: BLE001 - one page that cannot be made holds up no other
            message = f"not expected: {type(error).__name__}: {error}"
            failure = DeliveryError(message, permanent=False)
        if failure is None:
            outbox.mark_sent(delivery, now)
            results.append(Attempt(delivery.receiver, "sent", "", *about))
            continue
        again = (
            None
            if failure.permanent
            else next_attempt(
                delivery.attempts + 1,
                now,
                f"{delivery.incident_id}/{delivery.receiver}",
                failure.retry_after_seconds,
            )
        )
        outbox.mark_failed(delivery, now, failure.message, again)
        result: Literal["retried", "dead"] = "retried" if again else "dead"
        results.append(Attempt(delivery.receiver, result, failure.message, *about))
    return results
