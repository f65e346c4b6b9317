"""Which column each series of an answer belongs to, worked out once per series.

A steady fleet answers with the same series every time, and a fleet of thousands has millions. So
of a series only numbers are kept: the hash of its labels, its origin and its variant. What can be
said of an origin or of a variant is kept once, and a series' labels can be told from the two.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import numpy.typing as npt
import orjson
import polars as pl

from driftwatch.collect.prometheus.answer import NEVER, Heads, Keys, Known
from driftwatch.collect.prometheus.query import Labels, Numbers, Query, labels_of
from driftwatch.collect.registry import Metric

_SPARE = 50_000  # origins or variants that nobody uses any more, before they are forgotten


@dataclass
class Placement:
    """Every series of one answer at its place.

    Attributes:
        query: what was asked.
        keys: hashes of the series' labels, in the answer's order.
        variant: of each series, -1 where it is not read.
        origins: for each metric of the query the origin of each series, -1 where it is not of it.
        nameless: labels of the series without an instance.
    """

    query: Query
    known: Known
    variant: npt.NDArray[np.int32]
    origins: list[npt.NDArray[np.int32]]
    nameless: dict[int, Labels]
    variants: Variants
    roster: Roster

    @cached_property
    def columns(self) -> tuple[Column, ...]:
        """Those that have any series."""
        found = (
            column_of(metric, origin, self.variant, self.variants, self.roster)
            for metric, origin in zip(self.query.metrics, self.origins, strict=True)
        )
        return tuple(column for column in found if column is not None)

    def labels(self, metric: Metric, index: int) -> Labels:
        """Labels of a series that is read for a metric."""
        origin = self.origins[self.query.metrics.index(metric)][index]
        variant = self.variants.labels[self.variant[index]]
        apart = _apart(metric)
        rest = self.roster.labels(int(origin))
        return {**rest, **{k: v for k, v in variant.items() if k in apart}}


@dataclass
class Placements:
    """What is known of the series of every query."""

    roster: Roster = field(default_factory=lambda: Roster())
    _last: dict[str, Placement] = field(default_factory=dict)

    def known(self, text: str) -> Known:
        """The series of the answer before to this query; nothing where there was none."""
        last = self._last.get(text)
        if last is not None and len(last.variants.labels) > _SPARE:
            del self._last[text]  # edges that come and go
            last = None
        return Known() if last is None else last.known

    def of(self, query: Query, keys: Keys, heads: Heads) -> Placement:
        """The placement of these series.

        Args:
            heads: labels of those that :meth:`known` does not name.
        """
        last = self._last.get(query.text)
        if last is None or not np.array_equal(last.known.keys, keys):
            last = _placement(query, keys, heads, last, self.roster)
            if len(keys):  # an answer that did not come makes nobody forget
                self._last[query.text] = last
        return last

    def prune(self) -> None:
        """Forget origins that no series has any more, when there are many."""
        used = np.unique(
            np.concatenate([[-1], *(o for p in self._last.values() for o in p.origins)])
        )
        used = used[used >= 0].astype(np.int64)
        if len(self.roster.texts) > 2 * len(used) + _SPARE:
            fresh = Roster()
            number = np.full(len(self.roster.texts) + 1, -1, np.int32)
            number[used] = [fresh.add(self.roster.labels(o)) for o in used.tolist()]
            for name, p in self._last.items():
                origins = [number[origin] for origin in p.origins]
                self._last[name] = Placement(
                    p.query, p.known, p.variant, origins, p.nameless, p.variants, fresh
                )
            self.roster = fresh


def _placement(
    query: Query, keys: Keys, heads: Heads, last: Placement | None, roster: Roster
) -> Placement:
    """What is known of the series is taken over; only the others are looked at."""
    variant = np.full(len(keys), -1, np.int32)
    origins = [np.full(len(keys), -1, np.int32) for _ in query.metrics]
    nameless: dict[int, Labels] = {}
    variants = Variants()
    if last is not None:
        variants = last.variants
        found = last.known.find(keys)
        old = found >= 0
        variant[old] = last.variant[found[old]]
        for ours, theirs in zip(origins, last.origins, strict=True):
            ours[old] = theirs[found[old]]
        if last.nameless:
            nameless = {
                i: last.nameless[f] for i, f in enumerate(found.tolist()) if f in last.nameless
            }
    known = Known(keys)
    summed = tuple(dict.fromkeys(name for m in query.metrics for name in m.sum_over))
    new = (
        (index, labels_of(head))
        for named, written in heads.pieces()
        for index, head in zip(known.find(named).tolist(), written, strict=True)
    )
    for index, labels in new:
        if not labels.get("instance"):
            nameless[index] = labels
            continue
        name = labels.pop("__name__", "")
        named = query.ranks.get(name)
        if named is None:
            continue
        kind = (name, labels.pop("le", None), *(labels.get(one) for one in summed))
        variant[index] = variants.add(kind, named, summed)
        for number, metric in enumerate(query.metrics):
            if any(labels.get(one) != value for one, value in metric.labels):
                continue
            rest = labels
            if metric.sum_over:
                rest = {k: v for k, v in labels.items() if k not in metric.sum_over}
            origins[number][index] = roster.add(rest)
    return Placement(query, known, variant, origins, nameless, variants, roster)


def _apart(metric: Metric) -> tuple[str, ...]:
    """Labels in which series that belong together differ."""
    return ("__name__", "le", *metric.sum_over)


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


def engine_labels(
    alive: Sequence[tuple[Column, Numbers]], roster: Roster
) -> dict[tuple[str, str], Labels]:
    """(instance, engine) → what holds for the engine as a whole, at its newest grid time.

    Of a pod that was replaced in between nothing counts: what both have in common is neither.
    Nothing counts of an info metric, whose labels are its value, nor a label that a column
    chooses its series by.

    Args:
        alive: columns, and the time of the newest sample of each of their origins.
    """
    engine_of = roster.engine
    last = np.full(len(roster.engines), NEVER)
    counted = [one for one in alive if one[0].metric.per_engine and one[0].metric.type != "info"]
    for column, newest in counted:
        np.maximum.at(last, engine_of[column.origins], newest)
    pairs: dict[tuple[str, ...], list[Numbers]] = {}
    for column, newest in counted:
        apart = tuple(name for name, _ in column.metric.labels)
        there = newest == last[engine_of[column.origins]]
        pairs.setdefault(apart, []).append(column.origins[there])
    found: dict[int, Labels] = {}
    for apart, several in pairs.items():
        for origin in np.unique(np.concatenate(several)).tolist():
            labels = roster.kept_labels(origin)
            if apart:
                labels = {k: v for k, v in labels.items() if k not in apart}
            engine = int(engine_of[origin])
            before = found.get(engine)
            found[engine] = labels if before is None else common(before, labels)
    return {roster.engines[engine]: labels for engine, labels in found.items()}


SUFFIXES = ("", "_bucket", "_sum", "_count")


class Roster:
    """Every origin (labels that must agree for numbers to belong together) and its engine.

    Attributes:
        texts: labels of each origin as sorted JSON.
        engine: number of each origin's engine.
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
        self._made: dict[str, tuple[int, npt.NDArray[np.int64] | pl.Series]] = {}

    def add(self, labels: Labels) -> int:
        """The origin with these labels, ``instance`` among them."""
        text = orjson.dumps(labels, option=orjson.OPT_SORT_KEYS)
        origin = self._origin_of.get(text)
        if origin is None:
            text = bytes(memoryview(text))  # orjson's own is cut out of a block of kilobytes
            origin = self._origin_of[text] = len(self.texts)
            name = (str(labels["instance"]), str(labels.get("engine") or "0"))
            engine = self._engine_of.get(name)
            if engine is None:
                engine = self._engine_of[name] = len(self.engines)
                self.engines.append(name)
            model = labels.get("model_name")
            self.texts.append(text)
            self._engine.append(engine)
            self._models.append(None if model is None else str(model))
        return origin

    def labels(self, origin: int) -> Labels:
        """The labels of an origin."""
        return labels_of(self.texts[origin])

    def kept_labels(self, origin: int) -> Labels:
        """The labels of an origin that is asked for every time: the same object."""
        found = self._labels.get(origin)
        if found is None:
            found = self._labels[origin] = self.labels(origin)
        return found

    @property
    def engine(self) -> Numbers:
        """Engine of each origin."""
        made = self._made.get("engine")
        if made is None or made[0] != len(self._engine):
            made = self._made["engine"] = len(self._engine), np.array(self._engine, np.int64)
        assert isinstance(made[1], np.ndarray)  # noqa: S101 - for mypy
        return made[1]

    def named(self, engines: Numbers, repeated: int) -> list[pl.Series]:
        """``instance`` and ``engine`` of engines, each of them so many times."""
        names = [
            self._series("instance", len(self.engines), (i for i, _ in self.engines)),
            self._series("engine", len(self.engines), (e for _, e in self.engines)),
        ]
        rows = np.repeat(engines, repeated)
        return [name.gather(rows) for name in names]

    def models(self, origins: Numbers) -> pl.Series:
        """``model_name`` of origins."""
        return self._series("model_name", len(self._models), self._models).gather(origins)

    def _series(self, name: str, size: int, values: Iterable[str | None]) -> pl.Series:
        made = self._made.get(f"{name} series")
        if made is None or made[0] != size:
            made = size, pl.Series(name, list(values), pl.String)
            self._made[f"{name} series"] = made
        assert isinstance(made[1], pl.Series)  # noqa: S101 - for mypy
        return made[1]


class Variants:
    """What tells the series of one origin and query apart: name, part of a histogram, edge.

    Attributes:
        rank: of each variant's name, 0 is the current one.
        suffix: index of its suffix: "", _bucket, _sum, _count.
        edge: upper edge of a bucket, NaN where it has none or ``le`` is no number.
        labels: its metric's name and the labels that the origin does not have.
    """

    def __init__(self) -> None:
        self.labels: list[Labels] = []
        self._rows: list[tuple[int, int, float]] = []
        self._known: dict[tuple[str | None, ...], int] = {}
        self._made: npt.NDArray[np.float64] = np.empty((0, 3))

    def add(
        self, kind: tuple[str | None, ...], named: tuple[int, str], summed: Sequence[str]
    ) -> int:
        """The variant of a kind: name, ``le`` and the labels that are summed away."""
        variant = self._known.get(kind)
        if variant is None:
            variant = self._known[kind] = len(self.labels)
            pairs = zip(("__name__", "le", *summed), kind, strict=True)
            labels = {name: value for name, value in pairs if value is not None}
            rank, suffix = named
            edge = _edge(labels) if suffix == "_bucket" else math.nan
            self.labels.append(labels)
            self._rows.append((rank, SUFFIXES.index(suffix), edge))
        return variant

    def _table(self) -> npt.NDArray[np.float64]:
        if len(self._made) != len(self._rows):
            self._made = np.array(self._rows, np.float64).reshape(-1, 3)
        return self._made

    @property
    def rank(self) -> npt.NDArray[np.float64]:
        """Of each variant."""
        return self._table()[:, 0]

    @property
    def suffix(self) -> npt.NDArray[np.float64]:
        """Of each variant."""
        return self._table()[:, 1]

    @property
    def edge(self) -> npt.NDArray[np.float64]:
        """Of each variant."""
        return self._table()[:, 2]


def common(one: Labels, other: Labels) -> Labels:
    """The labels that both have with the same value."""
    return one if one == other else {k: v for k, v in one.items() if other.get(k) == v}


def _edge(labels: Mapping[str, str]) -> float:
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


@dataclass(frozen=True, slots=True)
class Column:
    """The series that one column is read from."""

    metric: Metric  # what is read
    origins: Numbers  # those that its series have, each once
    blocks: tuple[Block, ...]  # what can be read at once
    # engines that a choice must be made for: several origins or names, the same series twice,
    # buckets that are not whole
    rest: Numbers


def column_of(
    metric: Metric,
    origins: npt.NDArray[np.int32],
    variants: npt.NDArray[np.int32],
    said: Variants,
    roster: Roster,
) -> Column | None:
    """The column of a metric, None where the answer has no series of it.

    Args:
        origins: of each series, -1 where it is not of the metric.
    """
    series = np.nonzero(origins >= 0)[0]
    if not len(series):
        return None
    origin, variant = origins[series].astype(np.int64), variants[series].astype(np.int64)
    engine = roster.engine[origin]
    kind = variant if metric.type != "histogram" else said.edge[variant]
    # by engine; of a histogram the buckets by edge, then sum and count
    order = np.lexsort((kind, said.suffix[variant], engine))
    engine, kinds = engine[order], variant[order]
    starts = np.nonzero(np.diff(engine, prepend=-1))[0]
    sizes = np.diff(starts, append=len(engine))
    chosen = origin[order] * 64 + said.rank[kinds].astype(np.int64)
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
            whole, blocks_of = _histograms(block, said, kinds[of])
            blocks += blocks_of
            rest.append(block.engines[~whole])
        else:
            blocks.append(block)
    return Column(metric, np.unique(origin), tuple(blocks), np.concatenate(rest))


def _histograms(
    block: Block, said: Variants, kinds: Numbers
) -> tuple[npt.NDArray[np.bool_], list[Block]]:
    """Engines with all parts of a histogram, those with the same edges together."""
    size = kinds.shape[1]
    if size < 3:
        return np.zeros(len(kinds), np.bool_), []
    parts, edges = said.suffix[kinds], said.edge[kinds][:, :-2]
    wanted = [1.0] * (size - 2) + [2.0, 3.0]
    whole = (parts == wanted).all(axis=1) & (edges[:, -1] == math.inf)
    whole &= (np.diff(edges, axis=1) > 0).all(axis=1) & ~np.isnan(edges).any(axis=1)
    if not whole.any():
        return whole, []
    kept = Block(block.engines[whole], block.origins[whole], block.series[whole])
    different, which = np.unique(edges[whole], axis=0, return_inverse=True)
    which = which.reshape(-1)
    return whole, [
        Block(
            kept.engines[which == number],
            kept.origins[which == number],
            kept.series[which == number],
            tuple(one.tolist()),
        )
        for number, one in enumerate(different)
    ]
