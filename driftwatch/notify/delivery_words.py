"""How far a delivery got, in words. Pure."""

from __future__ import annotations

from datetime import date

from driftwatch.incidents.delivery import Delivery
from driftwatch.notify.numbers import moment, plural

_LATE_SECONDS = 60.0


def status_text(one: Delivery, today: date | None) -> str:
    """``sent``, ``waits after 2 attempts: no answer``, ``given up after 18 attempts: ...``."""
    if one.status == "sent" and one.sent_at is not None:
        late = (one.sent_at - one.planned_at).total_seconds()
        return "sent" if late < _LATE_SECONDS else f"sent {moment(one.sent_at, today)}"
    tries = f" after {plural(one.attempts, 'attempt')}" if one.attempts else ""
    word = {"pending": "waits", "dead": "given up"}.get(one.status, one.status)
    why = f": {one.last_error}" if one.last_error else ""
    return f"{word}{tries}{why}"
