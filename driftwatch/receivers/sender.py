"""What every sender shares: the protocol, an answer → a named error, when to try again. Pure.

The jitter of a retry comes from the delivery's key, not from chance.
"""

from __future__ import annotations

import hashlib
from base64 import b64encode
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Any, Protocol
from urllib.parse import unquote

from driftwatch.errors import DeliveryError
from driftwatch.incidents.delivery import Kind, MessageEvent
from driftwatch.notify.page import Page
from driftwatch.numbers import clean, cut
from driftwatch.settings.values import redact

# a receiver that asks for longer is tried again after this long
LONGEST_RETRY_AFTER_SECONDS = 3600.0
FIRST_DELAY_SECONDS, LONGEST_DELAY_SECONDS, JITTER_RATIO = 5.0, 300.0, 0.2
# what no receiver took for a day is given up
GIVEN_UP_AFTER = timedelta(hours=24)

_TRANSIENT = frozenset((408, 425, 429))
_ANSWER_LIMIT = 120


# what a receiver calls its message about an incident: its own names and texts
Conversation = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Message:
    """What one receiver is to be told."""

    kind: Kind  # what it is about
    subject: str  # incident id or week
    event: MessageEvent
    number: int  # 0 the first of this event, 1 its first repeat
    payload: Page | Mapping[str, Any]  # the page, or the report as JSON
    # what this receiver returned for the incident's last message; None before, and of other kinds
    conversation: Conversation | None = None

    @property
    def page(self) -> Page:
        """The page of an incident's message.

        Raises DeliveryError: the message has none, for an earlier version wrote it.
        """
        if not isinstance(self.payload, Page):
            raise DeliveryError("an earlier version wrote this page", permanent=True)
        return self.payload

    @property
    def document(self) -> Mapping[str, Any]:
        """The page or report as JSON values."""
        return self.payload.document() if isinstance(self.payload, Page) else self.payload

    @property
    def report(self) -> Mapping[str, Any]:
        """The weekly report of a report's message."""
        return {} if isinstance(self.payload, Page) else self.payload

    @property
    def idempotency_key(self) -> str:
        """The same for every attempt at this message, another for every other message."""
        again = f"-{self.number}" if self.number else ""
        return f"{self.subject}-{self.event}{again}"


def message_of(payload: Page | Mapping[str, Any]) -> Message:
    """The first message of a page, or of a report: what it says of itself."""
    if not isinstance(payload, Page):
        return Message("report", payload["week"]["name"], "report", 0, payload)
    return Message("incident", payload.incident, payload.event, 0, payload)


class Sender(Protocol):
    """Takes messages to one receiver."""

    def send(self, message: Message) -> Conversation | None:
        """Deliver the message, or say why not.

        Returns what later messages about the same incident need to know of this one; None keeps
        what is known.

        Raises DeliveryError: the receiver did not take it; ``permanent`` where trying again with
        the same message cannot help, ``retry_after_seconds`` where the receiver named a time.
        """


def refusal(
    receiver: str, status: int, headers: Mapping[str, str], body: str, secrets: Iterable[str]
) -> DeliveryError | None:
    """What an HTTP answer means for the page; None where it was taken (2xx).

    ``headers``: names in any case; ``body``: of the answer, or its beginning: the receiver's own
    reason; ``secrets``: texts that must not be in an error (URL, its path, a key).
    """
    if 200 <= status < 300:
        return None
    if 300 <= status < 400:
        text = f"{receiver} answered {status}: redirects are not followed"
        return DeliveryError(text, permanent=True)
    answer = cut(clean(redact(body.strip(), secrets)), _ANSWER_LIMIT)
    text = f"{receiver} answered {status}" + (f": {answer}" if answer else "")
    transient = status in _TRANSIENT or status >= 500
    wish = retry_after(headers) if transient else None
    return DeliveryError(text, permanent=not transient, retry_after_seconds=wish)


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds of a ``Retry-After`` header, None without a usable one.

    A date counts from the answer's own ``Date``, not from this machine's clock.

    >>> retry_after({"retry-after": "30"}), retry_after({"Retry-After": "soon"})
    (30.0, None)
    """
    fields = {name.lower(): text for name, text in headers.items()}
    text = fields.get("retry-after", "").strip()
    if text.isascii() and text.isdigit():
        return min(float(text[:9]), LONGEST_RETRY_AFTER_SECONDS)
    try:
        wait = parsedate_to_datetime(text) - parsedate_to_datetime(fields.get("date", ""))
    except (ValueError, TypeError):
        return None
    return min(max(0.0, wait.total_seconds()), LONGEST_RETRY_AFTER_SECONDS)


def url_secrets(url: str) -> tuple[str, ...]:
    """The parts of a receiver's URL that give it away: all of it, what follows the host, and a
    login in each way in which it is written.
    """
    rest = url.split("://", 1)[-1]
    host, slash, path = rest.partition("/")
    login = host.rpartition("@")[0]
    parts = [url, rest, slash + path, path, login, *login_secrets(unquote(login))]
    return tuple(part for part in parts if len(part) > 3)


def login_secrets(login: str) -> tuple[str, str, str]:
    """``user:password``, the password, and how a header of HTTP has them."""
    return login, login.partition(":")[2], b64encode(login.encode()).decode()


def next_attempt(
    attempts: int,
    now: datetime,
    key: str,
    planned_at: datetime,
    retry_after_seconds: float | None = None,
) -> datetime | None:
    """When to try again after a failed attempt; None: it is given up, a day after it was planned.

    The delay doubles from 5 s to 5 min and is spread by ±20 %, so that receivers that failed
    together are not asked together again. A ``Retry-After`` is waited out (at most an hour of
    it), never shortened.

    ``attempts``: attempts made, the failed one included; ``now``: when that failed; ``key``: what
    to spread by; ``planned_at``: from when it could be sent; ``retry_after_seconds``: what the
    receiver asked for, at least 0.
    """
    if now - planned_at >= GIVEN_UP_AFTER:
        return None
    digest = hashlib.sha256(f"{key}#{attempts}".encode()).digest()
    share = int.from_bytes(digest[:8], "big") / 2.0**64
    delay = min(FIRST_DELAY_SECONDS * 2.0 ** min(attempts - 1, 16), LONGEST_DELAY_SECONDS)
    delay *= 1.0 + JITTER_RATIO * (2.0 * share - 1.0)
    wish = min(retry_after_seconds or 0.0, LONGEST_RETRY_AFTER_SECONDS)
    return now + timedelta(seconds=max(delay, wish))
