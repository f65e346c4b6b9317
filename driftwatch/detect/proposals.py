"""Which stretch of the past would make a good baseline, and why other minutes would not.

A stretch has no restart, no change of knobs or release, no incident and no slow or stuck minute
in it, and is at most 48 h long: baselines of 2, 6, 24 and 48 h gave 2.6, 1.9, 0.68 and 0.27 false
episodes per server-month on real client traffic. Pure: it pins nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

import polars as pl

from driftwatch.collect.schema import KEY, TIME
from driftwatch.model import Incident

_MINUTE = timedelta(minutes=1)
LONG_ENOUGH, LONGEST = timedelta(hours=24), timedelta(hours=48)
WARM_UP = timedelta(minutes=10)
# How long a loss of speed may last before a detector reports it.
_SEEN_AFTER = timedelta(minutes=8)
# A stretch continues over a gap of unscraped minutes up to this length.
LONGEST_GAP = timedelta(minutes=15)
# A minute belongs to a pool's stretch if this share of its targets is fit.
POOL_SHARE = 0.8
STUCK_SECONDS = 120.0
# Stretches at least this long, as a share of the longest, are as good: the newest wins.
_AS_LONG = 0.9

NOT_SEEN = "not seen"
SLOW, BEFORE_SLOW = "slower at equal load", "the 8 min before it was slower"


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Minutes that a proposal leaves out."""

    why: str  # in words
    since: datetime  # start of the first
    until: datetime  # end of the last
    minutes: int  # how many (of all targets)


@dataclass(frozen=True, slots=True)
class Proposal:
    """A stretch that would make a good baseline."""

    since: datetime  # start of its first minute
    until: datetime  # end of its last
    seen_ratio: float  # share of its minutes with a usable scrape
    finished_requests: int  # requests finished in it
    # share of minutes with the SLO kept, of those where it is known; None = known for none
    slo_kept_ratio: float | None

    @property
    def length(self) -> timedelta:
        """From start to end."""
        return self.until - self.since


def marked(minutes: pl.DataFrame, troubles: Sequence[Incident] = ()) -> pl.DataFrame:
    """The minutes with ``left_out``: why a baseline excludes each, NULL where it does not.

    ``minutes``: MINUTE_SCHEMA, by instance, engine and end; ``troubles``: incidents of them.
    """
    warm = f"{int(WARM_UP.total_seconds() // 60)}m"
    rows = minutes.sort([*KEY, "end"]).with_columns(
        pl.col(flag)
        .fill_null(False)
        .cast(pl.Int8)
        .rolling_max_by("end", window_size=warm)
        .over(KEY)
        .alias(f"after_{flag}")
        for flag in _CUTS
    )
    first_scraped = pl.col("end").filter(pl.col("scrapes") > 0).min().over(KEY)
    slow = [c for c in _SLOW if c in rows.columns]
    # a server that is there in the first minute may have run for long
    is_new = (pl.col("end") - first_scraped < WARM_UP) & (first_scraped > pl.col("end").min())
    reasons = [
        (pl.col("scrapes").fill_null(0) <= 0, NOT_SEEN),
        (pl.col("after_restarted") > 0, "restart and the 10 min after it"),
        (pl.col("after_configuration_changed") > 0, "knobs changed, and the 10 min after it"),
        (pl.col("after_release_changed") > 0, "release changed, and the 10 min after it"),
        (is_new, "its first 10 min"),
        *((pl.col(c), SLOW) for c in slow),
        *((_soon(c), BEFORE_SLOW) for c in slow),
        (pl.col("engine_asleep"), "the engine sleeps"),
        (pl.col("seconds_since_last_token") >= STUCK_SECONDS, "requests present, no token"),
        (
            pl.col("slo_missed") & (pl.col("limit_binding_share_10m_ratio") >= 0.5),
            "a batch limit is full and the SLO is missed",
        ),
    ]
    rows = rows.with_columns(
        left_out=pl.coalesce(pl.when(holds).then(pl.lit(why)) for holds, why in reasons)
    )
    for trouble in troubles:
        rows = rows.with_columns(
            left_out=pl.when(_about(trouble))
            .then(pl.lit(f"incident {trouble.alert}"))
            .otherwise("left_out")
        )
    return rows.drop(f"after_{flag}" for flag in _CUTS)


_CUTS = ("restarted", "configuration_changed", "release_changed")
_SLOW = ("slower_at_equal_load", "slower_than_pool")


def propose(rows: pl.DataFrame) -> Proposal | None:
    """The best stretch of :func:`marked` rows; None where no minute is fit for a baseline.

    A minute of a pool counts where :data:`POOL_SHARE` of its scraped targets are fit.
    """
    by_minute = (
        rows.group_by("end")
        .agg(
            seen=(pl.col("scrapes") > 0).sum(),
            fit=pl.col("left_out").is_null().sum(),
        )
        .sort("end")
    )
    if by_minute.is_empty():
        return None
    fit = (pl.col("fit") > 0) & (pl.col("fit") >= POOL_SHARE * pl.col("seen"))
    fit_minutes = by_minute.filter(fit)["end"].to_list()
    unfit = by_minute.filter(~fit & (pl.col("seen") > 0))["end"].to_list()
    stretches = [
        (max(start, end - LONGEST + _MINUTE), end) for start, end in _stretches(fit_minutes, unfit)
    ]
    if not stretches:
        return None
    lengths = [min(end - start, LONG_ENOUGH) for start, end in stretches]
    long = _AS_LONG * max(lengths)
    # of the stretches that are about as long the newest
    newest = max(end for (_, end), length in zip(stretches, lengths, strict=True) if length >= long)
    return described(rows, *next(one for one in stretches if one[1] == newest))


def left_out_of(rows: pl.DataFrame) -> tuple[LeftOut, ...]:
    """The minutes that are left out, as stretches with one reason each, in order of time."""
    bad = rows.filter(pl.col("left_out").is_not_null())
    minutes = bad.group_by("end", why="left_out").agg(count=pl.len()).sort("why", "end")
    begins = (pl.col("end").diff() > LONGEST_GAP).fill_null(value=True)
    stretches = (
        minutes.with_columns(stretch=begins.cum_sum().over("why"))
        .group_by("why", "stretch")
        .agg(
            since=pl.col("end").min() - _MINUTE, until=pl.col("end").max(), of=pl.col("count").sum()
        )
        .sort("since", "why")
    )
    return tuple(
        LeftOut(*row) for row in stretches.select("why", "since", "until", "of").iter_rows()
    )


def described(rows: pl.DataFrame, first: datetime, last: datetime) -> Proposal:
    """The proposal of a stretch, without its minutes that are left out.

    ``rows``: from :func:`marked`; ``first``: end of its first minute; ``last``: end of its last.
    """
    inside = rows.filter(pl.col("end").is_between(first, last))
    good = inside.filter(pl.col("left_out").is_null())
    slo = good["slo_missed"].drop_nulls()
    minutes = (last - first) / _MINUTE + 1
    targets = max(inside.select(KEY).n_unique(), 1)
    return Proposal(
        since=first - _MINUTE,
        until=last,
        seen_ratio=min(1.0, len(good) / (minutes * targets)),
        finished_requests=int(good["prompt_tokens_count"].sum()),
        slo_kept_ratio=None if slo.is_empty() else 1.0 - float(slo.sum()) / len(slo),
    )


def _stretches(
    fit: Sequence[datetime], unfit: Sequence[datetime]
) -> list[tuple[datetime, datetime]]:
    """First and last minute's end of every run; unfit minutes and long gaps end one."""
    events = sorted([(end, True) for end in fit] + [(end, False) for end in unfit])
    stretches: list[tuple[datetime, datetime]] = []
    start = last = None
    for end, good in events:
        if start is not None and last is not None and (not good or end - last > LONGEST_GAP):
            stretches.append((start, last))
            start = None
        if good:
            start, last = start or end, end
    if start is not None and last is not None:
        stretches.append((start, last))
    return stretches


def _about(trouble: Incident) -> pl.Expr:
    """The minutes of an incident's targets that overlap it."""
    when = pl.col("end") > pl.lit(trouble.started_at, dtype=TIME)
    if trouble.resolved_at is not None:
        when &= pl.col("end") - _MINUTE < pl.lit(trouble.resolved_at, dtype=TIME)
    labels = trouble.target
    if "instance" not in labels:
        return when & (pl.col("pool") == labels.get("pool", ""))
    own = pl.col("instance") == labels["instance"]
    return when & own & (pl.col("engine") == labels.get("engine", "0"))


def _soon(flag: str) -> pl.Expr:
    """Whether ``flag`` is set within the next 8 min: a detector needs so long."""
    flags = pl.col(flag).fill_null(False).cast(pl.Int8)
    minutes = int(_SEEN_AFTER / _MINUTE)
    return flags.reverse().rolling_max(minutes, min_samples=1).reverse().over(KEY) > 0
