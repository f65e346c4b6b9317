"""Answers of range queries → the columns of the scrape table, one cell per engine and grid time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import polars as pl

from driftwatch.collect.prometheus.choice import clashes, places, winners
from driftwatch.collect.prometheus.columns import Column, Floats, says_engine
from driftwatch.collect.prometheus.histograms import checked, why_bad
from driftwatch.collect.prometheus.numbers import NEVER, RangeAnswer
from driftwatch.collect.prometheus.placement import Placement
from driftwatch.collect.prometheus.query import Labels, Numbers, short_name
from driftwatch.collect.schema import BUCKETS, SourceProblem

Bools = npt.NDArray[np.bool_]
NONE = -1


@dataclass(slots=True)
class Lists:
    """A column of lists: each cell's list by its number, -1 where there is none."""

    number: Numbers
    pieces: list[pl.Series] = field(default_factory=list)
    count: int = 0

    def put(self, cells: Numbers, lists: Floats) -> None:
        """(lists, items): one for each of the cells, or one for all of them."""
        self.number[cells] = self.count + np.arange(len(lists))
        self.pieces.append(pl.Series(np.ascontiguousarray(lists)).arr.to_list())
        self.count += len(lists)

    def of(self, cells: Numbers) -> pl.Series:
        """The lists of these cells."""
        number = self.number[cells]
        every = pl.concat([pl.Series(dtype=BUCKETS), *self.pieces])
        return every.gather(pl.Series(number).set(pl.Series(number == NONE), None))


@dataclass(slots=True)
class Cells:
    """What the queries brought: each column as one flat array over engines and grid times."""

    placements: Sequence[Placement]  # whose engines; all of one roster
    times: Numbers  # the grid, unix ms, ascending
    engines: list[tuple[str, str]] = field(init=False)  # (instance, engine) of each row of cells
    present: Bools = field(init=False)  # there is a ``vllm:`` series of the engine
    of_model: Numbers = field(init=False)  # an origin that names the model, -1 where none does
    # column → its number, NaN where it is unknown; ``_sum`` and ``_count`` of histograms too
    values: dict[str, Floats] = field(default_factory=dict)
    lists: dict[str, Lists] = field(default_factory=dict)  # buckets and edges of histograms
    # column of an info metric → where it is placed, and the index of the series that is its value
    infos: dict[str, tuple[Placement, Numbers]] = field(default_factory=dict)
    # columns that say something of an engine, with the newest sample of each group
    alive: list[tuple[Column, Numbers]] = field(default_factory=list)
    # (instance, engine) that a problem names because of two series at the same time
    clashed: set[tuple[str, str]] = field(default_factory=set)
    problems: list[SourceProblem] = field(default_factory=list)
    _row_of: Numbers = field(init=False)  # of each engine of the roster

    def __post_init__(self) -> None:
        roster = self.placements[0].roster
        columns = [column.engine for one in self.placements for column in one.columns]
        numbers = np.unique(np.concatenate([np.empty(0, np.int64), *columns]))
        self.engines = [roster.engines[number] for number in numbers.tolist()]
        self._row_of = np.full(len(roster.engines), NONE)
        self._row_of[numbers] = np.arange(len(numbers))
        self.present = np.zeros(len(numbers) * len(self.times), np.bool_)
        self.of_model = np.full(len(self.present), NONE)

    def gather(
        self, placement: Placement, answer: RangeAnswer, scraped_as: Mapping[str, Labels]
    ) -> None:
        """Read the columns of one query.

        ``placement``: where the series of the answer belong; ``scraped_as``: instance → labels of
        its ``up`` series; of two series at the same time the one that carries them is read.
        """
        where = placement.query.text
        if placement.nameless:
            first = short_name(placement.nameless[min(placement.nameless)])
            self.problems.append(SourceProblem(where, f"{first} has no instance label: not read"))
        answer = answer.at(self.times)
        for column in placement.columns:
            self._take(_column_answer(self, placement, column, answer, scraped_as), answer)
            origins = placement.origins[placement.query.metrics.index(column.metric)]
            for index in (one for one in answer.twice if origins[one] >= 0):
                labels = short_name(placement.labels(column.metric, index))
                reason = f"{labels} is in the answer twice, with different numbers: not read"
                self.problems.append(SourceProblem(where, reason))

    def _take(self, part: _ColumnAnswer, answer: RangeAnswer) -> None:
        metric, column = part.column.metric, part.column
        cell = part.cells()
        if says_engine(metric):
            self.present[cell] = True
        if metric.type == "histogram":
            _histogram(self, part, answer)
        elif metric.type == "info":
            index = np.where(part.there, column.series[:, None], np.iinfo(np.int64).max)
            series = np.full(len(self.present), NONE)
            series[cell] = np.minimum.reduceat(index, column.starts)[part.wins]
            self.infos[metric.column] = (part.placement, series)
        else:
            if metric.per_engine:
                model = np.broadcast_to(column.model[:, None], part.wins.shape)[part.wins]
                self.of_model[cell] = np.where(self.of_model[cell] < 0, model, self.of_model[cell])
            _scalar(self, part, answer)

    def put(self, column: str, cells: Numbers, numbers: Floats) -> None:
        """Numbers of a column."""
        if column not in self.values:
            self.values[column] = np.full(len(self.present), np.nan)
        self.values[column][cells] = numbers

    def put_lists(self, column: str, cells: Numbers, lists: Floats) -> None:
        """Lists of a column."""
        if column not in self.lists:
            self.lists[column] = Lists(np.full(len(self.present), NONE))
        self.lists[column].put(cells, lists)

    def note(self, part: _ColumnAnswer, bad: Numbers, why: str) -> None:
        """A problem for each engine with bad cells."""
        if not len(bad):
            return
        rows, times = len(self.engines), len(self.times)
        count = np.bincount(bad // times, minlength=rows)
        of = np.bincount(part.cells() // times, minlength=rows)
        for row in np.nonzero(count)[0].tolist():
            instance, engine = self.engines[row]
            what = f"{part.column.metric.column} of engine {engine} of {instance}: {why}"
            reason = f"{what} ({count[row]} of {of[row]} grid times)"
            self.problems.append(SourceProblem(part.placement.query.text, reason))

    def labels(self) -> dict[tuple[str, str], Labels]:
        """(instance, engine) → what holds for the engine as a whole, at its newest grid time.

        Of a pod that was replaced in between nothing counts: what both have in common is neither.
        Nothing counts of an info metric, whose labels are its value, nor a label that a column
        chooses its series by.
        """
        roster = self.placements[0].roster
        last = np.full(len(roster.engines), NEVER)
        for column, newest in self.alive:
            np.maximum.at(last, column.engine, newest)
        pairs: dict[tuple[str, ...], list[Numbers]] = {}
        for column, newest in self.alive:
            apart = tuple(name for name, _ in column.metric.labels)
            is_last = (newest == last[column.engine]) & (newest > NEVER)
            pairs.setdefault(apart, []).append(column.origin[is_last])
        of_engine: dict[int, Labels] = {}
        for apart, several in pairs.items():
            for origin in np.unique(np.concatenate(several)).tolist():
                labels = roster.labels(origin)
                if apart:
                    labels = {k: v for k, v in labels.items() if k not in apart}
                engine = roster.engine[origin]
                before = of_engine.get(engine, labels)
                if before != labels:
                    labels = {k: v for k, v in before.items() if labels.get(k) == v}
                of_engine[engine] = labels
        return {roster.engines[engine]: labels for engine, labels in of_engine.items()}


@dataclass(frozen=True, slots=True)
class _ColumnAnswer:
    """One column of one answer."""

    placement: Placement
    column: Column
    there: Bools  # (series, times), whether each of the column's series has a sample
    wins: Bools  # (groups, times), whether the group is read
    cell: Numbers  # (groups, times)

    def cells(self, groups: Numbers | slice = slice(None)) -> Numbers:
        """Cells that these groups are read for, by group and time."""
        return self.cell[groups][self.wins[groups]]


def _column_answer(
    cells: Cells,
    placement: Placement,
    column: Column,
    answer: RangeAnswer,
    scraped_as: Mapping[str, Labels],
) -> _ColumnAnswer:
    metric = column.metric
    shape = (len(column.series), len(answer.times))
    there = np.ones(shape, np.bool_) if answer.there is None else answer.there[column.series]
    has = wins = np.logical_or.reduceat(there, column.starts)
    if metric.per_engine and metric.type != "info":
        cells.alive.append((column, _newest(has, answer.times)))
    if column.several:
        place = places(column, has, placement.roster, scraped_as)
        wins = winners(column, has, place)
        for engine, winner, other in (
            () if metric.type == "info"  # its labels change with a restart
            else clashes(column, placement, has, wins, place, there, cells.clashed)
        ):  # fmt: skip
            cells.clashed.add(engine)
            reason = (
                f"engine {engine[1]} of {engine[0]} has two series at the same time: read "
                f"{short_name(winner)}, not {short_name(other)}"
            )
            cells.problems.append(SourceProblem(placement.query.text, reason))
    row = cells._row_of[column.engine] * len(cells.times)
    cell = row[:, None] + np.searchsorted(cells.times, answer.times)
    return _ColumnAnswer(placement, column, there, wins, cell)


def _newest(has: Bools, times: Numbers) -> Numbers:
    """When each group has its last sample, unix ms."""
    if not len(times):
        return np.full(len(has), NEVER)
    back = np.argmax(has[:, ::-1], axis=1)
    return np.where(has.any(axis=1), times[len(times) - 1 - back], NEVER)


def _scalar(cells: Cells, part: _ColumnAnswer, answer: RangeAnswer) -> None:
    """One series is the sum of one; a bad summand makes the sum unknown."""
    column, largest = part.column, part.column.metric.largest
    value = np.where(part.there, answer.value[column.series], 0)
    bad = np.logical_or.reduceat(~((value >= 0) & (value <= largest)), column.starts)
    with np.errstate(invalid="ignore"):
        total = np.add.reduceat(value, column.starts)
    total[bad] = np.nan
    cell = part.cells()
    cells.put(column.metric.column, cell, total[part.wins])
    cells.note(part, cell[bad[part.wins]], why_bad(largest))


def _histogram(cells: Cells, part: _ColumnAnswer, answer: RangeAnswer) -> None:
    """Buckets sorted by edge, with sum and count; none of them where one is not sound."""
    name, column = part.column.metric.column, part.column
    wrong: dict[str, list[Numbers]] = {}
    for shape in column.shapes:
        cell, wins = part.cells(shape.groups), part.wins[shape.groups]
        value = answer.value[column.series[shape.series]].transpose(0, 2, 1)[wins]
        there = part.there[shape.series].transpose(0, 2, 1)[wins]
        sound, problems = checked(shape, value, there, column.metric.largest)
        for one in sound:
            cells.put(f"{name}_sum", cell[one.rows], one.sums)
            cells.put(f"{name}_count", cell[one.rows], one.counts)
            if len(one.edges):
                cells.put_lists(f"{name}_buckets", cell[one.rows], one.buckets)
                cells.put_lists(f"{name}_edges", cell[one.rows], one.edges[None])
        for rows, why in problems:
            wrong.setdefault(why, []).append(cell[rows])
    for why, bad in wrong.items():
        cells.note(part, np.concatenate(bad), why)
