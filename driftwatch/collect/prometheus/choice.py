"""Engines whose series a choice is made between: several origins or names, unsound numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
import polars as pl

from driftwatch.collect.prometheus.columns import KEYS, SUFFIXES, Column, Gathered, says_engine
from driftwatch.collect.prometheus.numbers import LONG, ArrayAnswer
from driftwatch.collect.prometheus.placement import Placement
from driftwatch.collect.prometheus.query import Labels, Numbers, Query, short_name
from driftwatch.collect.registry import Metric
from driftwatch.collect.schema import BUCKETS, SourceProblem


def chosen(
    column: Column,
    placement: Placement,
    engines: Numbers,
    answer: ArrayAnswer,
    scraped_as: Mapping[str, Labels],
    into: Gathered,
) -> pl.DataFrame:
    """The same of engines that a choice must be made for, or that something is wrong with."""
    metric, query = column.metric, placement.query
    where, contested = place(column, placement, engines, scraped_as)
    long = _long(answer, where["series"].to_numpy()).join(
        where, on="series", how="inner", maintain_order="left"
    )
    # the API should name no series twice; labels may be written in two ways
    long = long.unique(["origin", "variant", "at"], keep="first", maintain_order=True)
    if contested:
        long = _winners(placement, metric, long, into)
    if says_engine(metric):
        into.present.append(long.select(KEYS))
    if metric.type == "info":
        return long.select(*KEYS, "series")
    if metric.type == "histogram":
        return _histogram(metric, long, query, into)
    if metric.per_engine:
        into.models.append(long.select(*KEYS, "model_name").drop_nulls().unique(KEYS))
    return _scalar(metric, long, query, into)


def _long(answer: ArrayAnswer, series: npt.NDArray[np.uint32]) -> pl.DataFrame:
    """``series``, ``at``, ``value`` of some series, in their order and that of time."""
    series = np.sort(series)
    value = answer.value[series]
    there = np.ones(value.shape, np.bool_) if answer.there is None else answer.there[series]
    row, column = np.nonzero(there)
    return pl.DataFrame(
        {"series": series[row], "at": answer.times[column], "value": value[row, column]},
        schema=LONG,
        strict=False,
    )


def _winners(
    placement: Placement, metric: Metric, long: pl.DataFrame, into: Gathered
) -> pl.DataFrame:
    """One origin per (instance, engine, grid time).

    That of the scrape whose ``up`` is read; the current name before an old one; then the origin
    with the newest sample, for a restart with other flags or a new pod begins a new series while
    the old one may linger. Two that live at the same time are told, once per engine; not so for
    the labels of an info metric, which change with a restart.
    """
    by = ["instance", "engine", "foreign", "rank", "origin", "text"]
    origins = long.group_by(by).agg(
        pl.col("at").max().alias("newest"), pl.col("at").min().alias("oldest")
    )
    if not origins.select("instance", "engine").is_duplicated().any():
        return long
    order = origins.sort(
        "foreign",
        "rank",
        "newest",
        "oldest",
        "text",
        descending=[False, False, True, True, False],
    ).with_row_index("place")
    long = long.join(
        order.select(*by, "place"), on=by, how="left", maintain_order="left"
    ).with_columns(pl.col("place").min().over(KEYS).alias("best"))
    best = long.filter(pl.col("place") == pl.col("best"))
    if metric.type != "info":
        # told in one order, whatever the answer's is and however a join walks
        variant_rank = pl.Series(_ranked(placement.variants.labels), dtype=pl.UInt32)
        ranked = long.with_columns(variant_rank.gather(long["variant"]).alias("said"))
        winners = (
            ranked.filter(pl.col("place") == pl.col("best"))
            .sort(*KEYS, "said", "series")
            .unique(KEYS, keep="first", maintain_order=True)
        )
        clash = (
            ranked.filter(pl.col("place") != pl.col("best"))
            .join(
                winners.select(*KEYS, "rank", pl.col("series").alias("taken")), on=[*KEYS, "rank"]
            )
            .sort(*KEYS, "place", "said", "series")
            .unique(["instance", "engine"], keep="first", maintain_order=True)
        )
        for instance, engine, winner, other in clash.select(
            "instance", "engine", "taken", "series"
        ).iter_rows():
            if (instance, engine) in into.clashed:
                continue
            into.clashed.add((instance, engine))
            reason = (
                f"engine {engine} of {instance} has two series at the same time: read "
                f"{short_name(placement.labels(metric, winner))}, not "
                f"{short_name(placement.labels(metric, other))}"
            )
            into.problems.append(SourceProblem(placement.query.text, reason))
    return best.drop("place", "best")


def _ranked(variants: Sequence[Labels]) -> list[int]:
    """The place of each variant in the order of their labels."""
    ordered = sorted(range(len(variants)), key=lambda one: sorted(variants[one].items()))
    rank = [0] * len(variants)
    for place_of, one in enumerate(ordered):
        rank[one] = place_of
    return rank


def _bad(metric: Metric, column: str = "value") -> pl.Expr:
    """A number that is none of the metric's: NaN, infinite, negative or too large."""
    return ~pl.col(column).is_between(0, metric.largest) | pl.col(column).is_nan()


def _why_bad(metric: Metric) -> str:
    return f"NaN, infinite, negative or above {metric.largest:g}"


def _scalar(metric: Metric, long: pl.DataFrame, query: Query, into: Gathered) -> pl.DataFrame:
    # one series is the sum of one; a bad summand makes the sum unknown
    summed = long.group_by(KEYS, maintain_order=True).agg(
        pl.col("value").sum(), _bad(metric).any().alias("bad")
    )
    _note(metric.column, summed, query, into, _why_bad(metric))
    return summed.select(*KEYS, pl.when(~pl.col("bad")).then("value").alias(metric.column))


def _histogram(metric: Metric, long: pl.DataFrame, query: Query, into: Gathered) -> pl.DataFrame:
    """Buckets sorted by edge, with sum and count; all NULL where one of them is not sound."""
    name = metric.column
    buckets = (
        long.filter(pl.col("suffix") == "_bucket")
        .unique([*KEYS, "edge"], keep="first", maintain_order=True)
        .sort(*KEYS, "edge", nulls_last=True)
        .group_by(KEYS, maintain_order=True)
        .agg(
            pl.col("value").alias(f"{name}_buckets"),
            pl.col("edge").alias(f"{name}_edges"),
            _bad(metric).any().alias("bad"),
            pl.col("edge").is_nan().any().alias("nan_edge"),
            (pl.col("value").diff() < 0).any().alias("falls"),
            pl.col("edge").last().is_infinite().alias("whole"),
            pl.col("value").last().alias("all"),
        )
    )
    parts = [
        long.filter(pl.col("suffix") == f"_{part}")
        .select(*KEYS, pl.col("value").alias(f"{name}_{part}"))
        .unique(KEYS, keep="first", maintain_order=True)
        for part in ("sum", "count")
    ]
    both = buckets
    for part in parts:
        both = both.join(part, on=KEYS, how="full", coalesce=True)
    total, count = pl.col(f"{name}_sum"), pl.col(f"{name}_count")
    all_known = total.is_not_null() & count.is_not_null()
    # relabelling may drop the buckets and keep what means and rates are made of
    bare = pl.col("all").is_null() & all_known
    odd = _bad(metric, f"{name}_sum") | _bad(metric, f"{name}_count")
    checks = (
        (pl.col("bad") | odd, _why_bad(metric)),
        (pl.col("nan_edge"), "an le is not a number"),
        (~(all_known & (bare | pl.col("whole"))), 'incomplete: no le="+Inf", _sum or _count'),
        (pl.col("falls"), "a bucket is below the one before"),
        (pl.col("all") != count, "the +Inf bucket is not the count"),
    )
    _note(name, both.with_columns(bare.alias("bad")), query, into, "_sum and _count, no _bucket")
    wrong = pl.lit(False)
    for check, why in checks:
        flagged = both.with_columns((check.fill_null(False) & ~wrong).alias("bad"))
        _note(name, flagged, query, into, why)
        wrong = wrong | check.fill_null(False)
    columns = (f"{name}_sum", f"{name}_count", f"{name}_buckets", f"{name}_edges")
    return both.select(
        *KEYS, *(pl.when(~wrong).then(pl.col(column)).alias(column) for column in columns)
    ).with_columns(pl.col(f"{name}_buckets", f"{name}_edges").cast(BUCKETS))


def _note(column: str, checked: pl.DataFrame, query: Query, into: Gathered, why: str) -> None:
    """A problem per (instance, engine) with rows marked ``bad``."""
    bad = checked.filter("bad")
    if bad.is_empty():
        return
    for instance, engine, n, scrapes in (
        checked.group_by("instance", "engine")
        .agg(pl.col("bad").sum().alias("n"), pl.len().alias("scrapes"))
        .filter(pl.col("n") > 0)
        .sort("instance", "engine")
        .iter_rows()
    ):
        reason = f"{column} of engine {engine} of {instance}: {why} ({n} of {scrapes} grid times)"
        into.problems.append(SourceProblem(query.text, reason))


_PLACE = {
    "series": pl.UInt32,
    "origin": pl.UInt32,
    "variant": pl.UInt32,
    "rank": pl.UInt8,
    "suffix": pl.String,
    "edge": pl.Float64,
}


_HOME = {
    "origin": pl.UInt32,
    "instance": pl.String,
    "engine": pl.String,
    "model_name": pl.String,
    "foreign": pl.Boolean,
    "text": pl.String,
}


def place(
    column: Column, placement: Placement, engines: Numbers, scraped_as: Mapping[str, Labels]
) -> tuple[pl.DataFrame, bool]:
    """The series of some engines with all that a choice between them needs.

    Returns:
        A row per series: ``series`` (index into the answer), ``instance``, ``engine``,
        ``model_name``, ``rank`` (of its name: 0 is the current one), ``suffix``, ``edge`` (upper
        edge of a bucket, NaN where ``le`` is no number), ``origin`` (number of its set of
        labels), ``variant``, ``foreign`` (not of the scrape whose up is read) and ``text`` (the
        labels, for an order that does not hang on the answer's); and whether an engine has
        several origins or names, so that a choice must be made.
    """
    roster, variants = placement.roster, placement.variants
    origin = placement.origins[placement.query.metrics.index(column.metric)]
    series = np.nonzero(origin >= 0)[0]
    series = series[np.isin(roster.engine[origin[series]], engines)]
    origin, variant = origin[series], placement.variant[series]
    suffix = variants.suffix[variant].astype(np.int64)
    table = pl.DataFrame(
        {
            "series": series,
            "origin": origin,
            "variant": variant,
            "rank": variants.rank[variant],
            "suffix": pl.Series(SUFFIXES).gather(suffix),
            # only a bucket has an edge
            "edge": pl.Series(variants.edge[variant]).set(pl.Series(suffix != 1), None),
        },
        schema=_PLACE,
        strict=False,
    )
    homes = []
    for number in np.unique(origin).tolist():
        labels = roster.labels(number)
        instance, engine = roster.engines[roster.engine[number]]
        model = labels.get("model_name")
        scrape = scraped_as.get(instance, {})
        foreign = any(labels.get(name) != value for name, value in scrape.items())
        text = repr(sorted(labels.items()))
        homes.append((number, instance, engine, model, foreign, text))
    home = pl.DataFrame(homes, schema=_HOME, orient="row")
    table = table.join(home, on="origin", how="left", maintain_order="left")
    choices = table.select("instance", "engine", "rank", "origin").unique()
    return table, bool(choices.select("instance", "engine").is_duplicated().any())
