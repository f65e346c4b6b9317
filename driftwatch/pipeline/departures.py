"""Targets that are missing: which of them are retired, and which are lost. Pure.

A target that its source does not list any more, or has no scrape of while it has some of others,
is *missing*. It is *retired*, and no target any more, after 15 minutes, or earlier when the rest of
its pool carries its traffic. Where a tenth of a pool (two targets at least, or all of it) left
together, its traffic is gone with it and was not falling before, the targets are *lost*: they stay,
and ``CoverageLost`` opens a ticket (decision 46).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

import polars as pl

from driftwatch.collect.schema import KEY_COLUMNS, SCRAPE_SCHEMA, TIME
from driftwatch.diagnose.evidence_table import minute_windows
from driftwatch.model import TargetKey
from driftwatch.signals.continuity import MAX_GAP_SECONDS
from driftwatch.signals.coverage import REMEMBERED

_KEY = list(KEY_COLUMNS)
_MINUTE = timedelta(minutes=1)
RETIRED_AFTER = timedelta(minutes=15)
# A loss is told of so many targets, which are such a share of their pool, or of a whole pool.
LOST_TARGETS, LOST_SHARE = 2, 0.1
# Traffic is compared over this long: shorter is noise, longer keeps people waiting.
COMPARED = timedelta(minutes=5)
# More than this share of the traffic that left must lack, and more than this of the whole pool's.
LACKING_SHARE, NOISE_RATIO = 0.5, 0.05
# The demand falls where the five minutes before have less than this of the five before them.
FALLING_RATIO = 0.9
# One scrape may fail to come; two are no accident.
_LATE_SCRAPES = 2.0
_SOONEST, _LATEST = timedelta(seconds=90), timedelta(seconds=MAX_GAP_SECONDS)
# Minutes of traffic that are kept: two of COMPARED before a departure, and the look-back after it.
_TRAFFIC_KEPT = 2 * COMPARED + RETIRED_AFTER

MOVED = "the server is gone (its pool generates about as much without it)"
NOT_LISTED = f"the server is gone (not listed for {RETIRED_AFTER // _MINUTE} min)"
FORGOTTEN = f"the server is gone (no data for {REMEMBERED.total_seconds() / 3600:.0f} h)"

_Schema = dict[str, pl.DataType | type[pl.DataType]]
_TRAFFIC: _Schema = {
    "instance": pl.String,
    "engine": pl.String,
    "pool": pl.String,
    "end": TIME,
    "tokens_per_second": pl.Float64,
}
_LAST: _Schema = {
    "instance": pl.String,
    "engine": pl.String,
    "known_until": TIME,
    "own": pl.Float64,
    "before": pl.Float64,
    "falling": pl.Boolean,
}
LOOKS_SCHEMA: _Schema = {"source": pl.String, "start": TIME}
ABSENT_SCHEMA: _Schema = {
    "instance": pl.String,
    "engine": pl.String,
    "end": TIME,
    "since": TIME,
}


@dataclass(frozen=True, slots=True)
class Departures:
    """What one tick hands to the next about who comes and goes."""

    # target → name of the source that listed it last
    origins: Mapping[TargetKey, str] = field(default_factory=dict)
    # retired targets that a source lists for ever, as a recording does
    retired: frozenset[TargetKey] = frozenset()
    # generated ``tokens_per_second`` per target and minute (``end``), NULL = unknown
    traffic: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=_TRAFFIC))
    # of each silent target, its last minute with a known rate (``known_until``); over the five
    # minutes up to there its ``own`` tokens per second and those of its pool (``before``); and
    # whether the pool's were ``falling``
    last: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=_LAST))

    def after(
        self,
        retired: Collection[TargetKey],
        not_listed: frozenset[TargetKey],
        until: datetime,
    ) -> Departures:
        """As the minutes after ``until`` need it, without the targets that were retired."""
        now = self.traffic.filter(
            (pl.col("end") == until) & pl.col("tokens_per_second").is_not_null()
        )
        silent = self.last.join(now, on=_KEY, how="anti")
        origins = {k: o for k, o in self.origins.items() if k not in retired}
        return replace(
            self,
            traffic=self.traffic.filter(pl.col("end") > until - _TRAFFIC_KEPT),
            last=silent.unique(_KEY, keep="last", maintain_order=True),
            origins=origins if retired else self.origins,
            # only those that a source still lists would come back without a scrape
            retired=self.retired | (set(retired) - not_listed),
        )


def no_looks() -> pl.DataFrame:
    """No minute is known in which a source was scraped for another shard."""
    return pl.DataFrame(schema=LOOKS_SCHEMA)


def absences(
    scrapes: pl.DataFrame,
    listing: pl.DataFrame,
    first: datetime,
    last: datetime,
    looks: pl.DataFrame | None = None,
) -> pl.DataFrame:
    """The minutes of [first, last) in which a target is missing.

    That is from two of its scrape intervals (at least 90 s, at most the look-back) after a scrape
    until the next one, failed ones included. Where no other target of its source was scraped in the
    minute either, nobody looked, unless the source answers that it does not know the target.

    Args:
        scrapes: scrape table in order, history included.
        looks: :data:`LOOKS_SCHEMA`, minutes in which targets of other shards were scraped.

    Returns:
        :data:`ABSENT_SCHEMA`, ``since`` the last scrape before; by target and time.
    """
    same = pl.all_horizontal(pl.col(c) == pl.col(c).shift(1) for c in _KEY).fill_null(False)
    spacing = pl.when(same).then(pl.col("time") - pl.col("time").shift(1))
    following = pl.when(same.shift(-1).fill_null(False)).then(pl.col("time").shift(-1))
    patience = (
        (spacing * _LATE_SCRAPES).clip(_SOONEST, _LATEST).fill_null(pl.lit(_LATEST, pl.Duration))
    )
    gaps = (
        scrapes.lazy()
        .select(*_KEY, "time")
        .with_columns(
            until=following.fill_null(pl.lit(last, TIME)), late_from=pl.col("time") + patience
        )
        .filter((pl.col("until") > pl.col("late_from")) & (pl.col("until") > pl.lit(first, TIME)))
        .collect()
        .join(listing.filter(pl.col("source").is_not_null()), on=_KEY)
    )
    if gaps.is_empty():
        return pl.DataFrame(schema=ABSENT_SCHEMA)
    starts = pl.datetime_range(first, last, "1m", closed="left", eager=True).cast(TIME)
    minutes = pl.DataFrame({"start": starts}).with_columns(middle=_middle(pl.col("start")))
    answers = (
        scrapes.filter(pl.col("time") >= pl.lit(first, TIME))
        .select(*_KEY, start=pl.col("time").dt.truncate("1m"))
        .join(listing.select(*_KEY, "source"), on=_KEY)
        .select("source", "start")
    )
    answers = pl.concat([answers, no_looks() if looks is None else looks])
    answers = answers.unique().with_columns(looked=True)
    return (
        gaps.join(minutes, how="cross")
        .filter(pl.col("middle").is_between("late_from", "until", closed="left"))
        .join(answers, on=["source", "start"], how="left")
        .filter(pl.col("not_listed") | pl.col("looked").fill_null(False))
        .select(*_KEY, end=(pl.col("start") + _MINUTE).cast(TIME), since="time")
        .sort([*_KEY, "end"])
    )


def target_listing(
    targets: Collection[TargetKey],
    origins: Mapping[TargetKey, str],
    pages: Collection[str],
    not_listed: Collection[TargetKey],
) -> pl.DataFrame:
    """Per target its ``origin``, ``not_listed``, and ``source``: the origin, NULL for ``pages``."""
    rows = [(*key, origins.get(key), key in not_listed) for key in targets]
    schema = {**dict.fromkeys((*_KEY, "origin"), pl.String), "not_listed": pl.Boolean}
    return pl.DataFrame(rows, schema=schema, orient="row").with_columns(
        source=pl.when(~pl.col("origin").is_in(sorted(pages))).then(pl.col("origin"))
    )


def unseen_rows(
    absent: pl.DataFrame,
    listing: pl.DataFrame,
    late: Mapping[str, tuple[str, datetime]],
    span: tuple[datetime, datetime],
) -> pl.DataFrame:
    """Scrape rows that are not ok, with the reason, for minutes of which no source has a scrape.

    Args:
        late: source that holds nobody up any more → why, and until when it was collected.
    """
    why = pl.when("not_listed").then(pl.lit("not listed by ")).otherwise(pl.lit("not scraped by "))
    missing = absent.join(listing, on=_KEY, how="left").select(
        *_KEY, "end", reason=why + pl.col("source")
    )
    of_late = pl.DataFrame(
        [(name, *texts) for name, texts in sorted(late.items())],
        schema={"origin": pl.String, "reason": pl.String, "until": TIME},
        orient="row",
    )
    theirs = listing.join(of_late, on="origin")
    waiting = (
        minute_windows(theirs, *span)
        .join(theirs, on=_KEY)
        .filter(_middle(pl.col("start")) >= pl.col("until"))
        .select(*_KEY, "end", "reason")
    )
    rows = pl.concat([missing, waiting]).select(
        *_KEY, "reason", time=_middle(pl.col("end") - _MINUTE), ok=pl.lit(False)
    )
    return pl.concat([pl.DataFrame(schema=dict(SCRAPE_SCHEMA)), rows], how="diagonal")


def _middle(start: pl.Expr) -> pl.Expr:
    """Where a minute's row stands of a target that has no scrape in it."""
    return (start + timedelta(seconds=30)).cast(TIME)


def with_traffic(before: Departures, rows: pl.DataFrame) -> Departures:
    """With the traffic of these evidence rows, and what each target that is silent carried last."""
    # over the whole minute: of one that came or left in it, only what it was seen to generate
    observed = pl.col("duration_seconds") / _MINUTE.total_seconds()
    new = rows.select(
        *_KEY, "pool", "end", tokens_per_second=pl.col("generation_tokens_per_second") * observed
    )
    # by time, then target, however minutes are split over ticks: sums depend on the order
    new = new.sort("end", maintain_order=True)
    traffic = pl.concat([before.traffic, new.cast(pl.Schema(_TRAFFIC))])
    unknown = new.filter(pl.col("tokens_per_second").is_null()).select(_KEY).unique()
    if unknown.is_empty():
        return replace(before, traffic=traffic, last=pl.DataFrame(schema=_LAST))
    rates = _pool_rates(traffic)
    # the minute in which a target leaves is no fall of the demand
    later = rates.select("pool", pl.col("end") + _MINUTE, later="rate")
    trend = rates.select("pool", pl.col("end") + COMPARED + _MINUTE, earlier="rate").join(
        later, on=["pool", "end"]
    )
    falling = pl.col("later") < FALLING_RATIO * pl.col("earlier")
    ends = (
        traffic.filter(pl.col("tokens_per_second").is_not_null())
        .join(unknown, on=_KEY, how="semi")
        .sort([*_KEY, "end"])
        .rolling("end", period=COMPARED, closed="right", group_by=[*_KEY, "pool"])
        .agg(own=pl.col("tokens_per_second").mean())
        .join(rates, on=["pool", "end"], how="left")
        .join(trend.select("pool", "end", falling=falling), on=["pool", "end"], how="left")
        .select(
            *_KEY,
            known_until="end",
            own="own",
            before="rate",
            falling=pl.col("falling").fill_null(False),
        )
    )
    older = before.last.join(unknown, on=_KEY, how="semi")
    # older values stand: the traffic that they were made from may be cut by now
    ends = ends.join(older, on=[*_KEY, "known_until"], how="anti").cast(pl.Schema(_LAST))
    return replace(
        before, traffic=traffic, last=pl.concat([older, ends]).sort([*_KEY, "known_until"])
    )


def _pool_rates(traffic: pl.DataFrame) -> pl.DataFrame:
    """pool, end, ``rate``: tokens per second that it visibly generated over the five minutes."""
    return (
        traffic.group_by("pool", "end")
        .agg(pl.col("tokens_per_second").sum())
        .sort("pool", "end")
        .rolling("end", period=COMPARED, closed="right", group_by="pool")
        .agg(rate=pl.col("tokens_per_second").mean())
    )


def judged(absent: pl.DataFrame, departures: Departures, pools: pl.DataFrame) -> pl.DataFrame:
    """Which missing targets are lost in each minute, and which are retired by it.

    Those that left within five minutes of each other left together. Their traffic lacks where the
    pool visibly generates less than before by more than half of what they carried and 5 % of the
    pool's. They are lost where it lacks, was not falling before, and they are two and a tenth of
    the pool at least, or all of it.

    Returns:
        instance, engine, end, ``lost``, and ``reason`` where the minute retires the target.
    """
    missing = absent.join(pools, on=_KEY, how="left").join(departures.last, on=_KEY, how="left")
    missing = (
        missing.filter((pl.col("known_until") <= pl.col("end")).fill_null(True))
        # of several ends of known traffic the one before this absence counts
        .sort([*_KEY, "end", "known_until"])
        .unique([*_KEY, "end"], keep="last", maintain_order=True)
    )
    group = ["pool", "end"]
    together = (
        missing.filter(pl.col("known_until").is_not_null())
        .sort([*group, "known_until"])
        .rolling(
            "known_until", period=2 * COMPARED, offset=-COMPARED, closed="both", group_by=group
        )
        .agg(
            carried=pl.col("own").sum(),
            pool_before=pl.col("before").max(),
            pool_fell=pl.col("falling").first(),
            count=pl.len(),
        )
        .unique([*group, "known_until"])
    )
    lacking = pl.col("pool_before") - pl.col("rate").fill_null(0.0)
    lacks = (lacking > LACKING_SHARE * pl.col("carried")) & (
        lacking > NOISE_RATIO * pl.col("pool_before")
    )
    settled = pl.col("end") >= pl.col("known_until") + COMPARED
    many = (pl.col("count") >= LOST_TARGETS) & (pl.col("count") >= LOST_SHARE * pl.col("of_pool"))
    lost = (
        (many | (pl.col("count") == pl.col("of_pool")))
        & (pl.col("end") > pl.col("known_until") + COMPARED)
        & lacks
        & ~pl.col("pool_fell")
    ).fill_null(False)
    away = pl.col("end") - pl.col("since")
    return (
        missing.join(together, on=[*group, "known_until"], how="left")
        .join(_pool_rates(departures.traffic), on=group, how="left")
        .join(pools.group_by("pool").agg(of_pool=pl.len()), on="pool", how="left")
        .select(
            *_KEY,
            "end",
            lost=lost,
            reason=pl.when(settled & ~lacks)
            .then(pl.lit(MOVED))
            .when(away >= REMEMBERED)
            .then(pl.lit(FORGOTTEN))
            .when((away >= RETIRED_AFTER) & ~lost)
            .then(pl.lit(NOT_LISTED)),
        )
    )


def retirements(judgements: pl.DataFrame) -> tuple[datetime | None, dict[TargetKey, str]]:
    """End of the first minute that retires a target, and those that are retired → why."""
    going = judgements.filter(pl.col("reason").is_not_null()).sort([*_KEY, "end"])
    going = going.unique(_KEY, keep="first", maintain_order=True)
    first = going["end"].min()
    retired = {TargetKey(i, e): why for i, e, why in going.select(*_KEY, "reason").iter_rows()}
    return first if isinstance(first, datetime) else None, retired
