"""What the database of ``driftwatch run`` says: does it tick, do its deliveries arrive, is speed
judged?
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta

from driftwatch.doctor.checks import Check
from driftwatch.model import TargetKey
from driftwatch.notify.minute_line import speed_line
from driftwatch.numbers import plural
from driftwatch.store.progress import BatchProgress, unwatched
from driftwatch.store.store import Store

_TICKS = "start more driftwatch run, or read in their logs why ticks fail"
_DELIVERIES = "driftwatch doctor --send-test {name}; what it missed is in driftwatch incidents"
# given-up deliveries of so long count
_DEAD_FOR = timedelta(days=7)
_MOMENT = timedelta(minutes=10)
# a minute without a verdict for one of these waits for a baseline; other reasons pass by themselves
_WAITS = frozenset(("learning", "no_baseline", "other_server"))


def speed_waits(store: Store) -> Mapping[TargetKey, str]:
    """Target → what its speed waits for, as its newest minute says; "" where it is judged.

    ``explain`` and the web print the same text. Raises StoreError: the database does not serve.
    """
    reach = store.minutes_reach()
    if reach is None:
        return {}
    last = store.past(reach[1] - _MOMENT, reach[1] + _MOMENT)
    newest = last.sort("end").group_by("instance", "engine").last()
    return {
        TargetKey(row["instance"], row["engine"]): speed_line(row)
        if row["speed_unknown_code"] in _WAITS
        else ""
        for row in newest.iter_rows(named=True)
    }


def database_checks(store: Store, now: datetime) -> Iterator[Check]:
    """A check of each batch where there are several, and of each receiver that missed something.

    Raises StoreError: the database does not serve.
    """
    batches = store.batches()
    silent = set(unwatched(batches, now)) if len(batches) > 1 else set()
    for one in batches if len(batches) > 1 else ():
        if one.number in silent:
            yield Check(
                status="MISSING",
                where=f"batch {one.number}",
                what=_silent(one, now),
                disables=("every rule",),
                fix=_TICKS,
            )
        else:
            yield Check(status="ok", where=f"batch {one.number}", what=_reached(one))
    for name, waiting in store.backlog(now - _DEAD_FOR).items():
        if waiting.dead:
            yield Check(
                status="WARNING",
                where=name,
                what=f"{plural(waiting.dead, 'message')} given up in 7 days",
                disables=("pages to this receiver",),
                fix=_DELIVERIES.format(name=name),
            )


def _silent(one: BatchProgress, now: datetime) -> str:
    if one.ticked_at is None:
        return "nobody has ticked it yet"
    return f"nobody has ticked it for {(now - one.ticked_at) // timedelta(minutes=1)} min"


def _reached(one: BatchProgress) -> str:
    until = one.evaluated_until
    reached = "no minute yet" if until is None else f"evaluated until {until:%H:%M} UTC"
    seconds = "" if one.seconds is None else f", a tick takes {one.seconds:.2f} s"
    return f"{one.targets} targets, {reached}{seconds}"
