"""Propose the best stretch of the past as a baseline, and give reasons against other minutes.

A stretch contains no restart, no change of knobs or release, no incident and no slow or stuck
minute. It keeps the SLO, and is at most 48 h long: baselines of 2, 6, 24 and 48 h gave 2.6, 1.9,
0.68 and 0.27 false episodes per server-month on real client traffic. Pure: it accepts nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

import polars as pl

from driftwatch.collect.schema import KEY, TIME
from driftwatch.detect.speed.load import VERDICTS
from driftwatch.incidents.incident import Incident
from driftwatch.minutes.engine import STUCK_SECONDS

_MINUTE = timedelta(minutes=1)
LONG_ENOUGH, LONGEST = timedelta(hours=24), timedelta(hours=48)
WARM_UP = timedelta(minutes=10)
# How long a loss of speed may last before a detector reports it.
_DETECTED_AFTER = timedelta(minutes=8)
# A stretch continues over a gap of unscraped minutes up to this length.
LONGEST_GAP = timedelta(minutes=15)
# A minute is left out where half of this many minutes around it miss the SLO.
_AROUND = 31
# A minute belongs to a pool's stretch if this share of its targets is fit.
POOL_SHARE = 0.8
# Of the stretches at least this long, as a share of the longest, the newest wins.
_LONG_SHARE = 0.9
_KEPT = 0.9  # least share of a good stretch's minutes with the SLO kept

NOT_SEEN = "not scraped"
SLOW, BEFORE_SLOW = "slower at equal load", "the 8 min before it was slower"


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Minutes that a proposal leaves out."""

    why: str  # in words
    since: datetime  # start of the first
    until: datetime  # end of the last
    minutes: int  # their number, over all targets


@dataclass(frozen=True, slots=True)
class Proposal:
    """A stretch that is proposed as a baseline."""

    since: datetime  # start of its first minute
    until: datetime  # end of its last
    seen_ratio: float  # share of its minutes with a usable scrape
    finished_requests: int  # requests finished in it
    # share of minutes with the SLO kept, of those with a verdict; None = no minute has one
    slo_kept_ratio: float | None

    @property
    def keeps_slo(self) -> bool:
        """Nine of ten minutes kept the SLO, or it is unknown."""
        return self.slo_kept_ratio is None or self.slo_kept_ratio >= _KEPT

    @property
    def length(self) -> timedelta:
        """From start to end."""
        return self.until - self.since


def marked(minutes: pl.DataFrame, incidents: Sequence[Incident] = ()) -> pl.DataFrame:
    """The minutes with ``left_out``: why a baseline excludes each, NULL where it does not.

    ``minutes``: MINUTE_SCHEMA, by instance, engine and end; ``incidents``: those that exclude them;
    where two overlap, the last one is named.
    """
    rows = minutes.sort([*KEY, "end"])
    first_scraped = pl.col("end").filter(pl.col("scrapes") > 0).min().over(KEY)
    # a server scraped in the first minute may have started long before
    is_new = (pl.col("end") - first_scraped < WARM_UP) & (first_scraped > pl.col("end").min())
    slow = [c for c in VERDICTS if c in rows.columns]
    missed = pl.col("slo_missed")
    around = missed.cast(pl.Float64).rolling_mean(_AROUND, min_samples=1, center=True)
    mostly = around.over(KEY) >= 0.5
    reasons = [
        (pl.col("scrapes").fill_null(0) <= 0, NOT_SEEN),
        (_near("restarted", WARM_UP), "restart and the 10 min after it"),
        (_near("configuration_changed", WARM_UP), "knobs changed, and the 10 min after it"),
        (_near("release_changed", WARM_UP), "release changed, and the 10 min after it"),
        (is_new, "its first 10 min"),
        *((pl.col(c), SLOW) for c in slow),
        *((_near(c, -_DETECTED_AFTER), BEFORE_SLOW) for c in slow),
        (pl.col("engine_asleep"), "the engine sleeps"),
        (pl.col("seconds_since_last_token") >= STUCK_SECONDS, "requests present, no token"),
        ((missed & (pl.col("limit_binding_share_10m_ratio") >= 0.5)) | mostly, "the SLO is missed"),
    ]
    why = pl.coalesce(pl.when(holds).then(pl.lit(text)) for holds, text in reasons)
    for one in incidents:
        why = pl.when(_is_during(one)).then(pl.lit(f"incident {one.alert}")).otherwise(why)
    return rows.with_columns(left_out=why)


def _near(flag: str, span: timedelta) -> pl.Expr:
    """Whether ``flag`` is set in a minute or shortly before it (``span`` below 0: after it)."""
    flags, minutes = pl.col(flag).fill_null(False).cast(pl.Int8), abs(span // _MINUTE)
    if span < timedelta():
        return flags.reverse().rolling_max(minutes, min_samples=1).reverse().over(KEY) > 0
    return flags.rolling_max_by("end", window_size=f"{minutes}m").over(KEY) > 0


def _is_during(incident: Incident) -> pl.Expr:
    """The minutes of an incident's targets that overlap it."""
    when = pl.col("end") > pl.lit(incident.started_at, dtype=TIME)
    if incident.resolved_at is not None:
        when &= pl.col("end") - _MINUTE < pl.lit(incident.resolved_at, dtype=TIME)
    names = [f"{one.instance}/{one.engine}" for one in incident.servers]
    return when & pl.format("{}/{}", "instance", "engine").is_in(names)


def propose(rows: pl.DataFrame) -> Proposal | None:
    """The best stretch of :func:`marked` rows; None where no minute is fit for a baseline.

    A minute of a pool counts where :data:`POOL_SHARE` of its scraped targets are fit. The newest
    of the stretches that are about as long as the longest is the best.
    """
    fit = pl.col("left_out").is_null().mean() >= POOL_SHARE
    minutes = rows.filter(pl.col("scrapes") > 0).group_by("end").agg(fit=fit).sort("end")
    stretches = [
        (max(first, last - LONGEST + _MINUTE), last)
        for is_fit, first, last in _stretches(minutes, "fit").iter_rows()
        if is_fit
    ]
    if not stretches:
        return None
    lengths = [min(last - first, LONG_ENOUGH) for first, last in stretches]
    least = _LONG_SHARE * max(lengths)
    long = [one for one, length in zip(stretches, lengths, strict=True) if length >= least]
    return proposal_of(rows, *long[-1])


def left_out_of(rows: pl.DataFrame) -> tuple[LeftOut, ...]:
    """The minutes that are left out, as stretches with one reason each, in order of time."""
    bad = rows.filter(pl.col("left_out").is_not_null()).sort("left_out", "end")
    return tuple(
        LeftOut(why, first - _MINUTE, last, count)
        for why, first, last, count in _stretches(bad, "left_out", pl.len())
        .sort("first", "left_out")
        .iter_rows()
    )


def _stretches(minutes: pl.DataFrame, by: str, *more: pl.Expr) -> pl.DataFrame:
    """Runs of minutes equal in ``by`` without a long gap: ``by``, ``first`` and ``last`` end."""
    gap = pl.col("end").diff() > LONGEST_GAP
    begins = (gap | (pl.col(by) != pl.col(by).shift(1))).fill_null(value=True)
    runs = minutes.group_by(by, begins.cum_sum().alias("run"), maintain_order=True)
    return runs.agg(
        pl.col("end").min().alias("first"), pl.col("end").max().alias("last"), *more
    ).drop("run")


def proposal_of(rows: pl.DataFrame, first: datetime, last: datetime) -> Proposal:
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
