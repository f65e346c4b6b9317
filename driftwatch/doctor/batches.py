"""How far each batch of a fleet is. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from driftwatch.doctor.checks import Check
from driftwatch.store.progress import BatchProgress, unwatched

_FIX = "start more driftwatch run, or read in their logs why ticks fail"


def batch_checks(progress: Sequence[BatchProgress], now: datetime) -> list[Check]:
    """A check of each batch, by number; none where there is one batch or no database."""
    if len(progress) < 2:
        return []
    silent = set(unwatched(progress, now))
    return [
        Check("MISSING", f"batch {one.number}", _silent(one, now), ("every rule",), _FIX)
        if one.number in silent
        else Check("ok", f"batch {one.number}", _far(one))
        for one in progress
    ]


def _silent(one: BatchProgress, now: datetime) -> str:
    if one.ticked_at is None:
        return "nobody has ticked it yet"
    return f"nobody has ticked it for {(now - one.ticked_at) // timedelta(minutes=1)} min"


def _far(one: BatchProgress) -> str:
    until = one.evaluated_until
    reached = "no minute yet" if until is None else f"evaluated until {until:%H:%M} UTC"
    seconds = "" if one.seconds is None else f", a tick takes {one.seconds:.2f} s"
    return f"{one.targets} targets, {reached}{seconds}"
