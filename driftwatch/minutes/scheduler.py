"""Facts about the scheduler, scrape by scrape.

Two scrapes read the same where a page changes every 15 s, or where Prometheus scrapes it once a
minute. That is one sample, repeated: its facts hold until the next sample. A frozen engine's page
reads the same too, so a repeat counts for one minute, the longest supported scrape interval.
"""

from __future__ import annotations

import polars as pl

from driftwatch.collect.registry import COUNTERS, GAUGES, HISTOGRAMS
from driftwatch.collect.schema import KEY, TIME
from driftwatch.minutes.engine import WORK

# How long a repeat counts: Prometheus' default scrape_interval, half of STUCK_SECONDS.
BELIEVED_SECONDS = 60

_VALUES = (*COUNTERS, *GAUGES, *(f"{h}_{part}" for h in HISTOGRAMS for part in ("sum", "count")))
# changes since the scrape before: a repeated sample has none of its own
_SINCE: dict[str, type[pl.DataType]] = {
    "preempted": pl.Float64,
    "tokens_per_step": pl.Float64,
    "first_tokens_per_step": pl.Float64,
    "steps_per_second": pl.Float64,
    "stalled": pl.Boolean,
}
# What the last scrape of each target showed: the next one may repeat it.
SAMPLE_SCHEMA: dict[str, pl.DataType | type[pl.DataType]] = {
    "instance": pl.String,
    "engine": pl.String,
    "time": TIME,
    "sampled_at": TIME,
    **_SINCE,
}


def no_samples() -> pl.DataFrame:
    """No earlier scrape."""
    return pl.DataFrame(schema=SAMPLE_SCHEMA)


def scrape_facts(epochs: pl.DataFrame, samples: pl.DataFrame) -> pl.DataFrame:
    """Facts about the scheduler in each scrape.

    ``epochs``: from :func:`driftwatch.minutes.continuity.with_epochs`; ``samples``:
    :data:`SAMPLE_SCHEMA`, of scrapes that are among ``epochs``.
    Returns: instance, engine, time, ``running``, ``capacity`` (waiting for capacity), ``deferred``,
    ``kv`` (ratio); since the previous scrape of the epoch, NULL on its first, ``preempted``,
    ``tokens_per_step``, ``first_tokens_per_step``, ``steps_per_second`` and ``stalled`` (requests
    run, and nothing shows work); ``repeats`` (the page reads as before, for less than a minute)
    and ``sampled_at`` (the scrape that showed the sample first).
    """
    same = ~pl.col("epoch_starts")  # else the row before is of another epoch, or target

    def increase(column: str) -> pl.Expr:
        return pl.when(same).then(pl.col(column) - pl.col(column).shift(1))

    steps = increase("iteration_tokens_count")
    seconds = pl.when(same).then(pl.col("time").diff().dt.total_microseconds() / 1e6)
    facts = epochs.select(
        *KEY,
        "time",
        running=pl.col("running_requests"),
        capacity=pl.col("waiting_capacity_requests"),
        deferred=pl.col("waiting_deferred_requests"),
        kv=pl.col("kv_cache_usage_ratio"),
        preempted=increase("preemptions_total"),
        tokens_per_step=pl.when(steps > 0).then(increase("iteration_tokens_sum") / steps),
        first_tokens_per_step=pl.when(steps > 0).then(increase("ttft_seconds_count") / steps),
        steps_per_second=steps / pl.when(seconds > 0).then(seconds),
        stalled=(increase("generation_tokens_total") == 0)
        & pl.all_horizontal((increase(c) == 0).fill_null(True) for c in WORK)
        & (pl.col("running_requests") > 0),
    )
    return _with_samples(facts, _reads_the_same(epochs, facts["stalled"]), samples)


def _reads_the_same(epochs: pl.DataFrame, stalled: pl.Series) -> pl.Series:
    """Whether a stalled scrape shows exactly what the one before it showed."""
    rows = stalled.fill_null(False).arg_true()
    repeated = pl.repeat(False, len(epochs), dtype=pl.Boolean, eager=True)
    if not len(rows):
        return repeated
    # a stalled scrape never begins an epoch: the row before it is of the same target
    now, before = (epochs.select(pl.col(_VALUES).gather(at)) for at in (rows, rows - 1))
    same = pl.repeat(True, len(rows), dtype=pl.Boolean, eager=True)
    for name in _VALUES:
        same &= now[name].eq_missing(before[name])
    return repeated.scatter(rows.filter(same), True)


def _with_samples(facts: pl.DataFrame, again: pl.Series, samples: pl.DataFrame) -> pl.DataFrame:
    """Facts of scrapes; a repeated sample has the facts of its first scrape."""
    known = facts.select(*KEY, "time").join(
        samples.rename({name: f"{name}_known" for name in ("sampled_at", *_SINCE)}),
        on=[*KEY, "time"],
        how="left",
        maintain_order="left",
    )
    facts = facts.hstack(known.drop(*KEY, "time"))
    is_known = pl.col("sampled_at_known").is_not_null()
    facts = facts.with_columns(
        **{n: pl.when(is_known).then(f"{n}_known").otherwise(n) for n in _SINCE},
        sampled_at=pl.coalesce("sampled_at_known", "time"),
    ).drop("sampled_at_known", *(f"{n}_known" for n in _SINCE))
    if not again.any():
        return facts.with_columns(repeats=pl.lit(False))
    place = facts.select(
        pl.when(~again).then(pl.int_range(pl.len(), dtype=pl.UInt32)).forward_fill()
    ).to_series()
    sampled = facts["sampled_at"].gather(place)
    believed = again & ((facts["time"] - sampled).dt.total_milliseconds() < BELIEVED_SECONDS * 1000)
    then = facts.select(pl.col(list(_SINCE)).gather(place)).rename(lambda name: f"{name}_then")
    return (
        facts.hstack(then)
        .with_columns(
            sampled_at=sampled,
            repeats=believed,
            **{name: pl.when(believed).then(f"{name}_then").otherwise(name) for name in _SINCE},
        )
        .drop(then.columns)
    )
