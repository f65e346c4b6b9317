"""Which column each series of an answer belongs to, worked out once per series.

A steady fleet answers with the same series every time, and a fleet of thousands has millions. So
of a series only numbers are kept: the hash of its labels, its origin and its variant. What can be
said of an origin or of a variant is kept once, and a series' labels can be told from the two.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import numpy.typing as npt

from driftwatch.collect.prometheus.answer import Heads, Keys, LastSeries
from driftwatch.collect.prometheus.columns import Column, Roster, Variants, column_of
from driftwatch.collect.prometheus.numbers import RangeAnswer
from driftwatch.collect.prometheus.query import Labels, Query, labels_of
from driftwatch.collect.registry import Metric

_SPARE = 50_000  # origins or variants that nobody uses any more, before they are forgotten


@dataclass
class Placement:
    """Where every series of one answer belongs."""

    query: Query
    series: LastSeries  # hashes of the series' labels, in the answer's order
    variant: npt.NDArray[np.int32]  # of each series, -1 where it is not read
    # for each metric of the query the origin of each series, -1 where it is not of it
    origins: list[npt.NDArray[np.int32]]
    nameless: dict[int, Labels]  # labels of the series without an instance
    variants: Variants
    roster: Roster

    @cached_property
    def columns(self) -> tuple[Column, ...]:
        """Those that have any series."""
        columns = (
            column_of(metric, origin, self.variant, self.variants, self.roster)
            for metric, origin in zip(self.query.metrics, self.origins, strict=True)
        )
        return tuple(column for column in columns if column is not None)

    def labels(self, metric: Metric, index: int) -> Labels:
        """Labels of a series that is read for a metric."""
        origin = self.origins[self.query.metrics.index(metric)][index]
        variant = self.variants.labels[self.variant[index]]
        apart = ("__name__", "le", *metric.sum_over)
        rest = self.roster.labels(int(origin))
        return {**rest, **{k: v for k, v in variant.items() if k in apart}}


@dataclass
class Placements:
    """What is known of the series of every query."""

    roster: Roster = field(default_factory=lambda: Roster())
    _last: dict[str, Placement] = field(default_factory=dict)

    def last_series(self, text: str) -> LastSeries:
        """The series of the answer before to this query; nothing where there was none."""
        last = self._last.get(text)
        if last is not None and len(last.variants.labels) > _SPARE:
            del self._last[text]  # edges that come and go
            last = None
        return LastSeries() if last is None else last.series

    def of(self, query: Query, answer: RangeAnswer) -> Placement:
        """The placement of an answer's series, asked with :meth:`last_series`."""
        keys = answer.keys
        last = self._last.get(query.text)
        if last is None or not np.array_equal(last.series.keys, keys):
            last = _placement(query, keys, answer.heads, last, self.roster)
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
                    p.query, p.series, p.variant, origins, p.nameless, p.variants, fresh
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
        positions = last.series.find(keys)
        old = positions >= 0
        variant[old] = last.variant[positions[old]]
        for ours, theirs in zip(origins, last.origins, strict=True):
            ours[old] = theirs[positions[old]]
        if last.nameless:
            nameless = {
                i: last.nameless[f] for i, f in enumerate(positions.tolist()) if f in last.nameless
            }
    series = LastSeries(keys)
    summed = tuple(dict.fromkeys(name for m in query.metrics for name in m.sum_over))
    new = (
        (index, labels_of(head))
        for named, written in heads.pieces()
        for index, head in zip(series.find(named).tolist(), written, strict=True)
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
    return Placement(query, series, variant, origins, nameless, variants, roster)
