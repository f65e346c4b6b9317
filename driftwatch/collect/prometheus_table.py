"""Answers of range queries → the columns of the scrape table.

Everything is one long frame per query, a row per (series, grid time); Python touches each
series, never each sample's labels.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import polars as pl

from driftwatch.collect.prometheus_points import Points
from driftwatch.collect.prometheus_query import Query
from driftwatch.collect.prometheus_series import Labels, Placements, common, labels_of, shown
from driftwatch.collect.registry import Metric
from driftwatch.collect.schema import BUCKETS, SourceProblem

KEYS = ("instance", "engine", "at")  # at: the grid time, unix ms


@dataclass(frozen=True, slots=True)
class Answers:
    """All series that one query brought, over every chunk of the grid.

    Attributes:
        heads: labels of each series as JSON.
        long: ``series`` (index into ``heads``), ``at``, ``value``; in order of time per series.
    """

    heads: Sequence[bytes]
    long: pl.DataFrame

    @property
    def labels(self) -> list[Labels]:
        """Labels of each series."""
        return [labels_of(head) for head in self.heads]


@dataclass(slots=True)
class Gathered:
    """What the queries brought, column by column.

    Attributes:
        frames: registry column → frame with ``instance``, ``engine``, ``at`` and its columns.
        models: frames with ``instance``, ``engine``, ``at``, ``model_name``.
        labels: (instance, engine) → labels that all of the engine's series share.
        clashed: (instance, engine) that two series at the same time were told of.
        problems: what could not be read.
    """

    frames: dict[str, pl.DataFrame] = field(default_factory=dict)
    models: list[pl.DataFrame] = field(default_factory=list)
    labels: dict[tuple[str, str], Mapping[str, str]] = field(default_factory=dict)
    clashed: set[tuple[str, str]] = field(default_factory=set)
    problems: list[SourceProblem] = field(default_factory=list)


def answers(chunks: Sequence[Points]) -> Answers:
    """The samples of each chunk of the grid → one table."""
    if not chunks:
        return Answers((), pl.DataFrame(schema=_LONG))
    heads: Sequence[bytes]
    if len(chunks) == 1:
        heads, series = chunks[0].heads, [np.arange(len(chunks[0].heads), dtype=np.uint32)]
    else:  # the same series is in every chunk, once in each
        known: dict[bytes, int] = {}
        series = [
            np.array([known.setdefault(head, len(known)) for head in one.heads], dtype=np.uint32)
            for one in chunks
        ]
        heads = list(known)
    long = pl.DataFrame(
        {
            "series": np.concatenate(
                [np.repeat(s, one.counts) for s, one in zip(series, chunks, strict=True)]
            ),
            "at": np.concatenate([one.at for one in chunks]),
            "value": np.concatenate([one.value for one in chunks]),
        },
        schema=_LONG,
    )
    return Answers(heads, long)


_LONG = {"series": pl.UInt32, "at": pl.Int64, "value": pl.Float64}


def gather(
    query: Query,
    answered: Answers,
    scraped_as: Mapping[str, Labels],
    placements: Placements,
    into: Gathered,
) -> None:
    """Read the columns of one query.

    Args:
        query: what was asked.
        answered: what came.
        scraped_as: instance → labels of its ``up`` series; of two series at the same time the
            one that carries them is read.
        placements: what is known of the series from the answers before.
        into: where columns, labels and problems go.
    """
    placement = placements.of(query, answered.heads, scraped_as)
    if placement.nameless is not None:
        reason = f"{shown(placement.nameless)} has no instance label: not read"
        into.problems.append(SourceProblem(query.text, reason))
    for column in placement.columns:
        metric = column.metric
        for key, ours in column.shared.items():
            into.labels[key] = common(into.labels.get(key, ours), ours)
        long = answered.long.join(column.place, on="series", how="inner", maintain_order="left")
        if column.contested:
            long = _winners(query, metric, long, answered, into)
        if metric.type == "info":
            into.frames[metric.column] = long.select(*KEYS, "series")
        elif metric.type == "histogram":
            into.frames[metric.column] = _histogram(metric, long, query, into)
        else:
            into.frames[metric.column] = _scalar(metric, long, query, into)
            if metric.per_engine:
                into.models.append(long.select(*KEYS, "model_name").drop_nulls().unique(KEYS))


def _winners(
    query: Query, metric: Metric, long: pl.DataFrame, answered: Answers, into: Gathered
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
        taken = best.unique(KEYS, keep="first", maintain_order=True)
        clash = (
            long.filter(pl.col("place") != pl.col("best"))
            .join(taken.select(*KEYS, "rank", pl.col("series").alias("taken")), on=[*KEYS, "rank"])
            .unique(["instance", "engine"], keep="first", maintain_order=True)
            .sort("instance", "engine")
        )
        for instance, engine, read, other in clash.select(
            "instance", "engine", "taken", "series"
        ).iter_rows():
            if (instance, engine) in into.clashed:
                continue
            into.clashed.add((instance, engine))
            reason = (
                f"engine {engine} of {instance} has two series at the same time: read "
                f"{shown(labels_of(answered.heads[read]))}, not "
                f"{shown(labels_of(answered.heads[other]))}"
            )
            into.problems.append(SourceProblem(query.text, reason))
    return best.drop("place", "best")


_BAD = ~pl.col("value").is_finite() | (pl.col("value") < 0)


def _scalar(metric: Metric, long: pl.DataFrame, query: Query, into: Gathered) -> pl.DataFrame:
    # one series is the sum of one; a bad summand makes the sum unknown
    summed = long.group_by(KEYS, maintain_order=True).agg(
        pl.col("value").sum(), _BAD.any().alias("bad")
    )
    _tell(metric.column, summed, query, into, "NaN, infinite or negative")
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
            _BAD.any().alias("bad"),
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
    odd = ~total.is_finite() | (total < 0) | ~count.is_finite() | (count < 0)
    checks = (
        (pl.col("bad") | odd, "NaN, infinite or negative"),
        (pl.col("nan_edge"), "an le is not a number"),
        (~(all_known & (bare | pl.col("whole"))), 'incomplete: no le="+Inf", _sum or _count'),
        (pl.col("falls"), "a bucket is below the one before"),
        (pl.col("all") != count, "the +Inf bucket is not the count"),
    )
    _tell(name, both.with_columns(bare.alias("bad")), query, into, "_sum and _count, no _bucket")
    wrong = pl.lit(False)
    for check, why in checks:
        flagged = both.with_columns((check.fill_null(False) & ~wrong).alias("bad"))
        _tell(name, flagged, query, into, why)
        wrong = wrong | check.fill_null(False)
    columns = (f"{name}_sum", f"{name}_count", f"{name}_buckets", f"{name}_edges")
    return both.select(
        *KEYS, *(pl.when(~wrong).then(pl.col(column)).alias(column) for column in columns)
    ).with_columns(pl.col(f"{name}_buckets", f"{name}_edges").cast(BUCKETS))


def _tell(column: str, checked: pl.DataFrame, query: Query, into: Gathered, why: str) -> None:
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
