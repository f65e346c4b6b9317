"""Which column each series of an answer belongs to, worked out once per list of series.

A steady fleet answers with the same series every time, so a source keeps the last list of each
query with what became of it: one entry per query, as large as its last answer.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import orjson
import polars as pl

from driftwatch.collect.prometheus_query import Query
from driftwatch.collect.registry import Metric

Labels = Mapping[str, str]

_SHOWN_CHARACTERS = 200


@dataclass(frozen=True, slots=True)
class Column:
    """The series that one column is read from.

    Attributes:
        metric: what is read.
        place: a row per series: ``series`` (index into the answer), ``instance``, ``engine``,
            ``model_name``, ``rank`` (of its name: 0 is the current one), ``suffix``, ``edge``
            (upper edge of a bucket, NaN where ``le`` is no number), ``origin`` (number of its
            set of labels), ``foreign`` (not of the scrape whose up is read) and ``text`` (the
            labels, for an order that does not hang on the answer's).
        contested: an engine has series of several origins or names, so that a choice must be made.
        shared: (instance, engine) → labels that all of the engine's series of this column share.
    """

    metric: Metric
    place: pl.DataFrame
    contested: bool
    shared: Mapping[tuple[str, str], Mapping[str, str]]


@dataclass(frozen=True, slots=True)
class Placement:
    """Every series of one answer at its place.

    Attributes:
        heads: labels of each series as JSON.
        scraped_as: instance → labels of its ``up`` series.
        nameless: the first series without an instance, None where there is none.
        columns: those that have any series.
    """

    heads: Sequence[bytes]
    scraped_as: Mapping[str, Labels]
    nameless: Labels | None
    columns: tuple[Column, ...]


class Placements:
    """The last placement of each query."""

    def __init__(self) -> None:
        self._last: dict[str, Placement] = {}

    def heads(self, text: str) -> Sequence[bytes]:
        """The series of the answer before to this query; empty where there was none."""
        last = self._last.get(text)
        return () if last is None else last.heads

    def of(
        self, query: Query, heads: Sequence[bytes], scraped_as: Mapping[str, Labels]
    ) -> Placement:
        """The placement of these series.

        Args:
            query: what was asked.
            heads: labels of each series as JSON.
            scraped_as: instance → labels of its ``up`` series; of two series at the same time
                the one that carries them is read.
        """
        last = self._last.get(query.text)
        if last is None or last.heads != heads or last.scraped_as != scraped_as:
            last = self._last[query.text] = _placement(query, heads, scraped_as)
        return last


def labels_of(head: bytes) -> Labels:
    """The labels that a head holds."""
    labels: Labels = orjson.loads(head)
    return labels


def shown(labels: Labels) -> str:
    """A series as problems name it, shortened."""
    rest = ",".join(f'{k}="{v}"' for k, v in sorted(labels.items()) if k != "__name__")
    text = f"{labels.get('__name__', '')}{{{rest}}}"
    return text if len(text) <= _SHOWN_CHARACTERS else text[:_SHOWN_CHARACTERS] + "…"


def _placement(query: Query, heads: Sequence[bytes], scraped_as: Mapping[str, Labels]) -> Placement:
    labels = [labels_of(head) for head in heads]
    nameless = next((one for one in labels if not one.get("instance")), None)
    columns = (_column(query, metric, labels, scraped_as) for metric in query.metrics)
    return Placement(heads, scraped_as, nameless, tuple(c for c in columns if c is not None))


_PLACE = {
    "series": pl.UInt32,
    "rank": pl.UInt8,
    "suffix": pl.String,
    "edge": pl.Float64,
    "origin": pl.UInt32,
}
_ORIGIN = {
    "origin": pl.UInt32,
    "instance": pl.String,
    "engine": pl.String,
    "model_name": pl.String,
    "foreign": pl.Boolean,
    "text": pl.String,
}
# a row of _ORIGIN, and the labels that must agree for numbers to belong together
_Origin = tuple[int, str, str, str | None, bool, str, Labels]


def _column(
    query: Query, metric: Metric, labels: Sequence[Labels], scraped_as: Mapping[str, Labels]
) -> Column | None:
    apart = ("__name__", "le", *metric.sum_over)
    origins: dict[frozenset[tuple[str, str]], _Origin] = {}
    rows: list[tuple[int, int, str, float | None, int]] = []
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
        rows.append((index, *named, edge, origin[0]))
    if not rows:
        return None
    place = pl.DataFrame(dict(zip(_PLACE, zip(*rows, strict=True), strict=True)), schema=_PLACE)
    home = pl.DataFrame([o[:-1] for o in origins.values()], schema=_ORIGIN, orient="row")
    place = place.join(home, on="origin", how="left", maintain_order="left")
    choices = place.select("instance", "engine", "rank", "origin").unique()
    contested = choices.select("instance", "engine").is_duplicated().any()
    return Column(metric, place, contested, _shared(metric, origins.values()))


def _origin(number: int, labels: Labels, scraped_as: Mapping[str, Labels]) -> _Origin:
    instance, model = str(labels["instance"]), labels.get("model_name")
    engine = str(labels.get("engine") or "0")
    scrape = scraped_as.get(instance, {})
    foreign = any(labels.get(name) != value for name, value in scrape.items())
    text = repr(sorted(labels.items()))
    return number, instance, engine, None if model is None else str(model), foreign, text, labels


def _edge(labels: Labels) -> float:
    try:
        return float(labels["le"])
    except (KeyError, ValueError):
        return math.nan


def _shared(
    metric: Metric, origins: Iterable[_Origin]
) -> Mapping[tuple[str, str], Mapping[str, str]]:
    """What holds for an engine as a whole; nothing of an info, whose labels are its value."""
    found: dict[tuple[str, str], Mapping[str, str]] = {}
    if not metric.per_engine or metric.type == "info":
        return found
    apart = {name for name, _ in metric.labels}
    for _, instance, engine, _, _, _, labels in origins:
        ours = {k: v for k, v in labels.items() if k not in apart}
        found[instance, engine] = common(found.get((instance, engine), ours), ours)
    return found


def common(one: Mapping[str, str], other: Mapping[str, str]) -> Mapping[str, str]:
    """The labels that both have with the same value."""
    return one if one == other else {k: v for k, v in one.items() if other.get(k) == v}
