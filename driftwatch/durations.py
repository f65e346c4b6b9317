"""Durations as Prometheus writes them: ``90s``, ``5m``, ``1h30m``."""

from __future__ import annotations

import re

_UNITS = {"y": 31_536_000, "w": 604_800, "d": 86_400, "h": 3_600, "m": 60, "s": 1, "ms": 0.001}
PATTERN = "".join(rf"(?:([0-9]{{1,9}}){unit})?" for unit in _UNITS)
_DURATION = re.compile(PATTERN)


def parse_duration(text: str) -> float:
    """Seconds of a duration; units from large to small, each at most once, ``0`` alone is allowed.

    >>> parse_duration("1h30m"), parse_duration("250ms"), parse_duration("0")
    (5400.0, 0.25, 0.0)

    Raises:
        ValueError: with what is wrong and how to write it.
    """
    if text == "0":
        return 0.0
    if text.startswith("-"):
        raise ValueError(f"a duration cannot be negative: {text}")
    match = _DURATION.fullmatch(text)
    if not text or match is None:
        raise ValueError(f"{text or 'nothing'} is not a duration; write 90s, 5m or 1h30m")
    parts = zip(match.groups(), _UNITS.values(), strict=True)
    return float(sum(int(number) * seconds for number, seconds in parts if number))
