"""What every sender shares: the protocol, an answer → a named error, when to try again. Pure.

The jitter of a retry comes from the delivery's key, not from chance.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Any, Protocol

from driftwatch.errors import DeliveryError
from driftwatch.notify.numbers import clean, cut
from driftwatch.settings.values import redact

# a receiver that asks for longer is tried again after this long
LONGEST_RETRY_AFTER_SECONDS = 3600.0

FIRST_DELAY_SECONDS = 5.0
LONGEST_DELAY_SECONDS = 300.0
JITTER_RATIO = 0.2
# 5 + 10 + ... + 160 s, then eleven times 300 s: 3,615 s, about an hour of trying
MOST_ATTEMPTS = 18

_TRANSIENT = frozenset((408, 425, 429))
_ANSWER_LIMIT = 120


class Sender(Protocol):
    """Takes a page to one receiver."""

    def send(self, page: Mapping[str, Any]) -> None:
        """Deliver the page, or say why not.

        Raises DeliveryError: the receiver did not take it; ``permanent`` where trying again with
        the same page cannot help, ``retry_after_seconds`` where the receiver named a time.
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
    """The parts of a receiver's URL that give it away: all of it, and what follows the host."""
    rest = url.split("://", 1)[-1]
    host, slash, path = rest.partition("/")
    parts = [url, rest, slash + path, path, host.rpartition("@")[0]]
    return tuple(part for part in parts if len(part) > 3)


def next_attempt(
    attempts: int, now: datetime, key: str, retry_after_seconds: float | None = None
) -> datetime | None:
    """When to try again after a failed attempt.

    The delay doubles from 5 s to 5 min and is spread by ±20 %, so that receivers that failed
    together are not asked together again. A ``Retry-After`` is waited out (at most an hour of
    it), never shortened.

    ``attempts``: attempts made, the failed one included; at least 1; ``now``: when the last one
    failed; ``key``: what to spread by, e.g. delivery id and receiver; ``retry_after_seconds``: what
    the receiver asked for; None, NaN or negative is no wish. Returns the time of the next attempt,
    or None when it is time to give up (after about an hour).
    """
    if attempts < 1:
        raise ValueError(f"attempts counts the failed one, so it is at least 1, not {attempts}")
    if attempts >= MOST_ATTEMPTS:
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
