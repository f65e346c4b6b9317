"""One page that cannot be made holds up no other."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from driftwatch.notify.plan import Delivery
from driftwatch.service.outbox import deliver_due

NOW = datetime(2026, 11, 18, 2, 56, tzinfo=UTC)


def delivery(number: int, rule: str) -> Delivery:
    page = {"event": "firing", "rule": rule}
    fields: dict[str, Any] = dict.fromkeys(Delivery.__slots__)
    fields |= {"id": number, "incident_id": f"{number:012x}", "receiver": "desk", "attempts": 0}
    return Delivery(**fields | {"payload": page})


class Outbox:
    def __init__(self, *due: Delivery) -> None:
        self.due = due
        self.sent: list[int] = []
        self.failed: dict[int, tuple[str, datetime | None]] = {}

    def due_deliveries(self, now: datetime) -> list[Delivery]:
        return list(self.due)

    def mark_sent(self, delivery: Delivery, at: datetime) -> bool:
        self.sent.append(delivery.id)
        return True

    def mark_failed(
        self, delivery: Delivery, at: datetime, error: str, next_attempt_at: datetime | None
    ) -> bool:
        self.failed[delivery.id] = (error, next_attempt_at)
        return True


class Desk:
    name = "desk"

    def send(self, page: Mapping[str, Any]) -> None:
        if page["rule"] == "Broken":
            raise KeyError("reason_code")


def test_a_page_that_cannot_be_made_is_tried_again_and_the_next_one_is_sent() -> None:
    outbox = Outbox(delivery(1, "Broken"), delivery(2, "EngineStuck"))
    results = deliver_due(outbox, {"desk": Desk()}, NOW)
    assert [result.result for result in results] == ["retried", "sent"]
    assert outbox.sent == [2]
    message, again = outbox.failed[1]
    assert message == "not expected: KeyError: 'reason_code'"
    assert again is not None and again > NOW
