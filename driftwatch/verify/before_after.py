"""The minutes before and after a change, and their verdict at one time. Pure."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta

import polars as pl

from driftwatch.model import Slo, TargetKey
from driftwatch.verify.matching import comparable, with_traffic
from driftwatch.verify.verdict import verified
from driftwatch.verify.verification import Verification

# A day holds every load and every mix of requests.
LOOK_BACK = timedelta(hours=24)
# After a start: the first minutes compile, capture graphs and fill an empty prefix cache.
WARM_UP = timedelta(minutes=2)
# Several metrics report a start and its changes, one or two minutes apart.
ONE_CHANGE = timedelta(minutes=10)
_MINUTE = timedelta(minutes=1)

# (target, since, until) → :data:`driftwatch.signals.minutes.MINUTE_SCHEMA`, of the minutes that end
# in (since, until], by end
Minutes = Callable[[TargetKey, datetime, datetime], pl.DataFrame]


def around_change(
    minutes: pl.DataFrame, at: datetime, until: datetime
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Comparable minutes before a change, back to the one before it, and after its warm-up, up to
    the next one.

    ``minutes``: :data:`driftwatch.signals.minutes.MINUTE_SCHEMA`, of the target, by end.
    """
    rows = with_traffic(minutes)
    flags = (pl.col(name).fill_null(False) for name in ("configuration_changed", "release_changed"))
    changes = rows.filter(pl.any_horizontal(*flags))["end"]
    earlier, later = changes.filter(changes < at).max(), changes.filter(changes > at + ONE_CHANGE)
    first = max(at - LOOK_BACK, earlier) if isinstance(earlier, datetime) else at - LOOK_BACK
    before = rows.filter(pl.col("end") > first, pl.col("end") < at)
    last = min([until, *(one - _MINUTE for one in later.head(1))])
    after = rows.filter(pl.col("end") > at + WARM_UP, pl.col("end") <= last)
    return comparable(before), comparable(after)


def judge_at(opened: Verification, minutes: Minutes, at: datetime, slo: Slo | None) -> Verification:
    """Judge a verification by all minutes up to ``at``; ``slo``: None = no latency targets."""
    key = TargetKey(opened.instance, opened.engine)
    known = minutes(key, opened.change.at - LOOK_BACK, at)
    return verified(opened, *around_change(known, opened.change.at, at), at, slo=slo)
