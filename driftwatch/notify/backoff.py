"""When to try a delivery again. Pure: the jitter comes from the delivery's key, not from chance."""

from __future__ import annotations

import hashlib
import math
from datetime import datetime, timedelta

FIRST_DELAY_SECONDS = 5.0
LONGEST_DELAY_SECONDS = 300.0
LONGEST_RETRY_AFTER_SECONDS = 3600.0
JITTER_RATIO = 0.2
# 5 + 10 + ... + 160 s, then eleven times 300 s: 3,615 s, about an hour of trying
MOST_ATTEMPTS = 18


def next_attempt(
    attempts: int, now: datetime, key: str, retry_after_seconds: float | None = None
) -> datetime | None:
    """When to try again after a failed attempt.

    The delay doubles from 5 s to 5 min and is spread by ±20 %, so that receivers that failed
    together are not asked together again. A ``Retry-After`` is waited out (at most an hour of
    it), never shortened.

    Args:
        attempts: attempts made, the failed one included; at least 1.
        now: when the last one failed.
        key: what to spread by, e.g. delivery id and receiver.
        retry_after_seconds: what the receiver asked for; None, NaN or negative is no wish.

    Returns:
        The time of the next attempt, or None when it is time to give up (after about an hour).
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
