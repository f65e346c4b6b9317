"""Answers of range queries → the columns of the scrape table.

The numbers of a query are one array, series by grid times. Engines whose series are whole and one
of each kind, nearly all of them, become columns as arrays; for the others a choice is made.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import polars as pl

from driftwatch.collect.prometheus.answer import LONG, NEVER, Numbered
from driftwatch.collect.prometheus.placement import (
    Block,
    Column,
    Placement,
    Roster,
    engine_labels,
    place,
)
from driftwatch.collect.prometheus.query import Labels, Numbers, Query, shown
from driftwatch.collect.registry import Metric
from driftwatch.collect.schema import BUCKETS, SourceProblem


def gather(
    placement: Placement,
    answered: Numbered,
    scraped_as: Mapping[str, Labels],
    into: Gathered,
    *,
    at_once: bool = True,
) -> None:
    """Read the columns of one query.

    Args:
        placement: where the series of the answer belong.
        scraped_as: instance → labels of its ``up`` series; of two series at the same time the one
            that carries them is read.
        into: where columns, labels and problems go.
        at_once: read whole engines as arrays; the table is the same without.
    """
    query = placement.query
    if placement.nameless:
        reason = f"{shown(placement.nameless[min(placement.nameless)])} has no instance label"
        into.problems.append(SourceProblem(query.text, f"{reason}: not read"))
    for column in placement.columns:
        metric = column.metric
        into.alive.append((column, _newest(column, placement, answered)))
        frames: list[pl.DataFrame] = []
        rest = [column.rest]
        for block in column.blocks:
            good = np.zeros(len(block.engines), np.bool_)
            if at_once:
                good = _sound(block, metric, answered)
            rest.append(block.engines[~good])
            if good.any():
                if not good.all():
                    block = Block(
                        block.engines[good], block.origins[good], block.series[good], block.edges
                    )
                frames.append(_at_once(block, metric, answered, placement, into))
        _tell_twice(metric, placement, answered, into)
        engines = np.unique(np.concatenate(rest))
        if len(engines):
            frames.append(chosen(column, placement, engines, answered, scraped_as, into))
        into.frames[metric.column] = pl.concat(frames)
        if metric.type == "info":
            into.texts[metric.column] = placement


def _newest(column: Column, placement: Placement, answered: Numbered) -> Numbers:
    """When each origin of the column has its last sample."""
    if answered.there is None and len(answered.times):  # nearly always
        return np.full(len(column.origins), answered.times[-1])
    origin = placement.origins[placement.query.metrics.index(column.metric)]
    series = np.nonzero(origin >= 0)[0]
    found = np.full(len(column.origins), NEVER)
    np.maximum.at(found, np.searchsorted(column.origins, origin[series]), answered.newest[series])
    return found


def _tell_twice(metric: Metric, placement: Placement, answered: Numbered, into: Gathered) -> None:
    origins = placement.origins[placement.query.metrics.index(metric)]
    for index in answered.twice:
        if origins[index] >= 0:
            labels = shown(placement.labels(metric, index))
            reason = f"{labels} is in the answer twice, with different numbers: not read"
            into.problems.append(SourceProblem(placement.query.text, reason))


def _sound(block: Block, metric: Metric, answered: Numbered) -> npt.NDArray[np.bool_]:
    """Engines whose series have a number at every time that needs no second look."""
    value = answered.value
    good = (value >= 0) & (value <= metric.largest)  # NaN is neither
    if metric.type == "info":
        good = np.ones_like(good)
    if answered.there is not None:
        good &= answered.there
    whole: npt.NDArray[np.bool_] = np.all(good, axis=1)
    sound: npt.NDArray[np.bool_] = np.all(whole[block.series], axis=1)
    if metric.type == "histogram":
        buckets = value[block.series[:, :-2]]
        sound &= (np.diff(buckets, axis=1) >= 0).all(axis=(1, 2))
        sound &= (buckets[:, -1] == value[block.series[:, -1]]).all(axis=1)
    return sound


def _at_once(
    block: Block, metric: Metric, answered: Numbered, placement: Placement, into: Gathered
) -> pl.DataFrame:
    """Rows by engine and time."""
    roster, times = placement.roster, answered.times
    keys = [*roster.named(block.engines, len(times)), _tiled("at", times, len(block.engines))]
    if says_engine(metric):
        new = into.unseen("engine", times, block.engines)
        if len(new):
            into.present.append(_keys(block.engines[new], times, placement))
    if metric.per_engine and metric.type in ("gauge", "counter"):
        models = roster.models(block.origins)
        into_models = into.unseen("model", times, block.engines[models.is_not_null().to_numpy()])
        if len(into_models):
            named = block.engines[models.is_not_null().to_numpy()][into_models]
            model = models.drop_nulls().gather(np.repeat(into_models, len(times)))
            into.models.append(_keys(named, times, placement).with_columns(model))
    value = answered.value
    if metric.type == "info":
        return pl.DataFrame([*keys, pl.Series("series", np.repeat(block.series[:, 0], len(times)))],
                            ).cast({"series": pl.UInt32})  # fmt: skip
    if metric.type != "histogram":
        total = value[block.series[:, 0]]
        for summand in block.series.T[1:]:
            total = total + value[summand]
        return pl.DataFrame([*keys, pl.Series(metric.column, total.reshape(-1))])
    name = metric.column
    buckets = value[block.series[:, :-2]].transpose(0, 2, 1).reshape(-1, len(block.edges))
    edges = np.broadcast_to(np.array(block.edges), buckets.shape)
    return pl.DataFrame(
        [
            *keys,
            pl.Series(f"{name}_sum", value[block.series[:, -2]].reshape(-1)),
            pl.Series(f"{name}_count", value[block.series[:, -1]].reshape(-1)),
            _lists(f"{name}_buckets", buckets),
            _lists(f"{name}_edges", edges),
        ]
    )


def _lists(name: str, table: npt.NDArray[np.float64]) -> pl.Series:
    return pl.Series(name, np.ascontiguousarray(table)).arr.to_list()


def _tiled(name: str, times: npt.NDArray[np.int64], count: int) -> pl.Series:
    return pl.Series(name, np.tile(times, count), pl.Int64)


def _keys(engines: Numbers, times: npt.NDArray[np.int64], placement: Placement) -> pl.DataFrame:
    return pl.DataFrame(
        [*placement.roster.named(engines, len(times)), _tiled("at", times, len(engines))]
    )


KEYS = ("instance", "engine", "at")  # at: the grid time, unix ms


@dataclass(slots=True)
class Gathered:
    """What the queries brought, column by column."""

    # registry column → frame with ``instance``, ``engine``, ``at`` and its columns
    frames: dict[str, pl.DataFrame] = field(default_factory=dict)
    # frames with ``instance``, ``engine``, ``at``, ``model_name``
    models: list[pl.DataFrame] = field(default_factory=list)
    # frames with ``instance``, ``engine``, ``at`` of ``vllm:`` series of an engine
    present: list[pl.DataFrame] = field(default_factory=list)
    # registry column → the placement of its info metric
    texts: dict[str, Placement] = field(default_factory=dict)
    # columns that say something of an engine, with the newest sample of each origin
    alive: list[tuple[Column, Numbers]] = field(default_factory=list)
    # (instance, engine) that two series at the same time were told of
    clashed: set[tuple[str, str]] = field(default_factory=set)
    problems: list[SourceProblem] = field(default_factory=list)  # what could not be read
    _seen: dict[tuple[str, bytes], npt.NDArray[np.bool_]] = field(default_factory=dict)

    def labels(self, roster: Roster) -> dict[tuple[str, str], Labels]:
        """(instance, engine) → labels that all series share that the engine has at the end."""
        return engine_labels(self.alive, roster)

    def unseen(self, what: str, times: npt.NDArray[np.int64], engines: Numbers) -> Numbers:
        """Which of the engines nothing was said of yet at these times; now it is."""
        seen = self._seen.get((what, times.tobytes()))
        size = int(engines.max(initial=-1)) + 1
        if seen is None or len(seen) < size:
            grown = np.zeros(2 * size, np.bool_)
            if seen is not None:
                grown[: len(seen)] = seen
            seen = self._seen[what, times.tobytes()] = grown
        new = np.nonzero(~seen[engines])[0]
        seen[engines] = True
        return new


def says_engine(metric: Metric) -> bool:
    """Whether a series of it shows that an engine was there."""
    return metric.per_engine and metric.wire_name.startswith("vllm:")


def chosen(
    column: Column,
    placement: Placement,
    engines: Numbers,
    answered: Numbered,
    scraped_as: Mapping[str, Labels],
    into: Gathered,
) -> pl.DataFrame:
    """The same of engines that a choice must be made for, or that something is wrong with."""
    metric, query = column.metric, placement.query
    where, contested = place(column, placement, engines, scraped_as)
    long = _long(answered, where["series"].to_numpy()).join(
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


def _long(answered: Numbered, series: npt.NDArray[np.uint32]) -> pl.DataFrame:
    """``series``, ``at``, ``value`` of some series, in their order and that of time."""
    series = np.sort(series)
    value = answered.value[series]
    there = np.ones(value.shape, np.bool_) if answered.there is None else answered.there[series]
    row, column = np.nonzero(there)
    return pl.DataFrame(
        {"series": series[row], "at": answered.times[column], "value": value[row, column]},
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
        said = pl.Series(_ranked(placement.variants.labels), dtype=pl.UInt32)
        told = long.with_columns(said.gather(long["variant"]).alias("said"))
        taken = (
            told.filter(pl.col("place") == pl.col("best"))
            .sort(*KEYS, "said", "series")
            .unique(KEYS, keep="first", maintain_order=True)
        )
        clash = (
            told.filter(pl.col("place") != pl.col("best"))
            .join(taken.select(*KEYS, "rank", pl.col("series").alias("taken")), on=[*KEYS, "rank"])
            .sort(*KEYS, "place", "said", "series")
            .unique(["instance", "engine"], keep="first", maintain_order=True)
        )
        for instance, engine, read, other in clash.select(
            "instance", "engine", "taken", "series"
        ).iter_rows():
            if (instance, engine) in into.clashed:
                continue
            into.clashed.add((instance, engine))
            reason = (
                f"engine {engine} of {instance} has two series at the same time: read "
                f"{shown(placement.labels(metric, read))}, not "
                f"{shown(placement.labels(metric, other))}"
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
    _tell(metric.column, summed, query, into, _why_bad(metric))
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
