"""Scrapes → minute rows. Pure, and the only place that knows about scrapes.

A minute's increases are those of the scrapes in it (start <= time < end) since the last scrape
before it, so neighbouring minutes share no increment and lose none. A minute with a restart or a
knob change adds up both sides.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

import polars as pl

from driftwatch.collect.schema import KEY, TIME, in_order
from driftwatch.minutes.continuity import MEAN_GAUGES, in_seconds, with_epochs
from driftwatch.minutes.engine import is_asleep, kind_of_scrape, with_life
from driftwatch.minutes.scheduler import SAMPLE_SCHEMA, no_samples, scrape_facts
from driftwatch.minutes.schema import BUCKETS, EDGES, EXTERNAL_HITS, MINUTE_ROW_SCHEMA, QUEUED, SUMS

_MINUTE = timedelta(minutes=1)
_GROUP = [*KEY, "end"]
_LABELS = ("model_name", "cache_config", "several_api_servers")


@dataclass(frozen=True, slots=True)
class MinuteRows:
    """Minutes of targets, and what the next ones begin with."""

    rows: pl.DataFrame  # :data:`MINUTE_ROW_SCHEMA`, by target and end, each minute of each target
    samples: pl.DataFrame  # :data:`SAMPLE_SCHEMA`, of the last scrape of each target before the end


def minute_grid(targets: pl.DataFrame, since: datetime, until: datetime) -> pl.DataFrame:
    """Every whole minute of [since, until) for every target: instance, engine, start, end.

    ``targets``: instance, engine; ``since``, ``until``: whole minutes.
    """
    starts = pl.datetime_range(since, until, "1m", closed="left", eager=True).cast(TIME)
    minutes = pl.DataFrame({"start": starts}).with_columns(end=(pl.col("start") + _MINUTE))
    keys = targets.select(KEY).unique(maintain_order=True)
    return keys.join(minutes.cast({"end": TIME}), how="cross").sort([*KEY, "start"])


def minute_rows(
    scrapes: pl.DataFrame,
    targets: pl.DataFrame,
    since: datetime,
    until: datetime,
    samples: pl.DataFrame | None = None,
) -> MinuteRows:
    """The minutes of [since, until) of each target.

    ``scrapes``: scrape table; of each target the last usable scrape before ``since`` as well, or
    its first minute counts from the first scrape in it; ``targets``: instance, engine;
    ``samples``: :data:`SAMPLE_SCHEMA`, of these last scrapes, None = unknown.
    """
    grid = minute_grid(targets, since, until)
    epochs = with_epochs(scrapes.filter(pl.col("time") < until)).with_columns(
        # before waiting_by_reason existed every waiting request waited for capacity
        waiting_capacity_requests=pl.coalesce("waiting_capacity_requests", "waiting_requests"),
    )
    facts = scrape_facts(epochs, no_samples() if samples is None else samples)
    epochs = epochs.hstack(with_life(epochs)).with_columns(
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
    return MinuteRows(
        rows.select(pl.col(name).cast(dtype) for name, dtype in MINUTE_ROW_SCHEMA.items()), last
    )


def _looks(scrapes: pl.DataFrame, since: datetime, until: datetime) -> pl.DataFrame:
    """How often anybody looked, and why it failed."""
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
    """What the scrapes of a minute showed, and its last one."""
    return (
        epochs.with_columns(
            kind=kind_of_scrape(),
            asleep=is_asleep(),
            alive_time=pl.when("alive").then("time"),
        )
        .group_by(_GROUP, maintain_order=True)
        .agg(
            *(pl.col(gauge).mean() for gauge in MEAN_GAUGES),
            scrapes=pl.len().cast(pl.Float64),
            duration_seconds=in_seconds(pl.col("step_microseconds").sum()),
            last_scrape_age_seconds=_seconds(pl.col("end").last() - pl.col("time").last()),
            restarted=pl.col("restarted").any(),
            configuration_changed=pl.col("configuration_changed").any(),
            engine_kind=pl.col("kind").last(),
            engine_asleep=pl.col("asleep").last(),
            alive_age_seconds=_seconds(
                pl.col("time").last() - pl.col("alive_time").drop_nulls().last()
            ),
            presence_known=pl.col("presence_known").last(),
            running_requests_max=pl.col("running_requests").max(),
            **{label: pl.col(label).last() for label in _LABELS},
        )
    )


def _seconds(elapsed: pl.Expr) -> pl.Expr:
    return in_seconds(elapsed.dt.total_microseconds())


def _increases(epochs: pl.DataFrame, inside: pl.Expr) -> pl.DataFrame:
    """Increases of counters and histograms, epoch by epoch, added up.

    Within an epoch a minute's increase is its last scrape minus the scrape before its first one; 0
    stands for that where the process began in between, the first scrape itself where nobody knows.
    """
    spans = (
        epochs.filter(inside)
        .group_by([*_GROUP, "epoch"], maintain_order=True)
        .agg(
            first=pl.col("row").first(),
            last=pl.col("row").last(),
            starts=pl.col("epoch_starts").first(),
            # a restart in a gap is none of this minute: its increments may be older
            zero=(pl.col("restarted") & (pl.col("step_microseconds") > 0)).first(),
        )
    )
    base = spans.select(
        pl.when("zero").then(None).when("starts").then("first").otherwise(pl.col("first") - 1)
    ).to_series()
    epochs = epochs.with_columns(
        prefix_cache_hits_total=pl.col("prefix_cache_hits_total")
        + pl.col(EXTERNAL_HITS).fill_null(0.0)
    )
    counted = [*SUMS, *BUCKETS]
    at_last = epochs.select(pl.col([*counted, *EDGES]).gather(spans["last"]))
    at_base = epochs.select(pl.col(counted).gather(base))
    joined = at_last.hstack(at_base.rename(lambda c: f"{c}_base")).with_columns(spans["zero"])
    # what fell while it was off the page shows no increase
    grown = {c: pl.col(c) - pl.when("zero").then(0.0).otherwise(f"{c}_base") for c in SUMS}
    differences = joined.select(
        *(pl.when(grew >= 0).then(grew).alias(c) for c, grew in grown.items()),
        *(
            pl.when("zero")
            .then(c)
            .when((grown[c.replace("_buckets", "_count")] >= 0).fill_null(True))
            .then(pl.col(c) - pl.col(f"{c}_base"))
            .alias(c)
            for c in BUCKETS
        ),
        *EDGES,
    )
    return _added_up(spans.select(_GROUP).hstack(differences))


def _added_up(parts: pl.DataFrame) -> pl.DataFrame:
    """Parts of one minute added up; minutes of one part (nearly all) pass through."""
    counted = parts.with_columns(parts_in_minute=pl.len().over(_GROUP))
    single = counted.filter(pl.col("parts_in_minute") == 1).drop("parts_in_minute")
    several = counted.filter(pl.col("parts_in_minute") > 1)
    if several.is_empty():
        return single
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
    """Counts of scrapes in which requests wait, and the facts of those that wait for capacity."""
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
