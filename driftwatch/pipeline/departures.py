"""Which targets have left, and whether that was meant. Pure.

A target of which its source has no scrape any more, although it has some of others or says which
targets it knows, is *missing* from its last scrape on. It stays a target without scrapes until it
is *retired*. Scaling down, a rollout and a rename take a target away on purpose, and its traffic
with it to others; where service discovery loses a target, its traffic is nowhere to be seen. So
what the pool visibly generates tells them apart (decision 9).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

import polars as pl

from driftwatch.collect.schema import KEY_COLUMNS, SCRAPE_SCHEMA, TIME
from driftwatch.model import TargetKey
from driftwatch.signals.continuity import MAX_GAP_SECONDS
from driftwatch.signals.coverage import REMEMBERED

_KEY = list(KEY_COLUMNS)
_MINUTE = timedelta(minutes=1)
# Traffic is compared over this long: shorter is noise, longer keeps people waiting.
COMPARED = timedelta(minutes=5)
# An even fall that the pool shows for this long is its demand's, and explains as much of a lack.
TREND = 2 * COMPARED
# What may lack of the traffic that left before it counts as lost: half lies in the middle between
# "all of it moved" and "none of it did".
LACKING_SHARE = 0.5
# Five minutes' traffic of a pool varies by this much by itself; what carried less is not missed.
NOISE_RATIO = 0.05
# One scrape may fail to come; two are no accident.
_LATE_SCRAPES = 2.0
_SOONEST = timedelta(seconds=90)
_LATEST = timedelta(seconds=MAX_GAP_SECONDS)
# Minutes of traffic that are kept: for a trend of then, and what was carried a look-back ago.
_KEPT = 2 * TREND + 3 * _MINUTE

MOVED = "the target is gone (scaled down; its traffic moved to the rest of the pool)"
IDLE = "the target is gone (it carried no traffic)"
SMALL = "the target is gone (too small a share of the pool's traffic to be missed)"
NEVER = "the target is gone (it never answered)"
FORGOTTEN = f"the target is gone (not seen for {REMEMBERED.total_seconds() / 3600:.0f} h)"
UNCONFIGURED = "the target is gone (no longer in the configuration)"

_RATES: dict[str, pl.DataType | type[pl.DataType]] = {
    "instance": pl.String,
    "engine": pl.String,
    "pool": pl.String,
    "end": TIME,
    "tokens_per_second": pl.Float64,
}
_LAST: dict[str, pl.DataType | type[pl.DataType]] = {
    "instance": pl.String,
    "engine": pl.String,
    "known_until": TIME,
    "own": pl.Float64,
    "before": pl.Float64,
}
ABSENT_SCHEMA: dict[str, pl.DataType | type[pl.DataType]] = {
    "instance": pl.String,
    "engine": pl.String,
    "end": TIME,
    "since": TIME,
    "answered": pl.Boolean,
}


@dataclass(frozen=True, slots=True)
class Departures:
    """What one tick hands to the next about who comes and goes.

    Attributes:
        origins: target → name of the source that listed it last.
        retired: retired targets that a source lists for ever, as a recording does.
        traffic: per target and minute (``end``) ``tokens_per_second`` generated, NULL = unknown;
            the last minutes.
        last: of each target without a known rate in the last minute: ``known_until`` (end of its
            last minute with one), what it carried itself (``own``) and its pool with it
            (``before``), tokens per second over the five minutes up to there.
    """

    origins: Mapping[TargetKey, str] = field(default_factory=dict)
    retired: frozenset[TargetKey] = frozenset()
    traffic: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=_RATES))
    last: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=_LAST))


def absences(
    scrapes: pl.DataFrame,
    targets: pl.DataFrame,
    first: datetime,
    last: datetime,
) -> pl.DataFrame:
    """The minutes of [first, last) in which a target is missing.

    A target is missing from two of its own scrape intervals (at least 90 s, at most the look-back)
    after a scrape until the next one, failed ones included. Where no other target of its source
    was scraped in the minute either, nobody looked, unless the source says that it left.

    Args:
        scrapes: scrape table in order, history included.
        targets: instance, engine, ``source`` (NULL = it tells of its targets itself, a page),
            ``left`` (its source answered and does not list it).
        first: start of the first minute.
        last: end of the last one.

    Returns:
        :data:`ABSENT_SCHEMA`: ``end`` of the minute, ``since`` (the last scrape before), and
        whether the target ever ``answered``; by target and time.
    """
    times = scrapes.lazy().select(*_KEY, "time", "ok")
    same = pl.all_horizontal(pl.col(c) == pl.col(c).shift(1) for c in _KEY).fill_null(False)
    spacing = pl.when(same).then(pl.col("time") - pl.col("time").shift(1))
    following = pl.when(same.shift(-1).fill_null(False)).then(pl.col("time").shift(-1))
    patience = (
        (spacing * _LATE_SCRAPES).clip(_SOONEST, _LATEST).fill_null(pl.lit(_LATEST, pl.Duration))
    )
    gaps = (
        times.with_columns(
            until=following.fill_null(pl.lit(last, TIME)),
            late_from=pl.col("time") + patience,
        )
        .filter((pl.col("until") > pl.col("late_from")) & (pl.col("until") > pl.lit(first, TIME)))
        .collect()
    )
    gaps = gaps.join(targets.filter(pl.col("source").is_not_null()), on=_KEY)
    if gaps.is_empty():
        return pl.DataFrame(schema=ABSENT_SCHEMA)
    minutes = pl.DataFrame(
        {"start": pl.datetime_range(first, last, "1m", closed="left", eager=True)}
    ).select(pl.col("start").cast(TIME), middle=middle(pl.col("start")).cast(TIME))
    looked = (
        scrapes.lazy()
        .filter(pl.col("time") >= pl.lit(first, TIME))
        .select(*_KEY, start=pl.col("time").dt.truncate("1m"))
        .join(targets.lazy().select(*_KEY, "source"), on=_KEY)
        .select("source", "start", looked=True)
        .unique()
        .collect()
    )
    answered = scrapes.filter("ok").select(_KEY).unique().with_columns(answered=True)
    return (
        gaps.join(minutes, how="cross")
        .filter(pl.col("middle").is_between("late_from", "until", closed="left"))
        .join(looked, on=["source", "start"], how="left")
        .filter(pl.col("left") | pl.col("looked").fill_null(False))
        .join(answered, on=_KEY, how="left")
        .select(
            *_KEY,
            end=(pl.col("start") + _MINUTE).cast(TIME),
            since="time",
            answered=pl.col("answered").fill_null(False),
        )
        .sort([*_KEY, "end"])
    )


def middle(start: pl.Expr) -> pl.Expr:
    """Where a minute's row stands of a target that has no scrape in it."""
    return start + timedelta(seconds=30)


def unseen_rows(minutes: pl.DataFrame) -> pl.DataFrame:
    """Scrape rows that are not ok for targets and minutes of which no source has a scrape.

    Args:
        minutes: instance, engine, ``end`` of the minute, ``reason``.
    """
    empty = pl.DataFrame(schema=dict(SCRAPE_SCHEMA))
    rows = minutes.select(
        *_KEY,
        time=middle(pl.col("end") - _MINUTE).cast(TIME),
        ok=pl.lit(False),
        reason="reason",
    )
    return pl.concat([empty, rows], how="diagonal")


def with_traffic(before: Departures, rows: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Traffic known after these evidence rows, and what of it each silent target carried last.

    Args:
        before: from the tick before.
        rows: evidence rows of the minutes since then.

    Returns:
        As ``traffic`` (not cut yet) and ``last`` of :class:`Departures`; ``last`` holds every
        target whose rate was known once and is unknown in some minute of ``rows``.
    """
    # over the whole minute: of one that came or left in it, only what it was seen to generate
    observed = pl.col("duration_seconds") / _MINUTE.total_seconds()
    new = rows.select(
        *_KEY, "pool", "end", tokens_per_second=pl.col("generation_tokens_per_second") * observed
    )
    # by time, then target, however minutes are split over ticks: sums depend on the order
    new = new.sort("end", maintain_order=True)
    traffic = pl.concat([before.traffic, new.cast(pl.Schema(_RATES))])
    unknown = new.filter(pl.col("tokens_per_second").is_null()).select(_KEY).unique()
    if unknown.is_empty():
        return traffic, pl.DataFrame(schema=_LAST)
    known = traffic.filter(pl.col("tokens_per_second").is_not_null())
    theirs = known.join(unknown, on=_KEY, how="semi").sort([*_KEY, "end"])
    own = (
        theirs.rolling("end", period=COMPARED, closed="right", group_by=[*_KEY, "pool"])
        .agg(own=pl.col("tokens_per_second").mean())
        .select(*_KEY, "pool", "end", "own")
    )
    ends = own.join(_pool_rates(traffic), on=["pool", "end"], how="left").select(
        *_KEY, known_until="end", own="own", before="rate"
    )
    older = before.last.join(unknown, on=_KEY, how="semi")
    # what was told once stands: the traffic that it was made from may be cut by now
    ends = ends.join(older, on=[*_KEY, "known_until"], how="anti")
    return traffic, pl.concat([older, ends.cast(pl.Schema(_LAST))]).sort([*_KEY, "known_until"])


def _pool_rates(traffic: pl.DataFrame) -> pl.DataFrame:
    """pool, end, ``rate``: tokens per second that it visibly generated over the five minutes."""
    return (
        traffic.group_by("pool", "end")
        .agg(pl.col("tokens_per_second").sum())
        .sort("pool", "end")
        .rolling("end", period=COMPARED, closed="right", group_by="pool")
        .agg(rate=pl.col("tokens_per_second").mean())
    )


def _pool_trends(traffic: pl.DataFrame) -> pl.DataFrame:
    """pool, end, ``falling``: tokens per second a minute, 0 where it does not fall evenly.

    The flattest of the slopes over five minutes within ten: a step, as a loss makes one, leaves
    some of them flat. Of the last ten minutes the steepest such fall.
    """
    minute = pl.col("end").dt.epoch("s") / _MINUTE.total_seconds()
    slopes = (
        traffic.group_by("pool", "end")
        .agg(pl.col("tokens_per_second").sum())
        .sort("pool", "end")
        .with_columns(minute=minute)
        .rolling("end", period=COMPARED, closed="right", group_by="pool")
        .agg(
            slope=pl.cov("minute", "tokens_per_second") / pl.col("minute").var(),
            whole=pl.len() == COMPARED // _MINUTE,
        )
        .filter("whole")
    )
    several = TREND - COMPARED + _MINUTE
    return (
        slopes.rolling("end", period=several, closed="right", group_by="pool")
        .agg(falling=pl.col("slope").max().clip(upper_bound=0.0), counted=pl.len())
        .filter(pl.col("counted") == several // _MINUTE)
        .rolling("end", period=TREND, closed="right", group_by="pool")
        .agg(pl.col("falling").min())
    )


def retirements(absent: pl.DataFrame, traffic: pl.DataFrame, last: pl.DataFrame) -> pl.DataFrame:
    """Which missing targets are retired, at the end of which minute, and why.

    Args:
        absent: from :func:`absences`, with ``pool``.
        traffic: from :func:`with_traffic`.
        last: from :func:`with_traffic`.

    Returns:
        instance, engine, end, reason: the first minute that retires each target.
    """
    known = absent.join(last, on=_KEY, how="left").filter(
        pl.col("known_until").is_null() | (pl.col("known_until") <= pl.col("end"))
    )
    # of several ends of known traffic the one before this absence counts
    known = known.sort([*_KEY, "end", "known_until"]).unique(
        [*_KEY, "end"], keep="last", maintain_order=True
    )
    watched = (pl.col("end") - pl.col("known_until")).clip(upper_bound=TREND) / _MINUTE
    fallen = pl.col("falling").fill_null(0.0) * watched
    known = known.join(_pool_trends(traffic), on=["pool", "end"], how="left").with_columns(
        expected=(pl.col("before") + fallen).clip(lower_bound=0.0)
    )
    group = ["pool", "end"]
    together = (
        known.filter(pl.col("known_until").is_not_null())
        .sort([*group, "known_until"])
        .rolling(
            "known_until",
            period=2 * COMPARED,
            offset=-COMPARED,
            closed="both",
            group_by=group,
        )
        .agg(
            all_own=pl.col("own").sum(),
            all_before=pl.col("before").max(),
            all_expected=pl.col("expected").max(),
        )
        .unique([*group, "known_until"])
    )
    judged = (
        known.join(together, on=[*group, "known_until"], how="left")
        .join(_pool_rates(traffic), on=group, how="left")
        .with_columns(lacking=pl.col("all_expected") - pl.col("rate").fill_null(0.0))
    )
    settled = pl.col("end") >= pl.col("known_until") + COMPARED
    reason = (
        pl.when(~pl.col("answered"))
        .then(pl.lit(NEVER))
        .when(pl.col("own") == 0)
        .then(pl.lit(IDLE))
        .when(settled & (pl.col("lacking") <= LACKING_SHARE * pl.col("all_own")))
        .then(pl.lit(MOVED))
        .when(settled & (pl.col("lacking") <= NOISE_RATIO * pl.col("all_before")))
        .then(pl.lit(SMALL))
        .when(pl.col("end") - pl.col("since") >= REMEMBERED)
        .then(pl.lit(FORGOTTEN))
    )
    return (
        judged.select(*_KEY, "end", reason=reason)
        .filter(pl.col("reason").is_not_null())
        .sort([*_KEY, "end"])
        .unique(_KEY, keep="first", maintain_order=True)
    )


def undecided(
    absent: pl.DataFrame, last: pl.DataFrame, retired: Collection[TargetKey], until: datetime
) -> pl.DataFrame:
    """Minutes in which a missing target is neither lost nor retired yet.

    They are those before its traffic of five minutes can be looked for elsewhere, and the minute
    that retires it.

    Args:
        absent: from :func:`absences`.
        last: from :func:`with_traffic`.
        retired: targets that the minute that ends at ``until`` retires.
        until: end of the last minute.

    Returns:
        instance, engine, ``end``, and ``undecided`` (true).
    """
    known = last.group_by(_KEY).agg(pl.col("known_until").max())
    going = pl.DataFrame(sorted(retired), schema=dict.fromkeys(_KEY, pl.String), orient="row")
    early = pl.col("end") <= pl.col("known_until") + COMPARED
    ends = pl.col("going").fill_null(False) & (pl.col("end") == pl.lit(until, TIME))
    return (
        absent.join(known, on=_KEY, how="left")
        .join(going.with_columns(going=True), on=_KEY, how="left")
        .filter(early.fill_null(False) | ends)
        .select(*_KEY, "end", undecided=True)
        .unique()
    )


def kept(
    traffic: pl.DataFrame, last: pl.DataFrame, until: datetime
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Traffic and last known traffic as the next tick needs them.

    Args:
        traffic: from :func:`with_traffic`.
        last: from :func:`with_traffic`.
        until: end of the last evaluated minute.
    """
    recent = traffic.filter(pl.col("end") > until - _KEPT)
    now = traffic.filter((pl.col("end") == until) & pl.col("tokens_per_second").is_not_null())
    silent = last.join(now, on=_KEY, how="anti")
    return recent, silent.unique(_KEY, keep="last", maintain_order=True)
