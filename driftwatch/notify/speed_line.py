"""The speed at equal load of one minute on one line, for people who watch. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime, timedelta
from math import ceil
from typing import Any

from driftwatch.detect.speed.law import MIN_MINUTES, MIN_SCRAPES
from driftwatch.notify.numbers import clean, percent

_ARMING = "arming: "
_UNBOUND = "; how small a loss would be seen is not known"
_COUNTED = re.compile(r"(\d+) of (\d+) (scrapes|minutes)")


def speed_line(row: Mapping[str, Any], earliest: datetime | None = None) -> str:
    """``arming: 37 of 240 scrapes, …, no verdict before 11:34 UTC``, or the speed and its pin.

    Args:
        row: an evidence row.
        earliest: before this there can be no verdict; None = not known.
    """
    ratio = row.get("speed_at_equal_load_ratio")
    if ratio is None:
        why = row.get("speed_unknown_reason") or "unknown"
        if earliest is not None and _ARMING in why and row["end"] < earliest:
            why += f", no verdict before {earliest:%H:%M} UTC"
        return clean(why)
    against = row.get("speed_reference") or "its pin"
    if row.get("slower_at_equal_load"):
        return f"{percent(1.0 - ratio)} slower at equal load ({against})"
    least = row.get("speed_smallest_detectable_loss_ratio")
    bound = f"; a loss below {percent(least)} would not be seen" if least is not None else _UNBOUND
    return f"{ratio:.2f} of what is expected at this load ({against}){bound}"


def earliest_of(reason: str, scrapes: float, seconds: float, at: datetime) -> datetime | None:
    """As :func:`earliest_law`, from what the reason counts and the pace of a window.

    Args:
        reason: why the speed is unknown, e.g. ``arming: 37 of 240 scrapes, 3 of 20 minutes``.
        scrapes: usable ones of the window.
        seconds: of the window.
        at: end of the window.

    >>> earliest_of("arming: 180 of 240 scrapes, 15 of 20 minutes", 40, 600, datetime(2026, 1, 5))
    datetime.datetime(2026, 1, 5, 0, 15)
    """
    if _ARMING not in reason or seconds <= 0:
        return None
    short = {word: (int(n), int(of)) for n, of, word in _COUNTED.findall(reason)}
    seen, minutes = (
        short.get("scrapes", (MIN_SCRAPES,) * 2),
        short.get("minutes", (MIN_MINUTES,) * 2),
    )
    return earliest_law(seen[0], minutes[0], scrapes / seconds * 60, at)


def earliest_law(
    scrapes: float, minutes: int, scrapes_per_minute: float, at: datetime
) -> datetime | None:
    """The time before which there can be no load model: a lower bound, as load is not foreseen.

    Args:
        scrapes: usable ones so far.
        minutes: minutes with one so far.
        scrapes_per_minute: the pace; 0 = none comes.
        at: end of the last minute.

    Returns:
        None where nothing is short, or nothing comes.
    """
    if scrapes_per_minute <= 0:
        return None
    short = max((MIN_SCRAPES - scrapes) / scrapes_per_minute, float(MIN_MINUTES - minutes))
    return at + timedelta(minutes=ceil(short)) if short > 0 else None
