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
from driftwatch.notify.page_values import public
from driftwatch.receivers.alertmanager import (
    conversation_of,
    labels_of,
    left_behind,
    webhook_document,
)
from driftwatch.receivers.http import JSON, LIMITS, Limits, post
from driftwatch.receivers.sender import Conversation, Message
from driftwatch.settings.receivers import WebhookReceiver

# over time and body: who checks it knows how old the message is
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

    def send(self, message: Message) -> Conversation | None:
        """Post the page once; in Alertmanager's format the alert's labels are returned.

        There an alert that the incident had under other labels is ended first.
        Raises DeliveryError: it was not taken.
        """
        page, key = message.payload, message.idempotency_key
        if not self.as_alertmanager:
            self._post(public(page), key)
            return None
        labels = labels_of(page)
        if (before := left_behind(message.conversation, labels)) is not None:
            self._post(webhook_document(page, self.name, before), f"{key}-labels")
        self._post(webhook_document(page, self.name), key)
        return conversation_of(labels)

    def _post(self, document: Mapping[str, Any], idempotency_key: str) -> None:
        body, key = orjson.dumps(document), ""
        headers = {**JSON, IDEMPOTENCY_HEADER: idempotency_key}
        if self.secret is not None:
            at = str(int(self.now().timestamp()))
            headers[TIMESTAMP_HEADER] = at
            headers[TIMED_SIGNATURE_HEADER] = signature(at.encode() + b"." + body, self.secret)
            headers[SIGNATURE_HEADER] = signature(body, self.secret)
            key = self.secret.decode(errors="replace")
        post(self.name, self.url, body, headers, self.limits, self.allow_link_local, (key,))


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
        allow_link_local=settings.allow_link_local,
        as_alertmanager=settings.format == "alertmanager",
    )
