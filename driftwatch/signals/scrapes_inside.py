"""The single scrapes of a window, for questions that a difference of counters cannot answer."""

from __future__ import annotations

import polars as pl

from driftwatch.signals.as_of import at_end, at_start, keys
from driftwatch.signals.repeats import reads_the_same
from driftwatch.signals.stuck import WORK


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

    Args:
        epochs: from :func:`driftwatch.signals.continuity.with_epochs`.

    Returns:
        instance, engine (or ``target``), time, epoch, ``running``, ``capacity`` (waiting for
        capacity), ``deferred``, ``kv`` (ratio), ``preempted``, ``tokens_per_step``,
        ``first_tokens_per_step`` and ``steps_per_second`` (since the previous scrape of the epoch,
        NULL on its first), ``several_api_servers``, ``stalled`` (requests run, and nothing shows
        work since the previous scrape of the epoch), and ``repeats``
        (so, and the page reads the same: :func:`driftwatch.signals.repeats.with_samples`).
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

    Args:
        facts: from :func:`scrape_facts`, sorted by target and time.
        windows: instance, engine, start, end.

    Returns:
        ``window`` (row number in ``windows``) and the facts; start <= time < end.
    """
    rows = facts.with_row_index("row")
    by = keys(facts)
    asked = windows.select([*by, "start", "end"])
    last = at_end(asked, rows.select([*by, "time", "row", "epoch"]))
    first = at_start(asked, rows.select([*by, "time", "row"]))
    spans = (
        last.drop_nulls("row")
        .filter(pl.col("time") >= pl.col("start"))
        .select("window", "epoch", last_row="row")
        .join(first.select("window", first_row="row"), on="window", maintain_order="left")
        .with_columns(row=pl.int_ranges("first_row", pl.col("last_row") + 1))
        .select("window", "row", window_epoch="epoch")
        .explode("row", empty_as_null=True)
    )
    found = rows.drop("row").select(pl.all().gather(spans["row"]))
    found = spans.select("window", "window_epoch").hstack(found)
    return found.filter(pl.col("epoch") == pl.col("window_epoch")).drop("window_epoch")
