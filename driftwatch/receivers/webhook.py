"""Posts the page's JSON, or Alertmanager's webhook format, to an address of the operator's."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import orjson

from driftwatch.clock import SystemClock
from driftwatch.notify.page import Page
from driftwatch.receivers.alertmanager import alert_of, labels_of
from driftwatch.receivers.http import JSON, SECONDS, post
from driftwatch.receivers.sender import Configured, Message
from driftwatch.settings.receivers import WebhookReceiver

# over time and body: who checks it knows how old the message is
SIGNATURE_HEADER = "X-Driftwatch-Signature"
TIMESTAMP_HEADER = "X-Driftwatch-Timestamp"
IDEMPOTENCY_HEADER = "Idempotency-Key"
_NO_END = datetime(1, 1, 1, tzinfo=UTC)  # as Alertmanager writes it of what fires


@dataclass(frozen=True, slots=True)
class WebhookSender(Configured[WebhookReceiver]):
    """Posts the page, signed where there is a key."""

    seconds: float = SECONDS
    now: Callable[[], datetime] = SystemClock().now

    def send(self, message: Message) -> None:
        """Post the page once.

        Raises DeliveryError: it was not taken.
        """
        is_alert = self.settings.format == "alertmanager" and message.kind == "incident"
        document = notification(self.name, message.page) if is_alert else message.document
        body, secret = orjson.dumps(document), self.settings.read("secret")
        headers = {**JSON, IDEMPOTENCY_HEADER: message.idempotency_key}
        if secret is not None:
            at = str(int(self.now().timestamp()))
            headers[TIMESTAMP_HEADER] = at
            headers[SIGNATURE_HEADER] = signature(at.encode() + b"." + body, secret.encode())
        hidden = () if secret is None else (secret,)
        post(self.name, self.settings.read_url(), body, headers, hidden, self.seconds)


def notification(receiver: str, page: Page) -> dict[str, Any]:
    """What Alertmanager posts to a webhook, version 4, about one alert."""
    alert = alert_of(page, labels_of(page), page.times.resolved_at or _NO_END)
    status = "firing" if page.times.resolved_at is None else "resolved"
    return {
        "version": "4",
        "groupKey": page.key,
        "truncatedAlerts": 0,
        "status": status,
        "receiver": receiver,
        "groupLabels": {"alertname": page.alert},
        "commonLabels": alert["labels"],
        "commonAnnotations": alert["annotations"],
        "externalURL": alert["generatorURL"],
        "alerts": [{**alert, "status": status, "fingerprint": page.incident}],
    }


def signature(content: bytes, secret: bytes) -> str:
    """Value of a signature header.

    >>> signature(b"{}", b"key")[:20]
    'sha256=a777724d943eb'
    """
    return "sha256=" + hmac.new(secret, content, hashlib.sha256).hexdigest()
