"""The engines of a fleet, and which series each column of the scrape table is read from."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import orjson
import polars as pl

from driftwatch.collect.prometheus.numbers import NEVER
from driftwatch.collect.prometheus.query import Labels, Numbers, labels_of
from driftwatch.collect.registry import Metric
from driftwatch.collect.schema import SourceProblem

if TYPE_CHECKING:
    from driftwatch.collect.prometheus.placement import Placement

KEYS = ("instance", "engine", "at")  # at: the grid time, unix ms
SUFFIXES = ("", "_bucket", "_sum", "_count")


class Roster:
    """Every origin (labels that must agree for numbers to belong together) and its engine.

    Attributes:
        texts: labels of each origin as sorted JSON.
        engines: (instance, engine) of each engine.
    """

    def __init__(self) -> None:
        self.texts: list[bytes] = []
        self.engines: list[tuple[str, str]] = []
        self._engine: list[int] = []
        self._models: list[str | None] = []
        self._origin_of: dict[bytes, int] = {}
        self._engine_of: dict[tuple[str, str], int] = {}
        self._labels: dict[int, Labels] = {}
        self._arrays: tuple[Numbers, list[pl.Series]] | None = None  # of what was added until now

    def add(self, labels: Labels) -> int:
        """The origin with these labels, ``instance`` among them."""
        text = orjson.dumps(labels, option=orjson.OPT_SORT_KEYS)
        origin = self._origin_of.get(text)
        if origin is None:
            text = bytes(memoryview(text))  # orjson's own is cut out of a block of kilobytes
            origin = self._origin_of[text] = len(self.texts)
            name = (str(labels["instance"]), str(labels.get("engine") or "0"))
            engine = self._engine_of.setdefault(name, len(self.engines))
            if engine == len(self.engines):
                self.engines.append(name)
            model = labels.get("model_name")
            self.texts.append(text)
            self._engine.append(engine)
            self._models.append(None if model is None else str(model))
            self._arrays = None
        return origin

    def labels(self, origin: int) -> Labels:
        """The labels of an origin."""
        return labels_of(self.texts[origin])

    def kept_labels(self, origin: int) -> Labels:
        """The labels of an origin that is asked for every time: the same object."""
        labels = self._labels.get(origin)
        if labels is None:
            labels = self._labels[origin] = self.labels(origin)
        return labels

    @property
    def engine(self) -> Numbers:
        """Engine of each origin."""
        return self._as_arrays()[0]

    def named(self, engines: Numbers, repeated: int) -> list[pl.Series]:
        """``instance`` and ``engine`` of engines, each of them so many times."""
        rows = np.repeat(engines, repeated)
        return [name.gather(rows) for name in self._as_arrays()[1][:2]]

    def models(self, origins: Numbers) -> pl.Series:
        """``model_name`` of origins."""
        return self._as_arrays()[1][2].gather(origins)

    def _as_arrays(self) -> tuple[Numbers, list[pl.Series]]:
        if self._arrays is None:
            names = [
                pl.Series("instance", [instance for instance, _ in self.engines], pl.String),
                pl.Series("engine", [engine for _, engine in self.engines], pl.String),
                pl.Series("model_name", self._models, pl.String),
            ]
            self._arrays = np.array(self._engine, np.int64), names
        return self._arrays


class Variants:
    """What tells the series of one origin and query apart: name, part of a histogram, edge.

    Attributes:
        labels: of each variant its metric's name and the labels that the origin does not have.
    """

    def __init__(self) -> None:
        self.labels: list[Labels] = []
        self._rows: list[tuple[int, int, float]] = []
        self._numbers: dict[tuple[str | None, ...], int] = {}
        self._row_array: npt.NDArray[np.float64] = np.empty((0, 3))

    def add(
        self, kind: tuple[str | None, ...], named: tuple[int, str], summed: Sequence[str]
    ) -> int:
        """The variant of a kind: name, ``le`` and the labels that are summed away."""
        variant = self._numbers.get(kind)
        if variant is None:
            variant = self._numbers[kind] = len(self.labels)
            pairs = zip(("__name__", "le", *summed), kind, strict=True)
            labels = {name: value for name, value in pairs if value is not None}
            rank, suffix = named
            edge = edge_of(labels) if suffix == "_bucket" else math.nan
            self.labels.append(labels)
            self._rows.append((rank, SUFFIXES.index(suffix), edge))
        return variant

    def _table(self) -> npt.NDArray[np.float64]:
        if len(self._row_array) != len(self._rows):
            self._row_array = np.array(self._rows, np.float64).reshape(-1, 3)
        return self._row_array

    @property
    def rank(self) -> npt.NDArray[np.float64]:
        """Of each variant's name: 0 is the current one."""
        return self._table()[:, 0]

    @property
    def suffix(self) -> npt.NDArray[np.float64]:
        """Index into :data:`SUFFIXES` of each variant."""
        return self._table()[:, 1]

    @property
    def edge(self) -> npt.NDArray[np.float64]:
        """Upper edge of a bucket, NaN where a variant has none or ``le`` is no number."""
        return self._table()[:, 2]


def edge_of(labels: Mapping[str, str]) -> float:
    """The upper edge of a bucket; NaN where ``le`` is no number."""
    try:
        return float(labels["le"])
    except (KeyError, ValueError):
        return math.nan


@dataclass(frozen=True, slots=True)
class Block:
    """Engines whose series can be read without a look at their labels: one of each kind."""

    engines: Numbers  # their numbers
    origins: Numbers  # the one of each engine
    # (engines, kinds): of a histogram its buckets by edge, then sum and count; of any other metric
    # the summands
    series: npt.NDArray[np.int32]
    edges: tuple[float, ...] = ()  # upper edges of the buckets

    def take(self, which: npt.NDArray[np.bool_], edges: tuple[float, ...]) -> Block:
        """Some of the engines."""
        return Block(self.engines[which], self.origins[which], self.series[which], edges)


@dataclass(frozen=True, slots=True)
class Column:
    """The series that one column is read from."""

    metric: Metric
    origins: Numbers  # those that its series have, each once
    blocks: tuple[Block, ...]  # what can be read at once
    # engines that a choice must be made for: several origins or names, the same series twice,
    # buckets that are not whole
    rest: Numbers


def column_of(
    metric: Metric,
    origins: npt.NDArray[np.int32],
    variants: npt.NDArray[np.int32],
    kinds_of: Variants,
    roster: Roster,
) -> Column | None:
    """The column of a metric, None where the answer has no series of it.

    Args:
        origins: of each series, -1 where it is not of the metric.
        variants: of each series.
    """
    series = np.nonzero(origins >= 0)[0]
    if not len(series):
        return None
    origin, variant = origins[series].astype(np.int64), variants[series].astype(np.int64)
    engine = roster.engine[origin]
    kind = variant if metric.type != "histogram" else kinds_of.edge[variant]
    # by engine; of a histogram the buckets by edge, then sum and count
    order = np.lexsort((kind, kinds_of.suffix[variant], engine))
    engine, kinds = engine[order], variant[order]
    starts = np.nonzero(np.diff(engine, prepend=-1))[0]
    sizes = np.diff(starts, append=len(engine))
    chosen = origin[order] * 64 + kinds_of.rank[kinds].astype(np.int64)
    plain = np.minimum.reduceat(chosen, starts) == np.maximum.reduceat(chosen, starts)
    twice = (np.diff(kinds, prepend=-1) == 0) & (np.diff(engine, prepend=-1) == 0)
    plain &= ~np.logical_or.reduceat(twice, starts)
    blocks: list[Block] = []
    rest = [engine[starts[~plain]]]
    for size in np.unique(sizes[plain]).tolist():
        at = starts[plain & (sizes == size)]
        of = at[:, None] + np.arange(size)
        block = Block(engine[at], origin[order][at], series[order][of].astype(np.int32))
        if metric.type == "histogram":
            whole, blocks_of = _histograms(block, kinds_of, kinds[of])
            blocks += blocks_of
            rest.append(block.engines[~whole])
        else:
            blocks.append(block)
    return Column(metric, np.unique(origin), tuple(blocks), np.concatenate(rest))


def _histograms(
    block: Block, kinds_of: Variants, kinds: Numbers
) -> tuple[npt.NDArray[np.bool_], list[Block]]:
    """Engines with all parts of a histogram, those with the same edges together."""
    size = kinds.shape[1]
    if size < 3:
        return np.zeros(len(kinds), np.bool_), []
    parts, edges = kinds_of.suffix[kinds], kinds_of.edge[kinds][:, :-2]
    wanted = [1.0] * (size - 2) + [2.0, 3.0]
    whole = (parts == wanted).all(axis=1) & (edges[:, -1] == math.inf)
    whole &= (np.diff(edges, axis=1) > 0).all(axis=1) & ~np.isnan(edges).any(axis=1)
    if not whole.any():
        return whole, []
    different = np.unique(edges[whole], axis=0)
    return whole, [
        block.take(whole & (edges == one).all(axis=1), tuple(one.tolist())) for one in different
    ]


@dataclass(slots=True)
class Gathered:
    """What the queries brought, column by column."""

    # registry column → frame with ``instance``, ``engine``, ``at`` and its columns
    frames: dict[str, pl.DataFrame] = field(default_factory=dict)
    models: list[pl.DataFrame] = field(default_factory=list)  # KEYS, ``model_name``
    present: list[pl.DataFrame] = field(default_factory=list)  # KEYS of ``vllm:`` series
    # registry column → the placement of its info metric
    texts: dict[str, Placement] = field(default_factory=dict)
    # columns that say something of an engine, with the newest sample of each origin
    alive: list[tuple[Column, Numbers]] = field(default_factory=list)
    # (instance, engine) that a problem names because of two series at the same time
    clashed: set[tuple[str, str]] = field(default_factory=set)
    problems: list[SourceProblem] = field(default_factory=list)
    _marks: dict[tuple[str, bytes], npt.NDArray[np.bool_]] = field(default_factory=dict)

    def unseen(self, what: str, times: npt.NDArray[np.int64], engines: Numbers) -> Numbers:
        """Which of the engines have nothing of this kind yet at these times; now they have."""
        marks = self._marks.get((what, times.tobytes()))
        size = int(engines.max(initial=-1)) + 1
        if marks is None or len(marks) < size:
            grown = np.zeros(2 * size, np.bool_)
            if marks is not None:
                grown[: len(marks)] = marks
            marks = self._marks[what, times.tobytes()] = grown
        new = np.nonzero(~marks[engines])[0]
        marks[engines] = True
        return new

    def labels(self, roster: Roster) -> dict[tuple[str, str], Labels]:
        """(instance, engine) → what holds for the engine as a whole, at its newest grid time.

        Of a pod that was replaced in between nothing counts: what both have in common is neither.
        Nothing counts of an info metric, whose labels are its value, nor a label that a column
        chooses its series by.
        """
        engine_of = roster.engine
        last = np.full(len(roster.engines), NEVER)
        counted = [
            (column, newest)
            for column, newest in self.alive
            if column.metric.per_engine and column.metric.type != "info"
        ]
        for column, newest in counted:
            np.maximum.at(last, engine_of[column.origins], newest)
        pairs: dict[tuple[str, ...], list[Numbers]] = {}
        for column, newest in counted:
            apart = tuple(name for name, _ in column.metric.labels)
            there = newest == last[engine_of[column.origins]]
            pairs.setdefault(apart, []).append(column.origins[there])
        of_engine: dict[int, Labels] = {}
        for apart, several in pairs.items():
            for origin in np.unique(np.concatenate(several)).tolist():
                labels = roster.kept_labels(origin)
                if apart:
                    labels = {k: v for k, v in labels.items() if k not in apart}
                engine = int(engine_of[origin])
                before = of_engine.get(engine, labels)
                if before != labels:
                    labels = {k: v for k, v in before.items() if labels.get(k) == v}
                of_engine[engine] = labels
        return {roster.engines[engine]: labels for engine, labels in of_engine.items()}


def says_engine(metric: Metric) -> bool:
    """Whether a series of it shows that an engine was there."""
    return metric.per_engine and metric.wire_name.startswith("vllm:")
