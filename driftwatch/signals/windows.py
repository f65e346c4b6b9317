"""What happened in a window: increases of counters and histograms, means of gauges.

A window is a row (instance, engine, start, end). Because counters are running sums inside an
epoch, its increase is the last scrape minus a *base* scrape. Two conventions:

* ``chained`` windows (the minute grid): scrapes with start <= time < end count, and the base is
  the last scrape before ``start``, so neighbouring windows share no increment and lose none;
* ``whole`` windows (asked for by a person): scrapes with start <= time <= end count, and the base
  is the first of them, so nothing from outside the window is in it.

A window never reaches across an epoch (restart, knob change, gap) with ``cut``: what came before
the last epoch's beginning is left out. Without ``cut`` the epochs inside are added up.
"""

from __future__ import annotations

from typing import Literal

import polars as pl

from driftwatch.collect.registry import COUNTERS, HISTOGRAMS
from driftwatch.collect.schema import KEY_COLUMNS
from driftwatch.signals.as_of import at_end, at_start
from driftwatch.signals.continuity import MEAN_GAUGES, in_seconds

Kind = Literal["chained", "whole"]

_KEY = list(KEY_COLUMNS)
_WINDOW = [*_KEY, "start", "end"]
_SUMS = (*COUNTERS, *(f"{h}_{part}" for h in HISTOGRAMS for part in ("sum", "count")))
_LISTS = tuple(f"{h}_buckets" for h in HISTOGRAMS)
_EDGES = tuple(f"{h}_edges" for h in HISTOGRAMS)


def totals(epochs: pl.DataFrame, windows: pl.DataFrame, *, kind: Kind, cut: bool) -> pl.DataFrame:
    """Additive totals per window.

    Args:
        epochs: scrapes with continuity (:func:`driftwatch.signals.continuity.with_epochs`).
        windows: columns instance, engine, start, end; one row per window asked for.
        kind: chained or whole (see the module's text).
        cut: leave out what came before the last epoch in the window.

    Returns:
        The windows, in their order, with: increases of every counter, histogram ``_sum`` and
        ``_count`` (Float64) and ``_buckets`` (List, cumulative by edge) with their ``_edges``;
        ``<gauge>_mean``; ``scrapes`` (count), ``duration_seconds``, ``restarted``,
        ``configuration_changed``, ``first_time``, ``last_time``, and the last known
        ``model_name``, ``cache_config``, ``several_api_servers``. NULL where the window has no
        scrape, or a series is on neither or only one of the two scrapes.
    """
    numbered = _numbered(epochs)
    asked = windows.select(_WINDOW).with_row_index("window")
    bounds = _bounds(numbered, asked, kind)
    parts = _cut_parts(bounds, numbered) if cut else _epoch_parts(bounds, numbered)
    found = _differences(numbered, parts)
    if not cut:
        found = _added_up(found)
    means = _gauge_means(numbered, parts)
    return (
        asked.join(found, on="window", how="left", maintain_order="left")
        .join(means, on="window", how="left", maintain_order="left")
        .drop("window")
        .with_columns(
            pl.col("scrapes").fill_null(0.0),
            pl.col("duration_seconds").fill_null(0.0),
        )
    )


def _numbered(epochs: pl.DataFrame) -> pl.DataFrame:
    """Rows numbered from 0, with the running sum of covered time (whole numbers: exact)."""
    return epochs.with_columns(
        microseconds=pl.col("step_microseconds").cum_sum().over(_KEY)
    ).with_row_index("row")


def _gauge_means(numbered: pl.DataFrame, parts: pl.DataFrame) -> pl.DataFrame:
    """window → mean of every gauge over the scrapes of its parts; NULL where none shows it.

    Added up scrape by scrape, not as a difference of running sums: a mean must not depend, not
    even in its last digit, on how much history lies before the window.
    """
    scrapes = (
        parts.select("window", row=pl.int_ranges("first", pl.col("last") + 1))
        .explode("row", empty_as_null=True)
        .with_columns(pl.col("row").cast(pl.UInt32))
    )
    values = numbered.select("row", *MEAN_GAUGES)
    return (
        scrapes.join(values, on="row", maintain_order="left")
        .group_by("window", maintain_order=True)
        .agg(pl.col(g).mean().alias(f"{g}_mean") for g in MEAN_GAUGES)
    )


def _bounds(numbered: pl.DataFrame, asked: pl.DataFrame, kind: Kind) -> pl.DataFrame:
    """First and last row of every window that has any, and the row before the first.

    Returns:
        window, first, last (row numbers), before (row number or NULL).
    """
    rows = numbered.select([*_KEY, "time", "row"])
    last = at_end(asked.drop("window"), rows, inclusive=kind == "whole")
    first = at_start(asked.drop("window"), rows)
    both = last.select("window", last="row", last_time="time", start="start").join(
        first.select("window", first="row"), on="window"
    )
    both = both.filter(pl.col("last_time") >= pl.col("start"))
    starts_target = numbered.select(first="row", has_before=pl.col("previous_time").is_not_null())
    return both.join(starts_target, on="first").select(
        "window",
        "first",
        "last",
        before=pl.when(pl.col("has_before") & (kind == "chained")).then(
            pl.col("first").cast(pl.Int64) - 1
        ),
    )


def _cut_parts(bounds: pl.DataFrame, numbered: pl.DataFrame) -> pl.DataFrame:
    """One part per window: its last epoch."""
    epoch_first = numbered.filter("epoch_starts").select(*_KEY, "epoch", epoch_first="row")
    rows = numbered.select([*_KEY, "epoch", "row"]).join(
        epoch_first, on=[*_KEY, "epoch"], maintain_order="left"
    )
    return _with_base(
        bounds.join(rows.select(last="row", epoch_first="epoch_first"), on="last").with_columns(
            first_of_part=pl.max_horizontal("first", "epoch_first")
        ),
        numbered,
    )


def _epoch_parts(bounds: pl.DataFrame, numbered: pl.DataFrame) -> pl.DataFrame:
    """A part per epoch that the window touches, in order."""
    starts = numbered.filter("epoch_starts").select(epoch_row="row")
    inside = (
        bounds.join_where(
            starts,
            pl.col("epoch_row") > pl.col("first"),
            pl.col("epoch_row") <= pl.col("last"),
        )
        .select("window", "epoch_row")
        .sort("window", "epoch_row")
    )
    begins = pl.concat(
        [
            bounds.select("window", first_of_part="first"),
            inside.select("window", first_of_part="epoch_row"),
        ]
    ).sort("window", "first_of_part")
    ends = pl.coalesce(pl.col("first_of_part").shift(-1).over("window") - 1, pl.col("last"))
    parts = begins.join(bounds, on="window", maintain_order="left").with_columns(last=ends)
    return _with_base(parts, numbered)


def _with_base(parts: pl.DataFrame, numbered: pl.DataFrame) -> pl.DataFrame:
    """Where each part's increments start from.

    ``base`` is a row number: the scrape before the part when it belongs to the same epoch, else
    the part's own first scrape; NULL with ``from_zero`` when the part's epoch began with a
    restart inside the window, for then its counters started at 0.
    """
    flags = numbered.select(first_of_part="row", starts="epoch_starts", from_zero="restarted")
    joined = parts.join(flags, on="first_of_part", maintain_order="left")
    inside = pl.col("first_of_part") > pl.col("first")
    chained = pl.col("before").is_not_null()
    zero = pl.col("starts") & pl.col("from_zero") & (inside | chained)
    own = pl.col("first_of_part").cast(pl.Int64)
    base = (
        pl.when(zero)
        .then(None)
        .when(pl.col("starts") | inside)
        .then(own)
        .otherwise(pl.coalesce("before", own))
    )
    return joined.select(
        "window",
        "last",
        first="first_of_part",
        base=base,
        zero=zero,
        # what happened at the part's first scrape happened since a scrape that the window knows
        compared=inside | chained,
    )


def _differences(numbered: pl.DataFrame, parts: pl.DataFrame) -> pl.DataFrame:
    """Last scrape minus base scrape, per part."""
    carried = ["model_name", "cache_config", "several_api_servers"]
    flags = ["restarted", "configuration_changed"]
    values = numbered.with_columns(pl.col("row").cast(pl.Int64))
    parts = parts.with_columns(pl.col("last", "first").cast(pl.Int64))
    at_last = values.select("row", "time", "microseconds", *_SUMS, *_LISTS, *_EDGES, *carried)
    at_base = values.select("row", "microseconds", *_SUMS, *_LISTS)
    at_first = values.select("row", "time", "microseconds", "step_microseconds", *flags)
    joined = (
        parts.join(at_last, left_on="last", right_on="row", maintain_order="left")
        .join(
            at_base,
            left_on="base",
            right_on="row",
            how="left",
            suffix="_base",
            maintain_order="left",
        )
        .join(
            at_first,
            left_on="first",
            right_on="row",
            how="left",
            suffix="_first",
            maintain_order="left",
        )
    )
    zero = pl.col("zero")
    sums = [
        (pl.col(c) - pl.when(zero).then(0.0).otherwise(pl.col(f"{c}_base"))).alias(c) for c in _SUMS
    ]
    lists = [
        pl.when(zero).then(pl.col(c)).otherwise(pl.col(c) - pl.col(f"{c}_base")).alias(c)
        for c in _LISTS
    ]
    begun = (
        pl.when(zero)
        .then(pl.col("microseconds_first") - pl.col("step_microseconds"))
        .otherwise(pl.col("microseconds_base"))
    )
    return joined.select(
        "window",
        *sums,
        *lists,
        *_EDGES,
        *carried,
        scrapes=(pl.col("last") - pl.col("first") + 1).cast(pl.Float64),
        duration_seconds=in_seconds(pl.col("microseconds") - begun),
        restarted=pl.col("restarted") & pl.col("compared"),
        configuration_changed=pl.col("configuration_changed") & pl.col("compared"),
        first_time=pl.col("time_first"),
        last_time=pl.col("time"),
    )


def _added_up(parts: pl.DataFrame) -> pl.DataFrame:
    """Parts of one window added up; windows of one part (nearly all) pass through."""
    counted = parts.with_columns(parts_in_window=pl.len().over("window"))
    single = counted.filter(pl.col("parts_in_window") == 1).drop("parts_in_window")
    several = counted.filter(pl.col("parts_in_window") > 1)
    if several.is_empty():
        return single
    added = several.group_by("window", maintain_order=True).agg(
        # a sum over parts is unknown when a part is unknown
        *[pl.when(pl.col(c).is_not_null().all()).then(pl.col(c).sum()) for c in _SUMS],
        *[pl.col(c) for c in _LISTS],
        *[pl.col(c).drop_nulls().n_unique().alias(f"{c}_kinds") for c in _EDGES],
        *[pl.col(c).last() for c in _EDGES],
        *[
            pl.col(c).drop_nulls().last()
            for c in ("model_name", "cache_config", "several_api_servers")
        ],
        pl.col("scrapes").sum(),
        pl.col("duration_seconds").sum(),
        pl.col("restarted").any(),
        pl.col("configuration_changed").any(),
        pl.col("first_time").first(),
        pl.col("last_time").last(),
    )
    added = added.with_columns(
        pl.Series(
            lists,
            [
                _list_sum(values, same_edges=kinds <= 1)
                for values, kinds in added.select(lists, f"{edges}_kinds").iter_rows()
            ],
            dtype=pl.List(pl.Float64),
        )
        for lists, edges in zip(_LISTS, _EDGES, strict=True)
    )
    return pl.concat([single, added.select(single.columns)])


def _list_sum(lists: list[list[float] | None], *, same_edges: bool) -> list[float] | None:
    """Element-wise sum; the last list alone where edges changed; NULL where one is unknown."""
    known = [values for values in lists if values is not None]
    if len(known) != len(lists):
        return None
    if not same_edges:
        return known[-1]
    return [sum(column) for column in zip(*known, strict=True)]
