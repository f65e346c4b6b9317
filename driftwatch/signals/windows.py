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

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import polars as pl

from driftwatch.collect.registry import COUNTERS, HISTOGRAMS
from driftwatch.collect.schema import KEY
from driftwatch.signals.continuity import MEAN_GAUGES, at_end, at_start, in_seconds, keys

Kind = Literal["chained", "whole"]

_WINDOW = [*KEY, "start", "end"]
SUMS = (*COUNTERS, *(f"{h}_{part}" for h in HISTOGRAMS for part in ("sum", "count")))


def totals(
    epochs: pl.DataFrame,
    windows: pl.DataFrame,
    *,
    kind: Kind,
    cut: bool,
    values: Sequence[pl.DataFrame] | None = None,
    sums: Sequence[str] = SUMS,
    histograms: Sequence[str] = HISTOGRAMS,
    means: bool = True,
) -> pl.DataFrame:
    """Additive totals per window.

    ``epochs``: scrapes with continuity (:func:`driftwatch.signals.continuity.with_epochs`); with
    ``values`` only continuity, gauges and ``serial`` (a scrape's number); ``windows``: columns
    instance, engine, start, end; one row per window asked for; ``kind``: chained or whole (see the
    module's text); ``cut``: leave out what came before the last epoch in the window; ``values``:
    counters and histograms by ``serial``, in any number of frames; at least of the scrapes that a
    window ends or starts with. None = they are in ``epochs``; ``sums``: which counters, histogram
    sums and counts; ``histograms``: whose buckets; ``means``: the gauges' means too.
    Returns: the windows, in their order, with: increases of every counter, histogram ``_sum`` and
    ``_count`` (Float64) and ``_buckets`` (List, cumulative by edge) with their ``_edges``;
    ``<gauge>_mean``; ``scrapes`` (count), ``duration_seconds``, ``restarted``,
    ``configuration_changed``, ``first_time``, ``last_time``, and the last known ``model_name``,
    ``cache_config``, ``several_api_servers``. NULL where the window has no scrape, or a series is
    on neither or only one of the two scrapes.
    """
    wanted = _Wanted(tuple(sums), tuple(histograms))
    numbered = _numbered(epochs)
    spans = windows.select([*_WINDOW, *_number_of(numbered)]).with_row_index("window")
    bounds = _bounds(numbered, spans, kind)
    parts = _cut_parts(bounds, numbered) if cut else _epoch_parts(bounds, numbered)
    increases = _differences(numbered, parts, values, wanted)
    if not cut:
        increases = _added_up(increases, wanted)
    rows = spans.join(increases, on="window", how="left", maintain_order="left")
    if means:
        rows = rows.join(
            _gauge_means(numbered, parts), on="window", how="left", maintain_order="left"
        )
    return rows.drop("window", *_number_of(numbered)).with_columns(
        pl.col("scrapes").fill_null(0.0),
        pl.col("duration_seconds").fill_null(0.0),
    )


@dataclass(frozen=True, slots=True)
class _Wanted:
    sums: tuple[str, ...]
    histograms: tuple[str, ...]

    @property
    def lists(self) -> tuple[str, ...]:
        return tuple(f"{h}_buckets" for h in self.histograms)

    @property
    def edges(self) -> tuple[str, ...]:
        return tuple(f"{h}_edges" for h in self.histograms)


def _number_of(epochs: pl.DataFrame) -> list[str]:
    return [c for c in keys(epochs) if c not in KEY]


def _numbered(epochs: pl.DataFrame) -> pl.DataFrame:
    """Rows numbered from 0, with the running sum of covered time (whole numbers: exact)."""
    by = keys(epochs)
    same = pl.all_horizontal(pl.col(c) == pl.col(c).shift(1) for c in by).fill_null(False)
    return epochs.with_columns(
        microseconds=pl.col("step_microseconds").cum_sum(), has_before=same
    ).with_row_index("row")


def _gauge_means(numbered: pl.DataFrame, parts: pl.DataFrame) -> pl.DataFrame:
    """window → mean of every gauge over the scrapes of its parts; NULL where none shows it.

    Added up scrape by scrape, not as a difference of running sums: a mean must not depend, not
    even in its last digit, on how much history lies before the window.
    """
    scrapes = parts.select("window", row=pl.int_ranges("first", pl.col("last") + 1)).explode(
        "row", empty_as_null=True
    )
    values = numbered.select(pl.col(MEAN_GAUGES).gather(scrapes["row"]))
    return (
        scrapes.select("window")
        .hstack(values)
        .group_by("window", maintain_order=True)
        .agg(pl.col(g).mean().alias(f"{g}_mean") for g in MEAN_GAUGES)
    )


def _bounds(numbered: pl.DataFrame, numbered_windows: pl.DataFrame, kind: Kind) -> pl.DataFrame:
    """First and last row of every window that has any, and the row before the first.

    Returns: window, first, last (row numbers), before (row number or NULL).
    """
    rows = numbered.select([*keys(numbered), "time", "row"])
    spans = numbered_windows.drop("window")
    last = at_end(spans, rows, inclusive=kind == "whole")
    first = at_start(spans, rows)
    both = last.select("window", "start", last="row", last_time="time").with_columns(
        first=first["row"]
    )
    # a window without a row ends before its first one
    both = both.filter((pl.col("last_time") >= pl.col("start")) & pl.col("first").is_not_null())
    return both.select(
        "window",
        "first",
        "last",
        before=pl.when(_at(numbered, both["first"], "has_before") & (kind == "chained")).then(
            pl.col("first").cast(pl.Int64) - 1
        ),
    )


def _at(numbered: pl.DataFrame, rows: pl.Series, column: str) -> pl.Series:
    return numbered[column].gather(rows)


def _cut_parts(bounds: pl.DataFrame, numbered: pl.DataFrame) -> pl.DataFrame:
    """One part per window: its last epoch."""
    same = pl.col("has_before") & (pl.col("epoch") == pl.col("epoch").shift(1))
    first = numbered.select(pl.when(~same).then("row").cum_max().forward_fill()).to_series()
    return _with_base(
        bounds.with_columns(first_of_part=pl.max_horizontal("first", first.gather(bounds["last"]))),
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
    restart inside the window, for then its counters started at 0. A restart in a gap is not: its
    increments may be older than the window.
    """
    joined = parts.with_columns(
        starts=_at(numbered, parts["first_of_part"], "epoch_starts"),
        from_zero=_at(numbered, parts["first_of_part"], "restarted")
        & (_at(numbered, parts["first_of_part"], "step_microseconds") > 0),
    )
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


def _values(
    numbered: pl.DataFrame,
    rows: pl.Series,
    values: Sequence[pl.DataFrame] | None,
    columns: Sequence[str],
) -> pl.DataFrame:
    """Columns of these rows; NULL where the row is NULL."""
    if values is None:
        return numbered.select(pl.col(columns).gather(rows))
    serials = pl.DataFrame({"serial": _at(numbered, rows, "serial")})
    wanted = pl.col("serial").is_in(serials["serial"].unique().implode())
    # only their rows are taken out: together the frames are large, and one column is not shared
    # by all of them; what the kept values of older scrapes lack is asked of no older scrape
    every = pl.concat(
        [
            v.select("serial", *(c for c in columns if c in v.columns)).filter(wanted)
            for v in values
        ],
        how="diagonal",
    )
    place = serials.join(
        every.select("serial").with_row_index("place"),
        on="serial",
        how="left",
        maintain_order="left",
    )["place"]
    return every.select(pl.col(columns).gather(place))


def _differences(
    numbered: pl.DataFrame,
    parts: pl.DataFrame,
    values: Sequence[pl.DataFrame] | None,
    wanted: _Wanted,
) -> pl.DataFrame:
    """Last scrape minus base scrape, per part."""
    carried = ["model_name", "cache_config", "several_api_servers"]
    flags = ["restarted", "configuration_changed"]
    parts = parts.with_columns(pl.col("last", "first", "base").cast(pl.Int64))
    counted = [*wanted.sums, *wanted.lists]
    at_last = _values(numbered, parts["last"], values, [*counted, *wanted.edges, *carried])
    at_base = _values(numbered, parts["base"], values, counted)
    joined = (
        parts.hstack(at_last)
        .hstack(at_base.rename(lambda c: f"{c}_base"))
        .with_columns(
            time=_at(numbered, parts["last"], "time"),
            microseconds=_at(numbered, parts["last"], "microseconds"),
            microseconds_base=_at(numbered, parts["base"], "microseconds"),
            time_first=_at(numbered, parts["first"], "time"),
            microseconds_first=_at(numbered, parts["first"], "microseconds"),
            step_microseconds=_at(numbered, parts["first"], "step_microseconds"),
            **{c: _at(numbered, parts["first"], c) for c in flags},
        )
    )
    zero = pl.col("zero")
    sums = [
        (pl.col(c) - pl.when(zero).then(0.0).otherwise(pl.col(f"{c}_base"))).alias(c)
        for c in wanted.sums
    ]
    lists = [
        pl.when(zero).then(pl.col(c)).otherwise(pl.col(c) - pl.col(f"{c}_base")).alias(c)
        for c in wanted.lists
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
        *wanted.edges,
        *carried,
        scrapes=(pl.col("last") - pl.col("first") + 1).cast(pl.Float64),
        duration_seconds=in_seconds(pl.col("microseconds") - begun),
        restarted=pl.col("restarted") & pl.col("compared"),
        configuration_changed=pl.col("configuration_changed") & pl.col("compared"),
        first_time=pl.col("time_first"),
        last_time=pl.col("time"),
    )


def _added_up(parts: pl.DataFrame, wanted: _Wanted) -> pl.DataFrame:
    """Parts of one window added up; windows of one part (nearly all) pass through."""
    counted = parts.with_columns(parts_in_window=pl.len().over("window"))
    single = counted.filter(pl.col("parts_in_window") == 1).drop("parts_in_window")
    several = counted.filter(pl.col("parts_in_window") > 1)
    if several.is_empty():
        return single
    added = several.group_by("window", maintain_order=True).agg(
        # a sum over parts is unknown when a part is unknown
        *[pl.when(pl.col(c).is_not_null().all()).then(pl.col(c).sum()) for c in wanted.sums],
        *[pl.col(c) for c in wanted.lists],
        *[pl.col(c).drop_nulls().n_unique().alias(f"{c}_kinds") for c in wanted.edges],
        *[pl.col(c).last() for c in wanted.edges],
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
        for lists, edges in zip(wanted.lists, wanted.edges, strict=True)
    )
    return pl.concat([single, added.select(single.columns)])


def _list_sum(lists: list[list[float] | None], *, same_edges: bool) -> list[float] | None:
    """Element-wise sum; the last list alone where edges changed; NULL where one is unknown."""
    present = [values for values in lists if values is not None]
    if len(present) != len(lists):
        return None
    if not same_edges:
        return present[-1]
    return [sum(column) for column in zip(*present, strict=True)]
