"""The page as JSON to an address of the operator's."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson
import requests
from urllib3.exceptions import HTTPError

from driftwatch import __version__
from driftwatch.errors import DeliveryError
from driftwatch.notify.delivery import refusal, url_secrets
from driftwatch.notify.guard import AddressRefused, session
from driftwatch.notify.report_message import is_report

CONNECT_SECONDS = 5.0
READ_SECONDS = 10.0
_REASON_BYTES = 2048

SIGNATURE_HEADER = "X-Driftwatch-Signature"
IDEMPOTENCY_HEADER = "Idempotency-Key"


@dataclass(frozen=True, slots=True)
class WebhookSender:
    """Posts the page; https or http only, no redirects, no proxies from the environment.

    Attributes:
        name: receiver name, the only thing of it that errors print.
        url: a secret.
        secret: key of the HMAC-SHA256 signature over the body, None = unsigned.
        allow_link_local: permit link-local and metadata addresses.
        connect_seconds: time-out of the connection.
        read_seconds: time-out of the answer.
    """

    name: str
    url: str = field(repr=False)
    secret: bytes | None = field(default=None, repr=False)
    allow_link_local: bool = False
    connect_seconds: float = CONNECT_SECONDS
    read_seconds: float = READ_SECONDS

    def send(self, page: Mapping[str, Any]) -> None:
        """Post the page once.

        Raises:
            DeliveryError: it was not taken.
        """
        failure = self._post(page)
        if failure is not None:
            # raised here, outside every handler: a library's error text holds the URL
            raise failure

    def _post(self, page: Mapping[str, Any]) -> DeliveryError | None:
        if not self.url.lower().startswith(("http://", "https://")):
            return DeliveryError(f"{self.name}: its URL is not http(s)", permanent=True)
        body = body_of(page)
        headers = {
            "Content-Type": "application/json",
            "User-Agent": f"driftwatch/{__version__}",
            IDEMPOTENCY_HEADER: idempotency_key(page),
        }
        if self.secret is not None:
            headers[SIGNATURE_HEADER] = signature(body, self.secret)
        try:
            with (
                session(allow_link_local=self.allow_link_local) as http,
                http.post(
                    self.url,
                    data=body,
                    headers=headers,
                    timeout=(self.connect_seconds, self.read_seconds),
                    allow_redirects=False,
                    stream=True,
                ) as answer,
            ):
                said = "" if answer.ok else answer.raw.read1(_REASON_BYTES).decode(errors="replace")
                return refusal(self.name, answer.status_code, answer.headers, said, self._secrets())
        except (requests.RequestException, HTTPError, OSError, ValueError) as error:
            return failed(self.name, error)

    def _secrets(self) -> tuple[str, ...]:
        key = () if self.secret is None else (self.secret.decode(errors="replace"),)
        return (*url_secrets(self.url), *key)


def failed(name: str, error: Exception) -> DeliveryError:
    """What an exception means for the page; its text is never used, it holds the URL."""
    if was_refused(error):
        text = f"{name}: its address is link-local or a metadata service; refused"
        return DeliveryError(text, permanent=True)
    if isinstance(error, requests.Timeout | TimeoutError):
        return DeliveryError(f"{name}: timed out", permanent=False)
    if isinstance(error, requests.exceptions.SSLError):
        return DeliveryError(f"{name}: its certificate was not accepted", permanent=False)
    if isinstance(error, requests.exceptions.InvalidURL | ValueError) and not isinstance(
        error, requests.ConnectionError
    ):
        return DeliveryError(f"{name}: its URL cannot be used", permanent=True)
    return DeliveryError(f"{name}: no connection", permanent=False)


def was_refused(error: BaseException) -> bool:
    """Whether a refused address is what a library's error wraps."""
    seen: list[BaseException] = []
    left: list[Any] = [error]
    while left:
        one = left.pop()
        if not isinstance(one, BaseException) or one in seen:
            continue
        if isinstance(one, AddressRefused):
            return True
        seen.append(one)
        left += [one.__cause__, one.__context__, getattr(one, "reason", None), *one.args]
    return False


def body_of(page: Mapping[str, Any]) -> bytes:
    """The bytes that are sent and signed: keys in page order, UTF-8."""
    return orjson.dumps(dict(page))


def idempotency_key(page: Mapping[str, Any]) -> str:
    """The same for every delivery of one event of one incident, or of one week's report."""
    if is_report(page):
        return f"report-{page['week']['name']}"
    return f"{page['incident']['id']}-{page['event']}"


def signature(body: bytes, secret: bytes) -> str:
    """Value of the signature header.

    >>> signature(b"{}", b"key")[:20]
    'sha256=a777724d943eb'
    """
    return "sha256=" + hmac.new(secret, body, hashlib.sha256).hexdigest()
