"""Posts the page to an address of the operator's: as driftwatch's JSON, or as Alertmanager does."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import orjson

from driftwatch.clock import SystemClock
from driftwatch.errors import DeliveryError
from driftwatch.notify.page_values import public
from driftwatch.receivers.alerts import webhook_document
from driftwatch.receivers.http import LIMITS, Limits, post
from driftwatch.receivers.sender import Message
from driftwatch.settings.receivers.webhook import WebhookReceiver

# over time and body: who checks it knows how old the message is. The one over the body alone stays
# for receivers of release 0.6, which would refuse every page without it.
TIMED_SIGNATURE_HEADER = "X-Driftwatch-Timed-Signature"
TIMESTAMP_HEADER = "X-Driftwatch-Timestamp"
SIGNATURE_HEADER = "X-Driftwatch-Signature"
IDEMPOTENCY_HEADER = "Idempotency-Key"


@dataclass(frozen=True, slots=True)
class WebhookSender:
    """Posts the page; https or http only, no redirects, no proxies from the environment."""

    name: str  # receiver name, the only thing of it that errors print
    url: str = field(repr=False)  # a secret
    # key of the HMAC-SHA256 signatures, None = unsigned
    secret: bytes | None = field(default=None, repr=False)
    allow_link_local: bool = False  # permit link-local and metadata addresses
    limits: Limits = LIMITS
    as_alertmanager: bool = False  # in the format of Alertmanager's webhooks
    now: Callable[[], datetime] = SystemClock().now

    def send(self, message: Message) -> None:
        """Post the page once.

        Raises DeliveryError: it was not taken.
        """
        failure = self._post(message)
        if failure is not None:
            # raised here, outside every handler: a library's error text holds the URL
            raise failure

    def _post(self, message: Message) -> DeliveryError | None:
        page = message.payload
        document = webhook_document(page, self.name) if self.as_alertmanager else public(page)
        body = orjson.dumps(document)
        headers = {
            "Content-Type": "application/json",
            IDEMPOTENCY_HEADER: message.idempotency_key,
        }
        key: tuple[str, ...] = ()
        if self.secret is not None:
            at = str(int(self.now().timestamp()))
            headers[TIMESTAMP_HEADER] = at
            headers[TIMED_SIGNATURE_HEADER] = signature(at.encode() + b"." + body, self.secret)
            headers[SIGNATURE_HEADER] = signature(body, self.secret)
            key = (self.secret.decode(errors="replace"),)
        answer = post(self.name, self.url, body, headers, self.limits, self.allow_link_local, key)
        return answer if isinstance(answer, DeliveryError) else None


def is_report(payload: Mapping[str, Any]) -> bool:
    """Whether what is to be sent is a weekly report and no page."""
    return payload.get("event") == "report"


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
    secret = settings.read_secret()
    return WebhookSender(
        name,
        settings.read_url(),
        secret=None if secret is None else secret.encode(),
        allow_link_local=settings.allow_link_local,
        as_alertmanager=settings.format == "alertmanager",
    )
