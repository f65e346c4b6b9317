"""The page as JSON to an address of the operator's."""

from __future__ import annotations

import hashlib
import hmac
import logging
import time
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
from driftwatch.notify.page_values import public

CONNECT_SECONDS = 5.0
READ_SECONDS = 10.0
_REASON_BYTES = 2048
# urllib3 logs addresses, and those of receivers are secrets
logging.getLogger("urllib3.connectionpool").disabled = True

SIGNATURE_HEADER = "X-Driftwatch-Signature"
IDEMPOTENCY_HEADER = "Idempotency-Key"


@dataclass(frozen=True, slots=True)
class WebhookSender:
    """Posts the page; https or http only, no redirects, no proxies from the environment."""

    name: str  # receiver name, the only thing of it that errors print
    url: str = field(repr=False)  # a secret
    # key of the HMAC-SHA256 signature over the body, None = unsigned
    secret: bytes | None = field(default=None, repr=False)
    allow_link_local: bool = False  # permit link-local and metadata addresses
    connect_seconds: float = CONNECT_SECONDS  # time-out of the connection
    read_seconds: float = READ_SECONDS  # time-out of the answer

    def send(self, page: Mapping[str, Any]) -> None:
        """Post the page once.

        Raises DeliveryError: it was not taken.
        """
        failure = self._post(page)
        if failure is not None:
            # raised here, outside every handler: a library's error text holds the URL
            raise failure

    def _post(self, page: Mapping[str, Any]) -> DeliveryError | None:
        body = body_of(page)
        headers = {
            "Content-Type": "application/json",
            "User-Agent": f"driftwatch/{__version__}",
            IDEMPOTENCY_HEADER: idempotency_key(page),
        }
        key: tuple[str, ...] = ()
        if self.secret is not None:
            headers[SIGNATURE_HEADER] = signature(body, self.secret)
            key = (self.secret.decode(errors="replace"),)
        limits = (self.connect_seconds, self.read_seconds)
        answer = post(self.name, self.url, body, headers, limits, self.allow_link_local, key)
        return answer if isinstance(answer, DeliveryError) else None


def post(
    name: str,
    url: str,
    body: bytes,
    headers: Mapping[str, str],
    limits: tuple[float, float],
    allow_link_local: bool,
    secrets: tuple[str, ...] = (),
) -> str | DeliveryError:
    """Post once: no redirect, no proxy, guarded addresses, at most two read time-outs in all.

    ``name``: of the receiver; ``limits``: seconds for the connection and for each read;
    ``secrets``: what no error may hold besides the ``url``. Returns the beginning of the answer's
    text where the page was taken.
    """
    if not url.lower().startswith(("http://", "https://")):
        return DeliveryError(f"{name}: its URL is not http(s)", permanent=True)
    try:
        with (
            session(allow_link_local=allow_link_local) as http,
            http.post(
                url,
                data=body,
                headers=dict(headers),
                timeout=limits,
                allow_redirects=False,
                stream=True,
            ) as answer,
        ):
            deadline, text = time.monotonic() + limits[1], b""
            while len(text) < _REASON_BYTES and (part := answer.raw.read1(_REASON_BYTES)):
                text += part
                if time.monotonic() > deadline:
                    raise TimeoutError
            begins = text.decode(errors="replace")
            hidden = (*url_secrets(url), *secrets)
            failure = refusal(name, answer.status_code, answer.headers, begins, hidden)
            return begins if failure is None else failure
    except (requests.RequestException, HTTPError, OSError, ValueError) as error:
        return _failed(name, error)


def _failed(name: str, error: Exception) -> DeliveryError:
    """What an exception means for the page; its text is never used, it holds the URL."""
    if _is_refused(error):
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


def _is_refused(error: BaseException) -> bool:
    """Whether a refused address is what a library's error wraps."""
    visited: list[BaseException] = []
    remaining: list[Any] = [error]
    while remaining:
        one = remaining.pop()
        if not isinstance(one, BaseException) or one in visited:
            continue
        if isinstance(one, AddressRefused):
            return True
        visited.append(one)
        remaining += [one.__cause__, one.__context__, getattr(one, "reason", None), *one.args]
    return False


def body_of(page: Mapping[str, Any]) -> bytes:
    """The bytes that are sent and signed: keys in page order, UTF-8."""
    return orjson.dumps(public(page))


def is_report(payload: Mapping[str, Any]) -> bool:
    """Whether what is to be sent is a weekly report and no page."""
    return payload.get("event") == "report"


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
