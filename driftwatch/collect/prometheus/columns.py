"""The engines of a fleet, and which series each column of the scrape table is read from."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import orjson

from driftwatch.collect.prometheus.query import Labels, Numbers, labels_of
from driftwatch.collect.registry import Metric

Floats = npt.NDArray[np.float64]

SUFFIXES = ("", "_bucket", "_sum", "_count")
BUCKET, SUM, COUNT = 1, 2, 3


class Roster:
    """Every origin (labels that must agree for numbers to belong together) and its engine.

    ``texts``: labels of each origin as sorted JSON; ``engines``: (instance, engine) of each engine;
    ``engine``: engine of each origin; ``models``: ``model_name`` of each origin.
    """

    def __init__(self) -> None:
        self.texts: list[bytes] = []
        self.engines: list[tuple[str, str]] = []
        self.engine: list[int] = []
        self.models: list[str | None] = []
        self._origin_of: dict[bytes, int] = {}
        self._engine_of: dict[tuple[str, str], int] = {}
        self._labels: dict[int, Labels] = {}

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
            self.texts.append(text)
            self.engine.append(engine)
            self.models.append(labels.get("model_name"))
        return origin

    def labels(self, origin: int) -> Labels:
        """The labels of an origin, each time the same object."""
        labels = self._labels.get(origin)
        if labels is None:
            labels = self._labels[origin] = labels_of(self.texts[origin])
        return labels


class Variants:
    """What tells the series of one origin and query apart: name, part of a histogram, edge.

    ``labels``: of each variant its metric's name and the labels that the origin does not have.
    """

    def __init__(self) -> None:
        self.labels: list[Labels] = []
        self._rows: list[tuple[int, int, float]] = []
        self._numbers: dict[tuple[str | None, ...], int] = {}
        self._row_array: Floats = np.empty((0, 3))

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
            edge = _edge(labels) if suffix == "_bucket" else 0.0
            self.labels.append(labels)
            self._rows.append((rank, SUFFIXES.index(suffix), edge))
        return variant

    @property
    def table(self) -> Floats:
        """Of each variant the rank of its name (0 is the current one), its index into
        :data:`SUFFIXES`, and its edge: NaN where ``le`` is no number, 0 where it is no bucket."""
        if len(self._row_array) != len(self._rows):
            self._row_array = np.array(self._rows, np.float64).reshape(-1, 3)
        return self._row_array


def _edge(labels: Mapping[str, str]) -> float:
    """The upper edge of a bucket; NaN where ``le`` is no number."""
    try:
        return float(labels["le"])
    except (KeyError, ValueError):
        return math.nan


@dataclass(frozen=True, slots=True)
class Shape:
    """Histograms with the same parts and edges."""

    groups: Numbers
    series: Numbers  # (groups, parts), index into the column's series
    part: Floats  # of each series: BUCKET, SUM or COUNT
    edge: Floats  # of each series, NaN where the ``le`` of a bucket is no number


@dataclass(frozen=True, slots=True)
class Column:
    """The series that one column is read from, in groups of one engine, name and origin.

    An engine has several groups where two jobs scrape it, or after a restart with other labels.
    """

    metric: Metric
    series: Numbers  # index into the answer, group after group; of a histogram buckets by edge
    starts: Numbers  # where each group begins in them
    engine: Numbers  # of each group; ascending
    rank: Floats  # of each group's name: 0 is the current one
    origin: Numbers  # of each group
    model: Numbers  # the same where it names a model, -1 where not
    several: bool  # an engine has several groups
    shapes: tuple[Shape, ...]  # of histograms only


def column_of(
    metric: Metric,
    origins: npt.NDArray[np.int32],
    variants: npt.NDArray[np.int32],
    kinds_of: Variants,
    roster: Roster,
) -> Column | None:
    """The column of a metric, None where the answer has no series of it.

    ``origins``: of each series, -1 where it is not of the metric; ``variants``: of each series.
    """
    series = np.nonzero(origins >= 0)[0]
    if not len(series):
        return None
    origin, variant = origins[series].astype(np.int64), variants[series].astype(np.int64)
    engine = np.array(roster.engine, np.int64)[origin]
    rank, suffix, edge = kinds_of.table[variant].T
    order = np.lexsort((edge, suffix, origin, rank, engine))
    series, origin, rank, engine = series[order], origin[order], rank[order], engine[order]
    new = np.ones(len(series), np.bool_)
    for key in (origin, rank, engine):
        new[1:] &= key[1:] == key[:-1]
    new[1:] = ~new[1:]
    starts = np.nonzero(new)[0]
    shapes: tuple[Shape, ...] = ()
    if metric.type == "histogram":
        shapes = tuple(_shapes(starts, suffix[order], edge[order]))
    engine, rank, origin = engine[starts], rank[starts], origin[starts]
    several = bool((np.diff(engine) == 0).any())
    named = [roster.models[one] is not None for one in origin.tolist()]
    model = np.where(named, origin, -1)
    return Column(metric, series, starts, engine, rank, origin, model, several, shapes)


def _shapes(starts: Numbers, suffix: Floats, edge: Floats) -> Iterator[Shape]:
    """Groups with the same parts and edges together."""
    sizes = np.diff(starts, append=len(suffix))
    for size in np.unique(sizes).tolist():
        groups = np.nonzero(sizes == size)[0]
        series = starts[groups][:, None] + np.arange(size)
        kinds = np.concatenate([suffix[series], edge[series]], axis=1)
        _, first, which = np.unique(kinds, axis=0, return_index=True, return_inverse=True)
        for number, one in enumerate(first.tolist()):
            alike = which.reshape(-1) == number
            yield Shape(groups[alike], series[alike], suffix[series[one]], edge[series[one]])


def says_engine(metric: Metric) -> bool:
    """Whether a series of it shows that an engine was there."""
    return metric.per_engine and metric.wire_name.startswith("vllm:")
