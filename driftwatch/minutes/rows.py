"""Scrapes → minute rows. Pure.

A minute's increases run from the last scrape before it to the last scrape in it
(start <= time < end), so neighbouring minutes share no increment and lose none. A minute with a
restart or a knob change adds up both sides.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

import numpy as np
import polars as pl

from driftwatch.collect.schema import KEY, TIME, in_order
from driftwatch.minutes.continuity import MEAN_GAUGES, NEVER_ZERO, in_seconds, with_epochs
from driftwatch.minutes.engine import is_asleep, kind_of_scrape, waiting, with_token_clock
from driftwatch.minutes.scheduler import SAMPLE_SCHEMA, no_samples, scrape_facts
from driftwatch.minutes.schema import (
    BUCKETS,
    EDGES,
    EXTERNAL_HITS,
    GIVEN_UP,
    MINUTE_ROW_SCHEMA,
    QUEUED,
    SUMS,
)

_MINUTE = timedelta(minutes=1)
_GROUP = [*KEY, "end"]
_IN_SCHEMA = [pl.col(name).cast(dtype) for name, dtype in MINUTE_ROW_SCHEMA.items()]
_LABELS = ("model_name", "cache_config", "several_api_servers")


@dataclass(frozen=True, slots=True)
class MinuteRows:
    """Minutes of targets, and the samples that the next minutes begin with."""

    rows: pl.DataFrame  # :data:`MINUTE_ROW_SCHEMA`, by target and end, each minute of each target
    samples: pl.DataFrame  # :data:`SAMPLE_SCHEMA`, of the last scrape of each target before the end


def minute_grid(targets: pl.DataFrame, since: datetime, until: datetime) -> pl.DataFrame:
    """Each whole minute of [since, until) for each target: instance, engine, start, end.

    ``targets``: instance, engine; ``since``, ``until``: whole minutes.
    """
    keys = targets.select(KEY).unique().sort(KEY)
    count = max((until - since) // _MINUTE, 0)
    minutes = int(since.timestamp()) + 60 * np.arange(count)
    starts = np.tile(1_000_000 * minutes, len(keys))
    return keys[np.repeat(np.arange(len(keys)), count)].with_columns(
        start=pl.Series(starts).cast(TIME), end=pl.Series(starts + 60_000_000).cast(TIME)
    )


def minute_rows(
    scrapes: pl.DataFrame,
    targets: pl.DataFrame,
    since: datetime,
    until: datetime,
    samples: pl.DataFrame | None = None,
) -> MinuteRows:
    """The minutes of [since, until) of each target.

    ``scrapes``: scrape table, with each target's last usable scrape before ``since``; without it
    the first minute counts from its first scrape on; ``targets``: instance, engine; ``samples``:
    :data:`SAMPLE_SCHEMA`, of these last scrapes, None = unknown.
    """
    grid = minute_grid(targets, since, until)
    epochs = with_epochs(scrapes.filter(pl.col("time") < until)).with_columns(
        # before waiting_by_reason existed every waiting request waited for capacity
        waiting_capacity_requests=pl.coalesce("waiting_capacity_requests", "waiting_requests"),
        # above 1 it is a percentage, or the sum of two servers
        kv_cache_usage_ratio=pl.when(pl.col("kv_cache_usage_ratio") <= 1).then(
            "kv_cache_usage_ratio"
        ),
    )
    facts = scrape_facts(epochs, no_samples() if samples is None else samples)
    epochs = epochs.hstack(with_token_clock(epochs)).with_columns(
        end=(pl.col("time").dt.truncate("1m") + _MINUTE).cast(TIME), row=pl.int_range(pl.len())
    )
    inside = pl.col("time") >= since
    parts = [_looks(scrapes, since, until), _levels(epochs.filter(inside))]
    parts += [_increases(epochs, inside), _counted(facts, since)]
    rows = grid.select(_GROUP)
    for part in parts:
        rows = rows.join(part, on=_GROUP, how="left", maintain_order="left")
    rows = rows.with_columns(pl.col("scrapes", "duration_seconds").fill_null(0.0))
    last = facts.select(*SAMPLE_SCHEMA).unique(KEY, keep="last", maintain_order=True)
    return MinuteRows(rows.select(_IN_SCHEMA), last)


def _looks(scrapes: pl.DataFrame, since: datetime, until: datetime) -> pl.DataFrame:
    """The number of scrapes, failed ones too, and the reason of the last failed one."""
    inside = scrapes.select(*KEY, "time", "ok", "reason").filter(
        pl.col("time").is_between(since, until, closed="left")
    )
    return (
        in_order(inside)
        .with_columns(end=(pl.col("time").dt.truncate("1m") + _MINUTE).cast(TIME))
        .group_by(_GROUP, maintain_order=True)
        .agg(looks=pl.len().cast(pl.Float64), failure=pl.col("reason").filter(~pl.col("ok")).last())
    )


def _levels(epochs: pl.DataFrame) -> pl.DataFrame:
    """Means of a minute's scrapes, and values of its last one."""
    return epochs.group_by(_GROUP, maintain_order=True).agg(_LEVELS)


def _seconds(elapsed: pl.Expr) -> pl.Expr:
    return in_seconds(elapsed.dt.total_microseconds())


_LEVELS = [
    *(pl.col(gauge).mean() for gauge in MEAN_GAUGES),
    pl.len().cast(pl.Float64).alias("scrapes"),
    in_seconds(pl.col("step_microseconds").sum()).alias("duration_seconds"),
    _seconds(pl.col("end").last() - pl.col("time").last()).alias("last_scrape_age_seconds"),
    pl.col("restarted", "configuration_changed").any(),
    kind_of_scrape().last().alias("engine_kind"),
    is_asleep().last().alias("engine_asleep"),
    *(
        _seconds(pl.col("time").last() - pl.col("time").filter(flag).last()).alias(
            f"{flag}_age_seconds"
        )
        for flag in ("alive", "queue_grew")
    ),
    pl.col("presence_known", *_LABELS).last(),
    pl.col("running_requests").max().alias("running_requests_max"),
]


def _increases(epochs: pl.DataFrame, inside: pl.Expr) -> pl.DataFrame:
    """Increases of counters and histograms, epoch by epoch, added up.

    Within an epoch a minute's increase is its last scrape minus the scrape before its first one, or
    minus 0 if the process began in between, or minus its first scrape if that is unknown.
    """
    spans = (
        epochs.filter(inside)
        .group_by([*_GROUP, "epoch"], maintain_order=True)
        .agg(
            first=pl.col("row").first(),
            last=pl.col("row").last(),
            starts=pl.col("epoch_starts").first(),
            # a restart in a gap may be older than this minute, and so may its increments
            zero=(pl.col("restarted") & (pl.col("step_microseconds") > 0)).first(),
        )
    )
    base = spans.select(
        pl.when("zero").then(None).when("starts").then("first").otherwise(pl.col("first") - 1)
    ).to_series()
    epochs = epochs.with_columns(
        prefix_cache_hits_total=pl.col("prefix_cache_hits_total")
        + pl.col(EXTERNAL_HITS).fill_null(0.0),
        **_BALANCES,
    )
    at_last = epochs.select(pl.col([*_COUNTED, *EDGES]).gather(spans["last"]))
    at_base = epochs.select(pl.col(_COUNTED).gather(base).name.suffix("_base"))
    differences = at_last.hstack(at_base).hstack(spans.select("zero")).select(_GROWN)
    return _added_up(spans.select(_GROUP).hstack(differences))


# Two balances of requests that do not depend on what vLLM counts as aborted: those that began (a
# first token) minus those that finished or run; and minus those that finished, run or wait.
_ANSWERED = pl.coalesce(
    pl.col("finished_requests_total") - pl.col("aborted_requests_total").fill_null(0.0),
    "prompt_tokens_count",
)
_RUNS = pl.col("running_requests")
_BALANCES = {
    "begun_balance": pl.col("ttft_seconds_count") - _ANSWERED - _RUNS,
    "left_balance": -_ANSWERED - _RUNS - waiting(),
}


def _given_up() -> pl.Expr:
    """Increase of ``begun_balance``, or of ``left_balance`` where that is larger.

    The first is slightly negative where earlier prompts got their first tokens. The second holds
    even if no request arrived: a waiting request has no first token.
    """
    begun, left = (
        pl.col(name) - pl.when("zero").then(0.0).otherwise(f"{name}_base") for name in _BALANCES
    )
    return pl.when((left > 0) & (left > begun)).then(left).otherwise(begun)


def _grown() -> list[pl.Expr]:
    # a counter that fell while it was off the page has no increase
    counted = (c for c in SUMS if c != GIVEN_UP)
    grown = {c: pl.col(c) - pl.when("zero").then(0.0).otherwise(f"{c}_base") for c in counted}
    measured = {
        name: (grown[f"{name}_sum"] != 0) | (grown[f"{name}_count"] == 0) for name in NEVER_ZERO
    }
    grown |= {f"{n}_sum": pl.when(is_one).then(grown[f"{n}_sum"]) for n, is_one in measured.items()}
    buckets = (
        pl.when(~measured.get(c.removesuffix("_buckets"), pl.lit(True)))
        .then(None)
        .when("zero")
        .then(c)
        .when((grown[c.replace("_buckets", "_count")] >= 0).fill_null(True))
        .then(pl.col(c) - pl.col(f"{c}_base"))
        .alias(c)
        for c in BUCKETS
    )
    return [
        *(pl.when(grew >= 0).then(grew).alias(c) for c, grew in grown.items()),
        _given_up().alias(GIVEN_UP),
        *buckets,
        pl.col(EDGES),
    ]


_COUNTED = [*(c for c in SUMS if c != GIVEN_UP), *_BALANCES, *BUCKETS]
_GROWN = _grown()


def _added_up(parts: pl.DataFrame) -> pl.DataFrame:
    """Parts of one minute added up; minutes of one part (nearly all) pass through."""
    if not parts.select(_GROUP).is_duplicated().any():
        return parts
    counted = parts.with_columns(parts_in_minute=pl.len().over(_GROUP))
    single = counted.filter(pl.col("parts_in_minute") == 1).drop("parts_in_minute")
    several = counted.filter(pl.col("parts_in_minute") > 1)
    added = several.group_by(_GROUP, maintain_order=True).agg(
        # a sum over parts is unknown when a part is unknown
        *(pl.when(pl.col(c).is_not_null().all()).then(pl.col(c).sum()) for c in SUMS),
        *(pl.col(c) for c in BUCKETS),
        *(pl.col(c).drop_nulls().n_unique().alias(f"{c}_kinds") for c in EDGES),
        *(pl.col(c).last() for c in EDGES),
    )
    added = added.with_columns(
        pl.Series(
            lists,
            [_list_sum(*values) for values in added.select(lists, f"{edges}_kinds").iter_rows()],
            dtype=pl.List(pl.Float64),
        )
        for lists, edges in zip(BUCKETS, EDGES, strict=True)
    )
    return pl.concat([single, added.select(single.columns)])


def _list_sum(lists: list[list[float] | None], kinds: int) -> list[float] | None:
    """Element-wise sum; the last list alone where edges changed; NULL where one is unknown."""
    present = [values for values in lists if values is not None]
    if len(present) != len(lists):
        return None
    if kinds > 1:
        return present[-1]
    return [sum(column) for column in zip(*present, strict=True)]


def _counted(facts: pl.DataFrame, since: datetime) -> pl.DataFrame:
    """Counts of scrapes in which requests wait, and facts of those in which they lack capacity."""
    rows = facts.filter(pl.col("time") >= since).with_columns(
        end=(pl.col("time").dt.truncate("1m") + _MINUTE).cast(TIME)
    )
    deferred = pl.col("deferred") > 0
    counts = rows.group_by(_GROUP, maintain_order=True).agg(
        scrapes_queue_known=pl.col("capacity").count().cast(pl.Float64),
        waiting_for_capacity_sum=pl.col("capacity").sum(),
        scrapes_deferred_known=pl.col("deferred").count().cast(pl.Float64),
        scrapes_deferred=deferred.sum().cast(pl.Float64),
        deferred_sum=pl.col("deferred").filter(deferred).sum(),
    )
    queued = (
        rows.filter(pl.col("capacity") > 0)
        .with_columns(second=pl.col("time").dt.second())
        .group_by(_GROUP, maintain_order=True)
        .agg(
            pl.col(fact).cast(pl.Float64).round_sig_figs(3).alias(name)
            for name, fact in QUEUED.items()
        )
    )
    return counts.join(queued, on=_GROUP, how="left", maintain_order="left")
