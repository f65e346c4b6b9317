"""The minutes before and after a change, and their verdict at one time. Pure."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta

import polars as pl

from driftwatch.errors import NoVerdict
from driftwatch.model import Fingerprint, Slo, Target, TargetKey
from driftwatch.verify.changes import changed, running, verification_id
from driftwatch.verify.matching import QUEUE_MINUTES, comparable, with_traffic
from driftwatch.verify.verdict import verified
from driftwatch.verify.verification import Change, Verification

# A day holds every load and every mix of requests.
LOOK_BACK = timedelta(hours=24)
# After a start: the first minutes compile, capture graphs and fill an empty prefix cache.
WARM_UP = timedelta(minutes=2)
# Minutes before a span of which its first minutes' load is the mean.
BEFORE_SPAN = timedelta(minutes=QUEUE_MINUTES)

# (target, since, until) → :data:`driftwatch.signals.minutes.MINUTE_SCHEMA`, of the minutes that end
# in (since, until], by end
Minutes = Callable[[TargetKey, datetime, datetime], pl.DataFrame]
Span = tuple[datetime, datetime]


def around_change(
    minutes: pl.DataFrame, at: datetime, until: datetime
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Comparable minutes before a change, back to the one before it, and after its warm-up.

    ``minutes``: :data:`driftwatch.signals.minutes.MINUTE_SCHEMA`, of the target, by end.
    """
    rows = with_traffic(minutes)
    before = rows.filter(pl.col("end") > at - LOOK_BACK, pl.col("end") < at)
    flags = (pl.col(name).fill_null(False) for name in ("configuration_changed", "release_changed"))
    last = before.filter(pl.any_horizontal(*flags))["end"].max()
    if isinstance(last, datetime):
        before = before.filter(pl.col("end") > last)
    after = rows.filter(pl.col("end") > at + WARM_UP, pl.col("end") <= until)
    return comparable(before), comparable(after)


def judged_at(
    opened: Verification, minutes: Minutes, at: datetime, slo: Slo | None
) -> Verification:
    """A verification by all minutes up to ``at``; ``slo``: None = no latency targets are known."""
    key = TargetKey(opened.instance, opened.engine)
    known = minutes(key, opened.change.at - LOOK_BACK, at)
    return verified(opened, *around_change(known, opened.change.at, at), at, slo=slo)


def compared(
    target: Target, rows: pl.DataFrame, before: Span, after: Span, slo: Slo | None
) -> Verification:
    """Two named spans of one target.

    ``rows``: its stored minutes, from :data:`BEFORE_SPAN` before the first span on, by end;
    ``slo``: latency targets, None = none are known. Raises NoVerdict: a span has no usable scrape.
    """
    each = []
    for start, end in (before, after):
        # what a minute was offered is a mean over those before it
        near = rows.filter(pl.col("end") > start - BEFORE_SPAN, pl.col("end") <= end)
        inside = with_traffic(near).filter(pl.col("end") > start)
        if inside.is_empty() or not (inside["scrapes"] > 0).any():
            raise NoVerdict(
                f"{target.key.text}: no minute with a usable scrape from "
                f"{start:%Y-%m-%d %H:%M} to {end:%Y-%m-%d %H:%M} UTC"
            )
        each.append(inside)
    change = _difference(*each) or Change("knobs", after[0], {})
    opened = Verification(
        id=verification_id(target.key, change),
        instance=target.key.instance,
        engine=target.key.engine,
        pool=target.pool or "default",
        change=change,
        opened_at=after[0],
    )
    one, other = map(comparable, each)
    return verified(opened, one, other, after[1], slo=slo)


def _difference(before: pl.DataFrame, after: pl.DataFrame) -> Change | None:
    """What ran differently in the last scraped minute of each span."""
    one, other = (
        running(span.filter(pl.col("scrapes") > 0).row(-1, named=True), Fingerprint())
        for span in (before, after)
    )
    most = after["running_requests"].max()
    return changed(one, other, after["end"][0], most if isinstance(most, float) else None)
