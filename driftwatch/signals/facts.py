"""What single scrapes show of the scheduler, for questions that differences cannot answer.

A page that changes every 15 s, or that a Prometheus takes once a minute, reads the same from one
scrape to the next. That is one sample seen several times: what it says of the scheduler held until
the next sample came, and no step without a token lies between them. A frozen engine's page reads
the same too, so this is believed for a minute only, the longest interval that scrapes are promised
to be judged at; from then on the engine gives no token.
"""

from __future__ import annotations

import polars as pl

from driftwatch.collect.registry import COUNTERS, GAUGES, HISTOGRAMS
from driftwatch.signals.continuity import at_end, at_start, keys
from driftwatch.signals.engine import WORK

# Prometheus' default scrape_interval, and half of what makes an engine stuck.
BELIEVED_SECONDS = 60

_VALUES = (*COUNTERS, *GAUGES, *(f"{h}_{part}" for h in HISTOGRAMS for part in ("sum", "count")))
# since the scrape before: of a repeated sample there is nothing between the two
_SINCE = ("preempted", "tokens_per_step", "first_tokens_per_step", "steps_per_second", "stalled")


def reads_the_same(epochs: pl.DataFrame, stalled: pl.Series) -> pl.Series:
    """Whether a scrape shows nothing but what the one before it showed.

    ``epochs``: from :func:`driftwatch.signals.continuity.with_epochs`; ``stalled``: requests run,
    and no token came since the scrape before. Only of these it is asked: of any other scrape the
    answer would change nothing.
    Returns: boolean per row of ``epochs``.
    """
    rows = stalled.fill_null(False).arg_true()
    if not len(rows):
        return pl.repeat(False, len(epochs), dtype=pl.Boolean, eager=True)
    # a stalled scrape is none that begins an epoch: the row before it is of the same target
    now, before = (epochs.select(pl.col(_VALUES).gather(at)) for at in (rows, rows - 1))
    same = pl.repeat(True, len(rows), dtype=pl.Boolean, eager=True)
    for name in _VALUES:
        same &= now[name].eq_missing(before[name])
    repeated = pl.repeat(False, len(epochs), dtype=pl.Boolean, eager=True)
    return repeated.scatter(rows.filter(same), True)


def with_samples(facts: pl.DataFrame, new: pl.Series) -> pl.DataFrame:
    """Facts of scrapes, those of repeated samples as their sample's were.

    ``facts``: by target and time, with ``time``, ``preempted``, ``tokens_per_step``,
    ``first_tokens_per_step``, ``steps_per_second``, ``stalled`` and ``repeats``
    (:func:`reads_the_same`); of rows that are not new as this function left them, with
    ``sampled_at``; ``new``: Boolean per row; the row before a new one that repeats is of the same
    target.
    Returns: the rows with ``sampled_at`` (the scrape that showed the sample first); ``repeats`` is
    true while the repetition is believed, and what happened since the scrape before is then what
    the sample said.
    """
    again = facts["repeats"] & new
    at = facts.select(pl.when(new).then("time").otherwise("sampled_at")).to_series()
    if not again.any():
        return facts.with_columns(sampled_at=at)
    place = facts.select(
        pl.when(~again).then(pl.int_range(pl.len(), dtype=pl.UInt32)).forward_fill()
    ).to_series()
    sampled = at.gather(place)
    age = (facts["time"] - sampled).dt.total_milliseconds()
    believed = again & (age < BELIEVED_SECONDS * 1000)
    then = facts.select(pl.col(_SINCE).gather(place)).rename(lambda name: f"{name}_then")
    return (
        facts.hstack(then)
        .with_columns(
            sampled_at=sampled,
            repeats=pl.when(new).then(believed).otherwise("repeats"),
            **{name: pl.when(believed).then(f"{name}_then").otherwise(name) for name in _SINCE},
        )
        .drop(then.columns)
    )


def gauge_facts() -> dict[str, pl.Expr]:
    """The facts that one scrape's gauges are."""
    return {
        "running": pl.col("running_requests"),
        "waiting": pl.col("waiting_requests"),
        # before waiting_by_reason existed every waiting request waited for capacity
        "capacity": pl.coalesce("waiting_capacity_requests", "waiting_requests"),
        "deferred": pl.col("waiting_deferred_requests"),
        "kv": pl.col("kv_cache_usage_ratio"),
    }


def scrape_facts(epochs: pl.DataFrame) -> pl.DataFrame:
    """What one scrape shows of the scheduler, narrow enough to repeat in every window.

    ``epochs``: from :func:`driftwatch.signals.continuity.with_epochs`.
    Returns: instance, engine (or ``target``), time, epoch, ``running``, ``capacity`` (waiting for
    capacity), ``deferred``, ``kv`` (ratio), ``preempted``, ``tokens_per_step``,
    ``first_tokens_per_step`` and ``steps_per_second`` (since the previous scrape of the epoch, NULL
    on its first), ``several_api_servers``, ``stalled`` (requests run, and nothing shows work since
    the previous scrape of the epoch), and ``repeats`` (so, and the page reads the same:
    :func:`driftwatch.signals.facts.with_samples`).
    """
    by = keys(epochs)
    same = ~pl.col("epoch_starts")  # else the row before is of another epoch, or target

    def increase(column: str) -> pl.Expr:
        return pl.when(same).then(pl.col(column) - pl.col(column).shift(1))

    steps = increase("iteration_tokens_count")
    seconds = pl.when(same).then(pl.col("time").diff().dt.total_microseconds() / 1e6)
    facts = epochs.select(
        *by,
        "time",
        "epoch",
        "several_api_servers",
        **gauge_facts(),
        preempted=increase("preemptions_total"),
        tokens_per_step=pl.when(steps > 0).then(increase("iteration_tokens_sum") / steps),
        first_tokens_per_step=pl.when(steps > 0).then(increase("ttft_seconds_count") / steps),
        steps_per_second=steps / pl.when(seconds > 0).then(seconds),
        stalled=(increase("generation_tokens_total") == 0)
        & pl.all_horizontal((increase(c) == 0).fill_null(True) for c in WORK)
        & (pl.col("running_requests") > 0),
    )
    return facts.with_columns(repeats=reads_the_same(epochs, facts["stalled"]))


def inside(facts: pl.DataFrame, windows: pl.DataFrame) -> pl.DataFrame:
    """Every scrape of every window, cut at the beginning of the window's last epoch.

    ``facts``: from :func:`scrape_facts`, sorted by target and time; ``windows``: instance, engine,
    start, end.
    Returns: ``window`` (row number in ``windows``) and the facts; start <= time < end.
    """
    rows = facts.with_row_index("row")
    by = keys(facts)
    wanted = windows.select([*by, "start", "end"])
    last = at_end(wanted, rows.select([*by, "time", "row", "epoch"]))
    first = at_start(wanted, rows.select([*by, "time", "row"]))
    spans = (
        last.drop_nulls("row")
        .filter(pl.col("time") >= pl.col("start"))
        .select("window", "epoch", last_row="row")
        .join(first.select("window", first_row="row"), on="window", maintain_order="left")
        .with_columns(row=pl.int_ranges("first_row", pl.col("last_row") + 1))
        .select("window", "row", window_epoch="epoch")
        .explode("row", empty_as_null=True)
    )
    facts_inside = rows.drop("row").select(pl.all().gather(spans["row"]))
    facts_inside = spans.select("window", "window_epoch").hstack(facts_inside)
    return facts_inside.filter(pl.col("epoch") == pl.col("window_epoch")).drop("window_epoch")
