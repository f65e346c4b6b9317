"""Posts the page's JSON to an address of the operator's."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

import orjson

from driftwatch.clock import SystemClock
from driftwatch.receivers.http import JSON, SECONDS, post
from driftwatch.receivers.sender import Configured, Message
from driftwatch.settings.receivers import WebhookReceiver

# over time and body: who checks it knows how old the message is
SIGNATURE_HEADER = "X-Driftwatch-Signature"
TIMESTAMP_HEADER = "X-Driftwatch-Timestamp"
IDEMPOTENCY_HEADER = "Idempotency-Key"


@dataclass(frozen=True, slots=True)
class WebhookSender(Configured[WebhookReceiver]):
    """Posts the page, signed where there is a key."""

    seconds: float = SECONDS
    now: Callable[[], datetime] = SystemClock().now

    def send(self, message: Message) -> None:
        """Post the page once.

        Raises DeliveryError: it was not taken.
        """
        body, secret = orjson.dumps(message.document), self.settings.read("secret")
        headers = {**JSON, IDEMPOTENCY_HEADER: message.idempotency_key}
        if secret is not None:
            at = str(int(self.now().timestamp()))
            headers[TIMESTAMP_HEADER] = at
            headers[SIGNATURE_HEADER] = signature(at.encode() + b"." + body, secret.encode())
        hidden = () if secret is None else (secret,)
        post(self.name, self.settings.read_url(), body, headers, hidden, self.seconds)


def signature(content: bytes, secret: bytes) -> str:
    """Value of a signature header.

    >>> signature(b"{}", b"key")[:20]
    'sha256=a777724d943eb'
    """
    return "sha256=" + hmac.new(secret, content, hashlib.sha256).hexdigest()
