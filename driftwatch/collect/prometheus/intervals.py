"""How often a Prometheus scrapes: what a grid with a longer step cannot see."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta

import polars as pl

from driftwatch.collect.prometheus.ask import RangeAsker
from driftwatch.collect.prometheus.query import grid, matchers, select
from driftwatch.errors import Partial

_STEP_SECONDS = 1.0
_LOOK_SECONDS = 180.0


def scrape_intervals_seconds(
    ranges: RangeAsker,
    selector: Mapping[str, str],
    until: datetime,
    *,
    step_seconds: float = _STEP_SECONDS,
    look_seconds: float = _LOOK_SECONDS,
) -> dict[str, float]:
    """Instance → median (of two the lower) distance of its scrapes just before ``until``.

    It is asked for on a grid finer than any usual scrape interval; an instance with fewer than
    three scrapes in that time is not in it.

    Args:
        selector: label → value that the targets' series carry.
        until: aware; as far behind now as scrapes need to be visible.
        step_seconds: of the grid; an interval below it looks like it.

    Raises:
        SourceError: ``timestamp(up)`` was not answered.
    """
    times = grid(until - timedelta(seconds=look_seconds), until, step_seconds)
    if times is None:
        return {}
    text = f"timestamp({select(('up',), matchers(selector))})"
    found, errors = ranges.range(text, times)
    for error in errors:
        if not isinstance(error, Partial):
            raise error
    labels = found.labels
    named = pl.DataFrame(
        {
            "series": range(len(labels)),
            "instance": [one.get("instance") for one in labels],
        },
        schema={"series": pl.UInt32, "instance": pl.String},
    )
    apart = (
        found.long.join(named.drop_nulls(), on="series")
        .select("series", "instance", (pl.col("value") * 1000).round().alias("scraped"))
        .unique()
        .sort("series", "scraped")
        .with_columns(pl.col("scraped").diff().over("series").alias("apart"))
        .drop_nulls()
    )
    # of two jobs that scrape one instance the one that scrapes more often counts
    each = apart.group_by("instance", "series").agg(
        # the lower of two: beside a gap (the API started again) the other is the interval
        pl.col("apart").quantile(0.5, interpolation="lower"),
        pl.len(),
    )
    often = each.filter(pl.col("len") > 1)
    best = often.group_by("instance").agg(pl.col("apart").min()).sort("instance")
    return {instance: apart / 1000 for instance, apart in best.iter_rows()}
