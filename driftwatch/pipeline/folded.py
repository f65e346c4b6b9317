"""What the detectors with a past say of a moment in scrapes that are at hand."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

import polars as pl

from driftwatch.collect.schema import KEY_COLUMNS, Collected
from driftwatch.detect.pins import Pins
from driftwatch.model import Target, TargetKey
from driftwatch.pipeline.plan import Plan
from driftwatch.pipeline.replay import replay
from driftwatch.pipeline.state import Outcome

_KEY = list(KEY_COLUMNS)
# A server-month takes half a minute: so much of the past is folded in, the same whoever asks.
SERVER_DAYS, AT_LEAST = 40.0, timedelta(days=1)


@dataclass(slots=True)
class HeldSource:
    """Scrapes and GPU readings that are already there, handed out by time."""

    scrapes: pl.DataFrame
    gpus: pl.DataFrame
    targets: Mapping[TargetKey, Target]
    name: str = "held"
    settle_seconds: float = 0.0

    def collect(self, since: datetime, until: datetime) -> Collected:
        """Those with since <= time < until."""
        inside = pl.col("time").is_between(since, until, closed="left")
        return Collected(self.scrapes.filter(inside), self.targets, (), self.gpus.filter(inside))

    def close(self) -> None:
        """There is nothing to give back."""


def detected_until(
    scrapes: pl.DataFrame,
    gpus: pl.DataFrame,
    target: Target,
    targets: Mapping[TargetKey, Target],
    plan: Plan,
    at: datetime,
    *,
    pins: Pins | None = None,
    reference: pl.DataFrame | None = None,
    progress: Callable[[float, float], None] | None = None,
    seen: Callable[[pl.DataFrame], None] | None = None,
) -> pl.DataFrame:
    """The last whole minute before ``at`` of a target, with the detectors' columns.

    The tick itself goes over what is there of the target's pool: all of it, or at least
    :data:`AT_LEAST` and :data:`SERVER_DAYS` in all where that is less.

    Args:
        scrapes: everything known.
        gpus: GPU readings.
        target: whose minute.
        targets: every target.
        plan: rules, pools.
        at: end of the window that is asked about.
        pins: in force.
        reference: measured reference rows.
        progress: told how many seconds of how many are done.
        seen: given the evidence rows of the target's pool, minute by minute in order.

    Returns:
        One evidence row; none where no whole minute lies before ``at``.
    """
    pool = {key: one for key, one in targets.items() if one.pool == target.pool}
    keys = pl.DataFrame(
        [tuple(k) for k in pool], schema=dict.fromkeys(_KEY, pl.String), orient="row"
    )
    mine = scrapes.filter(pl.col("time") < at).join(
        keys, on=_KEY, how="semi", maintain_order="left"
    )
    first = mine["time"].min()
    end = at.replace(second=0, microsecond=0)
    if not isinstance(first, datetime):
        return pl.DataFrame()
    back = max(AT_LEAST, timedelta(days=SERVER_DAYS / len(pool)))
    start = max(first.replace(second=0, microsecond=0), end - back)
    if start >= end:
        return pl.DataFrame()
    whole = (end - start).total_seconds()

    def told(now: datetime) -> None:
        if progress is not None:
            progress((now - start).total_seconds(), whole)

    source = HeldSource(mine.filter(pl.col("time") >= start), gpus, pool)
    own = (pl.col("instance") == target.key.instance) & (pl.col("engine") == target.key.engine)
    last: Outcome | None = None
    for outcome in replay(
        [source], (start, end), plan, pins=pins, reference=reference, progress=told
    ):
        last = outcome if len(outcome.rows) else last
        if seen is not None and len(outcome.rows):
            seen(outcome.rows)
    return pl.DataFrame() if last is None else last.rows.filter(own).tail(1)
