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

# (target, since, until) → :data:`driftwatch.signals.minutes.MINUTE_SCHEMA`, of the minutes that end
# in (since, until], by end
Minutes = Callable[[TargetKey, datetime, datetime], pl.DataFrame]


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


def judge_at(opened: Verification, minutes: Minutes, at: datetime, slo: Slo | None) -> Verification:
    """Judge a verification by all minutes up to ``at``; ``slo``: None = no latency targets."""
    key = TargetKey(opened.instance, opened.engine)
    known = minutes(key, opened.change.at - LOOK_BACK, at)
    return verified(opened, *around_change(known, opened.change.at, at), at, slo=slo)
