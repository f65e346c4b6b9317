"""Answers of range queries → the columns of the scrape table.

Everything is one long frame per query, a row per (series, grid time); Python touches each
series, never each sample's labels.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import orjson
import polars as pl

from driftwatch.collect.prometheus_query import Query
from driftwatch.collect.registry import Metric
from driftwatch.collect.schema import BUCKETS, SourceProblem
from driftwatch.errors import BadPage

KEYS = ("instance", "engine", "at")  # at: the grid time, unix ms

_SHOWN_CHARACTERS = 200


@dataclass(frozen=True, slots=True)
class Answers:
    """All series that one query brought, over every chunk of the grid.

    Attributes:
        labels: labels of each series.
        long: ``series`` (index into ``labels``), ``at``, ``value``; in order of time per series.
    """

    labels: Sequence[Mapping[str, str]]
    long: pl.DataFrame


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
    labels: dict[tuple[str, str], dict[str, str]] = field(default_factory=dict)
    clashed: set[tuple[str, str]] = field(default_factory=set)
    problems: list[SourceProblem] = field(default_factory=list)


def answers(results: Iterable[Sequence[Any]]) -> Answers:
    """``data.result`` of each chunk → one table.

    Raises:
        BadPage: a series is not as the API promises.
    """
    chunks = list(results)
    known: dict[bytes, int] = {}
    labels: list[Mapping[str, str]] = []
    series: list[int] = []
    counts: list[int] = []
    times: list[float] = []
    values: list[float] = []
    try:
        for result in chunks:
            for one in result:
                metric, points = one["metric"], one.get("values") or ()
                if not isinstance(metric, dict):
                    raise TypeError
                index = len(labels)
                if len(chunks) > 1:  # the same series is in every chunk, once in each
                    key = orjson.dumps(metric, option=orjson.OPT_SORT_KEYS)
                    index = known.setdefault(key, index)
                if index == len(labels):
                    labels.append(metric)
                series.append(index)
                counts.append(len(points))
                times += [point[0] for point in points]
                values += [float(point[1]) for point in points]
        long = pl.DataFrame(
            {
                "series": np.repeat(np.array(series, dtype=np.uint32), counts),
                "at": np.rint(np.array(times, dtype=np.float64) * 1000).astype(np.int64),
                "value": np.array(values, dtype=np.float64),
            }
        )
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        raise BadPage(f"a series of the answer is malformed ({type(error).__name__})") from None
    return Answers(labels, long)


def gather(
    query: Query, answered: Answers, scraped_as: Mapping[str, Mapping[str, str]], into: Gathered
) -> None:
    """Read the columns of one query.

    Args:
        query: what was asked.
        answered: what came.
        scraped_as: instance → labels of its ``up`` series; of two series at the same time the
            one that carries them is read.
        into: where columns, labels and problems go.
    """
    nameless = next((one for one in answered.labels if not one.get("instance")), None)
    if nameless is not None:
        reason = f"{shown(nameless)} has no instance label: not read"
        into.problems.append(SourceProblem(query.text, reason))
    for metric in query.metrics:
        series, origins = _series(query, metric, answered.labels, scraped_as)
        if series.is_empty():
            continue
        if metric.per_engine and metric.type != "info":  # an info's labels are its value
            _share_labels(metric, origins, into)
        home = pl.DataFrame([o[:-1] for o in origins], schema=_ORIGIN, orient="row")
        place = series.join(home, on="origin", how="left", maintain_order="left")
        long = answered.long.join(place, on="series", how="inner", maintain_order="left")
        long = _winners(query, metric, long, answered, into)
        if metric.type == "info":
            into.frames[metric.column] = long.select(*KEYS, "series")
        elif metric.type == "histogram":
            into.frames[metric.column] = _histogram(metric, long, query, into)
        else:
            into.frames[metric.column] = _scalar(metric, long, query, into)
            if metric.per_engine:
                into.models.append(long.select(*KEYS, "model_name").drop_nulls().unique(KEYS))


def shown(labels: Mapping[str, str]) -> str:
    """A series as problems name it, shortened."""
    rest = ",".join(f'{k}="{v}"' for k, v in sorted(labels.items()) if k != "__name__")
    text = f"{labels.get('__name__', '')}{{{rest}}}"
    return text if len(text) <= _SHOWN_CHARACTERS else text[:_SHOWN_CHARACTERS] + "…"


_SERIES = {
    "series": pl.UInt32,
    "origin": pl.UInt32,
    "rank": pl.UInt8,  # of the name: 0 is the current one
    "suffix": pl.String,
    "edge": pl.Float64,
}
_ORIGIN = {
    "origin": pl.UInt32,
    "instance": pl.String,
    "engine": pl.String,
    "model_name": pl.String,
    "foreign": pl.Boolean,  # not of the scrape whose up is read
    "text": pl.String,  # for an order that does not hang on the answer's
}
# a row of _ORIGIN, and the labels that must agree for numbers to belong together
_Origin = tuple[int, str, str, str | None, bool, str, Mapping[str, str]]


def _series(
    query: Query,
    metric: Metric,
    labels: Sequence[Mapping[str, str]],
    scraped_as: Mapping[str, Mapping[str, str]],
) -> tuple[pl.DataFrame, list[_Origin]]:
    """The series that a column is read from, and the origins they belong to."""
    apart = ("__name__", "le", *metric.sum_over)
    origins: dict[frozenset[tuple[str, str]], _Origin] = {}
    rows: list[tuple[int, int, int, str, float | None]] = []
    for index, one in enumerate(labels):
        named = query.ranks.get(one.get("__name__", ""))
        if named is None or not one.get("instance"):
            continue
        if metric.labels and any(one.get(name) != value for name, value in metric.labels):
            continue
        rest = dict(one)
        for name in apart:
            rest.pop(name, None)
        key = frozenset(rest.items())
        origin = origins.get(key)
        if origin is None:
            origin = origins[key] = _origin(len(origins), rest, scraped_as)
        edge = _edge(one) if named[1] == "_bucket" else None
        rows.append((index, origin[0], *named, edge))
    columns = zip(*rows, strict=True) if rows else ((),) * len(_SERIES)
    frame = pl.DataFrame(dict(zip(_SERIES, columns, strict=True)), schema=_SERIES)
    return frame, list(origins.values())


def _origin(
    number: int, labels: Mapping[str, str], scraped_as: Mapping[str, Mapping[str, str]]
) -> _Origin:
    instance, model = str(labels["instance"]), labels.get("model_name")
    engine = str(labels.get("engine") or "0")
    scrape = scraped_as.get(instance, {})
    foreign = any(labels.get(name) != value for name, value in scrape.items())
    text = repr(sorted(labels.items()))
    return number, instance, engine, None if model is None else str(model), foreign, text, labels


def _edge(labels: Mapping[str, str]) -> float:
    try:
        return float(labels["le"])
    except (KeyError, ValueError):
        return math.nan


def _share_labels(metric: Metric, origins: Sequence[_Origin], into: Gathered) -> None:
    apart = {name for name, _ in metric.labels}
    for _, instance, engine, _, _, _, labels in origins:
        ours = {k: v for k, v in labels.items() if k not in apart}
        before = into.labels.setdefault((instance, engine), ours)
        if before != ours:
            into.labels[instance, engine] = {k: v for k, v in before.items() if ours.get(k) == v}


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
                f"{shown(answered.labels[read])}, not {shown(answered.labels[other])}"
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
