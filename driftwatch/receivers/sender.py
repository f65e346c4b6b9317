"""What every sender shares: the protocol, an answer → a named error, when to try again. Pure.

The jitter of a retry comes from the delivery's key, not from chance.
"""

from __future__ import annotations

import hashlib
import math
from base64 import b64encode
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Any, Protocol
from urllib.parse import unquote

from driftwatch.errors import DeliveryError
from driftwatch.incidents.delivery import Kind, MessageEvent, Reason
from driftwatch.notify.numbers import clean, cut
from driftwatch.settings.values import redact

# a receiver that asks for longer is tried again after this long
LONGEST_RETRY_AFTER_SECONDS = 3600.0

FIRST_DELAY_SECONDS = 5.0
LONGEST_DELAY_SECONDS = 300.0
JITTER_RATIO = 0.2
# 5 + 10 + ... + 160 s, then eleven times 300 s: 3,615 s, about an hour of trying
MOST_ATTEMPTS = 18
# so long after it was planned, so many attempts are enough
LONGEST_WAIT, FEWEST_ATTEMPTS = timedelta(hours=1), 3

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
    reason: Reason  # why it is sent
    payload: Mapping[str, Any]  # the page or report as JSON
    # what this receiver returned for the incident's last message; None before, and of other kinds
    conversation: Conversation | None = None

    @property
    def idempotency_key(self) -> str:
        """The same for every attempt at this message, another for every other message."""
        again = f"-{self.number}" if self.number else ""
        return f"{self.subject}-{self.event}{again}"


def message_of(payload: Mapping[str, Any]) -> Message:
    """The first message of a page, or of a report: what it says of itself."""
    event = payload["event"]
    if event == "report":
        return Message("report", payload["week"]["name"], "report", 0, "scheduled", payload)
    reason: Reason = "first" if event == "firing" else event
    return Message("incident", payload["incident"]["id"], event, 0, reason, payload)


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

    ``receiver``: name from the configuration; ``status``: HTTP status; ``headers``: of the answer;
    names in any case; ``body``: of the answer, or its beginning: the receiver's own reason;
    ``secrets``: texts that must not be in an error (URL, its path, a key).
    """
    if 200 <= status < 300:
        return None
    if 300 <= status < 400:
        text = f"{receiver} answered {status}: redirects are not followed"
        return DeliveryError(text, permanent=True)
    answer = cut(clean(redact(body.strip(), secrets)), _ANSWER_LIMIT)
    text = f"{receiver} answered {status}" + (f": {answer}" if answer else "")
    transient = status in _TRANSIENT or status >= 500
    return DeliveryError(
        text,
        permanent=not transient,
        retry_after_seconds=retry_after(headers) if transient else None,
    )


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
    retry_after_seconds: float | None = None,
    planned_at: datetime | None = None,
) -> datetime | None:
    """When to try again after a failed attempt.

    The delay doubles from 5 s to 5 min and is spread by ±20 %, so that receivers that failed
    together are not asked together again. A ``Retry-After`` is waited out (at most an hour of
    it), never shortened.

    ``attempts``: attempts made, the failed one included; at least 1; ``now``: when the last one
    failed; ``key``: what to spread by, e.g. delivery id and receiver; ``retry_after_seconds``: what
    the receiver asked for; None, NaN or negative is no wish; ``planned_at``: from when it could be
    sent. Returns the time of the next attempt, or None when it is time to give up: after about an
    hour, also where a long queue or ``Retry-After`` leaves room for few attempts.
    """
    if attempts < 1:
        raise ValueError(f"attempts counts the failed one, so it is at least 1, not {attempts}")
    if attempts >= MOST_ATTEMPTS:
        return None
    waited = planned_at is not None and now - planned_at >= LONGEST_WAIT
    if waited and attempts >= FEWEST_ATTEMPTS:
        return None
    doublings = min(attempts - 1, 16)
    delay = min(FIRST_DELAY_SECONDS * 2.0**doublings, LONGEST_DELAY_SECONDS)
    delay *= 1.0 + JITTER_RATIO * (2.0 * _share(key, attempts) - 1.0)
    if retry_after_seconds is not None and not math.isnan(retry_after_seconds):
        delay = max(delay, min(retry_after_seconds, LONGEST_RETRY_AFTER_SECONDS))
    return now + timedelta(seconds=delay)


def _share(key: str, attempts: int) -> float:
    digest = hashlib.sha256(f"{key}#{attempts}".encode()).digest()
    return int.from_bytes(digest[:8], "big") / 2.0**64
