"""When a target was last seen, and why not since. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime, timedelta

import polars as pl

from driftwatch.model import TargetKey
from driftwatch.notify.numbers import clean, moment

# two scrapes that do not come are no accident; sooner than this nobody is told
_LATE_SCRAPES = 2
_SOONEST = timedelta(seconds=90)


@dataclass(frozen=True, slots=True)
class LastSeen:
    """A target of which nothing is known at some time.

    Attributes:
        at: its newest usable scrape; None = there is none.
        since: the scrapes reach back to here; None = there are none of anybody.
        reason: why there is none since.
    """

    at: datetime | None
    since: datetime | None
    reason: str

    def text(self, today: date | None) -> str:
        """``last seen 15:20 UTC; not scraped by prometheus 0 since``."""
        if self.at is not None:
            said = f"last seen {moment(self.at, today)}"
        elif self.since is not None:
            said = f"not seen since {moment(self.since, today)}, where the scrapes begin"
        else:
            said = "never seen"
        return f"{said}; {clean(self.reason)}"


def last_seen(
    scrapes: pl.DataFrame, key: TargetKey, at: datetime, source: str | None = None
) -> LastSeen | None:
    """What is said of a target that is silent at ``at``; None where it is not.

    Silent is one whose newest scrape failed, or is older than two of its scrape intervals (at
    least 90 s).

    Args:
        scrapes: of everybody; later ones than ``at`` are left out.
        key: which target.
        at: when.
        source: name of the source that listed it last; None = not known.
    """
    upto = scrapes.filter(pl.col("time") <= at)
    # a page that does not answer fails for all engines behind it
    mine = (pl.col("engine") == key.engine) | ~pl.col("ok")
    own = upto.filter((pl.col("instance") == key.instance) & mine).unique("time").sort("time")
    good, begin, newest = (_time(t) for t in (own.filter("ok")["time"].max(), *_ends(upto)))
    last = _time(own["time"].max())
    if last is None or good is None:
        failed = None if last is None else _failed(own, good)
        return LastSeen(good, begin, failed or _not_scraped(source))
    patience = max(_SOONEST, _LATE_SCRAPES * _interval(own))
    if at - last > patience:
        alone = newest is not None and newest - last > patience
        return LastSeen(good, begin, _not_scraped(source) if alone else "nothing is scraped since")
    return LastSeen(good, begin, _failed(own, good)) if good < last else None


def _failed(own: pl.DataFrame, good: datetime | None) -> str:
    """How many scrapes failed since the last good one, and the newest reason."""
    since = own if good is None else own.filter(pl.col("time") > good)
    many = "the scrape since failed" if len(since) == 1 else f"{len(since)} scrapes since failed"
    return f"{many}: {since['reason'][-1]}"


def _not_scraped(source: str | None) -> str:
    return "not scraped since" if source is None else f"not scraped by {source} since"


def _interval(own: pl.DataFrame) -> timedelta:
    usual = own["time"].diff().median()
    return usual if isinstance(usual, timedelta) else timedelta(0)


def _ends(scrapes: pl.DataFrame) -> tuple[object, object]:
    return scrapes["time"].min(), scrapes["time"].max()


def _time(value: object) -> datetime | None:
    return value if isinstance(value, datetime) else None
