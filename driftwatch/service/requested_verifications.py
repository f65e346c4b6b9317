"""Verifications that a person asks for: of an open one, of two stretches."""

from __future__ import annotations

from datetime import datetime, timedelta

import polars as pl

from driftwatch.errors import NoVerdict
from driftwatch.model import Fingerprint, Slo, Target, TargetKey
from driftwatch.pipeline.explain import Window
from driftwatch.pipeline.minutes import PastMinutes
from driftwatch.verify.changes import changed, running, verification_id
from driftwatch.verify.verdict import (
    Stretch,
    minutes_of_change,
    minutes_of_stretches,
    verified,
)
from driftwatch.verify.verification import Change, Verification

_LOOKS_BACK = timedelta(hours=24)


def asked_now(
    opened: Verification, past: PastMinutes, at: datetime, slo: Slo | None
) -> Verification:
    """An open verification, judged by all that there is now.

    Args:
        slo: latency targets; None = none are known.
    """
    key = TargetKey(opened.instance, opened.engine)
    # far enough back that the stretch before can be cut at an earlier change
    minutes = past.minutes(key, opened.change.at - _LOOKS_BACK, at)
    before, after = minutes_of_change(minutes, opened.change.at, at)
    return verified(opened, before, after, at, slo=slo)


def compared(
    target: Target,
    past: PastMinutes,
    before: Window,
    after: Window,
    slo: Slo | None,
    *,
    rows: pl.DataFrame | None = None,
) -> Verification:
    """Two named stretches of one target.

    Args:
        slo: latency targets; None = none are known.
        rows: stored rows of both, to say what differs; None = that is not told.

    Raises:
        NoVerdict: nothing is known of one of them.
    """
    minutes = []
    for window in (before, after):
        minutes.append(past.minutes(target.key, window.start, window.end))
        _something(target.key, minutes[-1], window)
    difference = _between(minutes[0], minutes[1], rows)
    change = difference or Change("knobs", after.start, {})
    opened = Verification(
        id=verification_id(target.key, change),
        instance=target.key.instance,
        engine=target.key.engine,
        pool=target.pool or "default",
        change=change,
        opened_at=after.start,
    )
    stretches = minutes_of_stretches(
        minutes[0],
        minutes[1],
        Stretch(before.start, before.end),
        Stretch(after.start, after.end),
    )
    return verified(opened, *stretches, after.end, slo=slo)


def _something(key: TargetKey, minutes: pl.DataFrame, window: Window) -> None:
    if minutes.is_empty() or not (minutes["scrapes"] > 0).any():
        raise NoVerdict(
            f"{key.text}: no minute with a usable scrape from "
            f"{window.start:%Y-%m-%d %H:%M} to {window.end:%Y-%m-%d %H:%M} UTC"
        )


def _between(before: pl.DataFrame, after: pl.DataFrame, rows: pl.DataFrame | None) -> Change | None:
    """What ran differently, as far as the minutes of both stretches tell."""
    at = after["end"][0]
    one, other = (_last(frame, rows) for frame in (before, after))
    most = after["running_requests"].max()
    return changed(
        running(one, Fingerprint()),
        running(other, Fingerprint()),
        at,
        float(most) if isinstance(most, float) else None,
    )


def _last(frame: pl.DataFrame, rows: pl.DataFrame | None) -> dict[str, object]:
    """The last minute that was seen, with its ``cache_config`` where rows have it."""
    scraped = frame.filter(pl.col("scrapes") > 0).tail(1)
    newest = (
        scraped
        if rows is None
        else scraped.join(
            rows.select("instance", "engine", "end", "cache_config"),
            on=["instance", "engine", "end"],
            how="left",
        )
    )
    return newest.row(0, named=True)
