"""The speed at equal load of one minute on one line, for people who watch. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from driftwatch.detect.speed.law import MIN_MINUTES
from driftwatch.notify.numbers import clean, percent

_ARMING = "arming: "
_UNBOUND = "; how small a loss would be seen is not known"
_COUNTED = re.compile(rf"(\d+) of {MIN_MINUTES} minutes")


def speed_line(row: Mapping[str, Any]) -> str:
    """``arming: 15 of 20 minutes, …, no verdict before 11:34 UTC``, or the speed and its pin.

    Args:
        row: an evidence row.
    """
    ratio = row.get("speed_at_equal_load_ratio")
    if ratio is None:
        why = row.get("speed_unknown_reason") or "unknown"
        if (earliest := earliest_of(why, row["end"])) is not None:
            why += f", no verdict before {earliest:%H:%M} UTC"
        return clean(why)
    against = row.get("speed_reference") or "its pin"
    if row.get("slower_at_equal_load"):
        return f"{percent(1.0 - ratio)} slower at equal load ({against})"
    least = row.get("speed_smallest_detectable_loss_ratio")
    bound = f"; a loss below {percent(least)} would not be seen" if least is not None else _UNBOUND
    return f"{ratio:.2f} of what is expected at this load ({against}){bound}"


def earliest_of(reason: str, at: datetime) -> datetime | None:
    """The time before which there can be no load model: a lower bound, as load is not foreseen.

    ``watch`` and ``explain`` print the same.

    Args:
        reason: why the speed is unknown, e.g. ``arming: 15 of 20 minutes``.
        at: end of the last minute.

    Returns:
        None where no minute is short.

    >>> earliest_of("arming: 15 of 20 minutes, load spread 1.2× of 1.5×", datetime(2026, 1, 5))
    datetime.datetime(2026, 1, 5, 0, 5)
    """
    counted = _COUNTED.search(reason)
    if _ARMING not in reason or counted is None:
        return None
    short = MIN_MINUTES - int(counted[1])
    return at + timedelta(minutes=short) if short > 0 else None
