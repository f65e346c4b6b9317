"""The outbox loop: send what is due, note what came of it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Protocol

from driftwatch.errors import DeliveryError
from driftwatch.notify.backoff import next_attempt
from driftwatch.notify.delivery import Sender
from driftwatch.notify.plan import Delivery


class Outbox(Protocol):
    """What the loop needs of a store."""

    def due_deliveries(self, now: datetime) -> list[Delivery]:
        """Pending deliveries whose time has come."""

    def mark_sent(self, delivery_id: int, at: datetime) -> bool:
        """A receiver took it."""

    def mark_failed(
        self, delivery_id: int, at: datetime, error: str, next_attempt_at: datetime | None
    ) -> bool:
        """It did not; None = given up."""


def deliver_due(
    outbox: Outbox, senders: Mapping[str, Sender], now: datetime
) -> list[tuple[str, str, str]]:
    """Send everything that is due, each receiver on its own.

    A delivery is marked only after the receiver took it: after a crash in between it is sent
    again, never lost.

    Returns:
        (receiver, result, reason) per attempt; result is sent, retried or dead.
    """
    results = []
    for delivery in outbox.due_deliveries(now):
        sender = senders.get(delivery.receiver)
        if sender is None:
            reason = f"the configuration has no receiver {delivery.receiver!r} any more"
            outbox.mark_failed(delivery.id, now, reason, None)
            results.append((delivery.receiver, "dead", reason))
            continue
        try:
            sender.send(delivery.payload)
        except DeliveryError as error:
            again = (
                None
                if error.permanent
                else next_attempt(
                    delivery.attempts + 1,
                    now,
                    f"{delivery.incident_id}/{delivery.receiver}",
                    error.retry_after_seconds,
                )
            )
            outbox.mark_failed(delivery.id, now, error.message, again)
            results.append((delivery.receiver, "retried" if again else "dead", error.message))
        else:
            outbox.mark_sent(delivery.id, now)
            results.append((delivery.receiver, "sent", ""))
    return results
