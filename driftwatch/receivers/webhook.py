"""Posts the page's JSON to an address of the operator's."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime

import orjson

from driftwatch.clock import SystemClock
from driftwatch.receivers.http import JSON, LIMITS, Limits, post
from driftwatch.receivers.sender import Message
from driftwatch.settings.receivers import WebhookReceiver

# over time and body: who checks it knows how old the message is
SIGNATURE_HEADER = "X-Driftwatch-Signature"
TIMESTAMP_HEADER = "X-Driftwatch-Timestamp"
IDEMPOTENCY_HEADER = "Idempotency-Key"


@dataclass(frozen=True, slots=True)
class WebhookSender:
    """Posts the page; https or http only, no redirects, no proxies from the environment."""

    name: str  # receiver name, the only thing of it that errors print
    url: str = field(repr=False)  # a secret
    # key of the HMAC-SHA256 signatures, None = unsigned
    secret: bytes | None = field(default=None, repr=False)
    limits: Limits = LIMITS
    now: Callable[[], datetime] = SystemClock().now

    def send(self, message: Message) -> None:
        """Post the page once.

        Raises DeliveryError: it was not taken.
        """
        body, key = orjson.dumps(message.document), ""
        headers = {**JSON, IDEMPOTENCY_HEADER: message.idempotency_key}
        if self.secret is not None:
            at = str(int(self.now().timestamp()))
            headers[TIMESTAMP_HEADER] = at
            headers[SIGNATURE_HEADER] = signature(at.encode() + b"." + body, self.secret)
            key = self.secret.decode(errors="replace")
        post(self.name, self.url, body, headers, self.limits, (key,))


def signature(content: bytes, secret: bytes) -> str:
    """Value of a signature header.

    >>> signature(b"{}", b"key")[:20]
    'sha256=a777724d943eb'
    """
    return "sha256=" + hmac.new(secret, content, hashlib.sha256).hexdigest()


def sender_of(name: str, settings: WebhookReceiver) -> WebhookSender:
    """The sender of a receiver.

    Raises ConfigError: a secret cannot be read.
    """
    secret = settings.read("secret")
    return WebhookSender(
        name,
        settings.read_url(),
        secret=None if secret is None else secret.encode(),
    )
