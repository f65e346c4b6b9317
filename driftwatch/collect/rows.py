"""Samples of series → rows of the scrape table: the one way, for an API, pages and recordings.

Samples of one server and engine with the same time are one scrape. A number that no engine can
have makes its own column unknown and is named; what else the scrape has is read.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl

from driftwatch.arrays import Floats, Integers
from driftwatch.collect.histograms import Histograms
from driftwatch.collect.registry import BY_COLUMN, REGISTRY
from driftwatch.collect.samples import NONE, Attempt, Samples, SourceMemory, series_text
from driftwatch.collect.schema import (
    SCRAPE_SCHEMA,
    TIME,
    Collected,
    SourceProblem,
    empty_scrapes,
)
from driftwatch.collect.servers import Servers
from driftwatch.model import TargetKey

# value of a cell with a bad number, and of one that two series fill differently
_BAD, _TWICE = -1.0, -2.0
_SHOWN_DOUBTS = 3
_FAR = np.iinfo(np.int64).max
# columns of one query, and why they may be missing
Unread = Sequence[tuple[Sequence[str], str]]


def scrape_rows(
    samples: Samples,
    attempts: Sequence[Attempt],
    known: SourceMemory,
    *,
    unread: Unread = (),
    silent: str = "",
    any_server: bool = True,
) -> Collected:
    """Every scrape once.

    Args:
        samples: of answers or pages; they are consumed.
        attempts: every known try to scrape.
        known: servers and engines of earlier answers; what is learnt is added.
        unread: columns of one query, and why they may be missing.
        silent: why a scrape that was answered has no row.
        any_server: whether an attempt at a server without any sample is a row.
    """
    frame, units, slots = samples.frame()
    servers = Servers(frame, units, slots, samples.configurations, attempts, known, any_server)
    good = _Scrapes(samples, frame, servers).table(known, unread)
    failed = _failed(good, servers, attempts, silent)
    scrapes = pl.concat([good, failed], how="vertical")
    scrapes = scrapes.sort("instance", "engine", "time", maintain_order=True).rechunk()
    return Collected(scrapes, servers.targets(), tuple(servers.problems))


class _Scrapes:
    """The scrapes that have a sample of an engine.

    A scrape's code is the number of its engine in the high bits and its time in the others.
    """

    def __init__(self, samples: Samples, frame: pl.DataFrame, servers: Servers) -> None:
        self._samples, self._servers = samples, servers
        self._problems_of: dict[int, list[str]] = {}  # row → what is wrong with it
        unit, slot, time, value = (column.to_numpy() for column in frame)
        units = np.array([number for number, _, _ in samples.configurations], np.int64)
        at = np.array([time for _, time, _ in samples.configurations], np.int64)
        every = np.concatenate([time, at])
        self._first = int(every.min(initial=_FAR))
        self._bits = int(every.max(initial=self._first) - self._first).bit_length()
        own, process = servers.engine_numbers()
        per_engine = servers.per_engine[slot]
        engine = np.where(per_engine, own[unit], NONE)
        read = servers.is_read[unit]
        parts = [(np.flatnonzero((engine != NONE) & read), engine)]
        shared = np.flatnonzero(~per_engine & read)
        counter = np.array([one.metric.type == "counter" for one in servers.slots], np.bool_)
        for depth, of in enumerate(process):
            # a gauge of the process holds for each engine, a counter is counted once
            once = shared[~counter[slot[shared]]] if depth else shared
            engine = of[unit]
            parts.append((once[engine[once] != NONE], engine))
        kept = np.concatenate([places for places, _ in parts])
        code = self._code(np.concatenate([of[places] for places, of in parts]), time[kept])
        is_noted = (own[units] != NONE) & servers.is_read[units]
        self._configured = self._code(own[units[is_noted]], at[is_noted])
        texts = [text for _, _, text in samples.configurations]
        self._texts = [text for text, noted in zip(texts, is_noted, strict=True) if noted]
        codes = np.concatenate([code[: len(parts[0][0])], self._configured])
        self._rows: Integers = pl.Series(codes).unique().sort().to_numpy()
        row = np.searchsorted(self._rows, code).clip(max=max(len(self._rows) - 1, 0))
        joins = self._rows[row] == code if len(self._rows) else np.zeros(len(code), np.bool_)
        self._row, kept = row[joins], kept[joins]
        self._unit, self._slot, self._value = unit[kept], slot[kept], value[kept]

    def table(self, known: SourceMemory, unread: Unread) -> pl.DataFrame:
        """A row for each of them."""
        keys, rows = self._servers.keys, self._rows
        if not len(rows):
            return empty_scrapes()
        self._note_scrapes()
        matrix = self._matrix()
        engine, micros = rows >> self._bits, (rows & ((1 << self._bits) - 1)) + self._first
        columns: dict[str, pl.Series] = {
            "instance": pl.Series([key.instance for key in keys]).gather(engine),
            "engine": pl.Series([key.engine for key in keys]).gather(engine),
            "time": pl.Series(micros).cast(TIME),
            "model_name": self._models(known),
            "cache_config": self._configurations(),
        }
        for metric in REGISTRY:
            if metric.type == "histogram":
                columns |= self._histogram(metric.column, matrix)
            elif metric.type != "info":
                columns |= self._scalar(metric.column, matrix)
        frame = pl.DataFrame(columns)
        starts = {"process_start_time_seconds", "created_seconds"}
        several = pl.all_horizontal(
            pl.lit(True), *(pl.col(c).is_null() for c in sorted(starts & columns.keys()))
        )
        if any(starts & set(asked) for asked, _ in unread):
            several = pl.lit(None, pl.Boolean)
        frame = frame.with_columns(
            ok=pl.lit(True), several_api_servers=several, reason=self._reasons(frame, unread)
        )
        return pl.concat([empty_scrapes(), frame], how="diagonal").select(list(SCRAPE_SCHEMA))

    def _code(self, engine: Any, time: Any) -> Any:
        return (engine << self._bits) + (time - self._first)

    def _note_scrapes(self) -> None:
        """What is wrong with scrapes as a whole, once for all engines of each."""
        for server, time, reason in self._samples.doubts:
            is_noted = False
            for name in self._servers.names_of(server):
                for engine in self._servers.engines_of(name):
                    number = self._servers.number.get(TargetKey(name, engine), NONE)
                    for row in np.flatnonzero(self._rows == self._code(number, time)).tolist():
                        self._note(row, reason, is_noted=is_noted)
                        is_noted = True

    def _note(self, row: int, reason: str, is_noted: bool = False) -> None:
        if reason in self._problems_of.get(row, ()):
            return
        key = self._servers.keys[int(self._rows[row]) >> self._bits]
        micros = (int(self._rows[row]) & ((1 << self._bits) - 1)) + self._first
        self._problems_of.setdefault(row, []).append(reason)
        if not is_noted:
            time = pl.Series([micros]).cast(TIME)[0]
            self._servers.problems.append(SourceProblem(key.instance, reason, time))

    def _models(self, known: SourceMemory) -> pl.Series:
        """The model of each row; of several the first."""
        numbers: dict[str | None, int] = {}
        for one in self._servers.units:
            if one.model is not None:
                numbers.setdefault(one.model, len(numbers))
        of_unit = [numbers.get(one.model, len(numbers)) for one in self._servers.units]
        chosen = np.full(len(self._rows), len(numbers))
        np.minimum.at(chosen, self._row, np.array(of_unit, np.int64)[self._unit])
        names = pl.Series([*numbers, None], dtype=pl.String).gather(chosen)
        last = dict(zip((self._rows >> self._bits).tolist(), names, strict=True))
        known.models |= {self._servers.keys[key]: name for key, name in last.items() if name}
        return names

    def _matrix(self) -> Floats:
        """(slots, rows): the number of each cell; NaN where there is none."""
        slots, value = self._servers.slots, self._value
        matrix = np.full((len(slots), len(self._rows)), np.nan)
        flat = matrix.reshape(-1)
        largest = np.array([slot.metric.largest for slot in slots])
        with np.errstate(invalid="ignore"):
            bad = ~((value >= 0) & (value <= largest[self._slot]))
        for index in np.flatnonzero(bad).tolist():
            why = _why_not(float(value[index]), float(largest[self._slot[index]]))
            self._note(int(self._row[index]), f"{self._text(index)} is {why}")
        value = np.where(bad, _BAD, value)
        cell = self._slot.astype(np.int64) * len(self._rows) + self._row
        flat[cell] = value
        for index in np.flatnonzero(flat[cell] != value).tolist():
            there, own = float(flat[cell[index]]), float(value[index])
            if there == _TWICE:
                continue
            flat[cell[index]] = _TWICE
            if min(there, own) >= 0:
                one, two = sorted((there, own))
                what = f"is there twice at one time, as {one:g} and {two:g}"
                self._note(int(self._row[index]), f"{self._text(index)} {what}")
        return matrix

    def _text(self, index: int) -> str:
        return series_text(
            self._servers.slots[self._slot[index]], self._servers.units[self._unit[index]]
        )

    def _of_column(self, column: str) -> list[list[int]]:
        """Numbers of a column's slots, of each name that it has; the current one first."""
        found: dict[int, list[int]] = {}
        for number, slot in enumerate(self._servers.slots):
            if slot.column == column:
                found.setdefault(slot.rank, []).append(number)
        return [found[rank] for rank in sorted(found)]

    def _scalar(self, column: str, matrix: Floats) -> dict[str, pl.Series]:
        """One series is the sum of one; a bad summand makes the sum unknown."""
        total = np.full(len(self._rows), np.nan)
        ranks = self._of_column(column)
        for slots in ranks:
            part = matrix[slots]
            value = np.nansum(part, axis=0)
            value[np.isnan(part).all(axis=0)] = np.nan
            value[(part < 0).any(axis=0)] = _BAD
            total = np.where(np.isnan(total), value, total)
        total[total < 0] = np.nan
        return {column: pl.Series(total).fill_nan(None)} if ranks else {}

    def _histogram(self, column: str, matrix: Floats) -> Mapping[str, pl.Series]:
        """Buckets sorted by edge, with sum and count; none of them where one is not sound."""
        metric = BY_COLUMN[column]
        found = Histograms(len(self._rows))
        ranks = self._of_column(column)
        for slots in ranks:
            found.add([(self._servers.slots[number], number) for number in slots], matrix)
        for row, why in found.wrong:
            self._note(row, why)
        for bare in found.bare if metric.buckets else ():
            # relabelling may drop the buckets and keep what means and rates are made of
            for key in np.unique(self._rows[bare] >> self._bits).tolist():
                why = f"{metric.wire_name} has _sum and _count, no _bucket"
                self._servers.problems.append(SourceProblem(self._servers.keys[key].instance, why))
        return found.columns(column, metric.buckets) if ranks else {}

    def _configurations(self) -> pl.Series:
        """The configuration of each row; of several the last is read."""
        texts: list[str | None] = [None] * len(self._rows)
        rows = np.searchsorted(self._rows, self._configured).tolist()
        for row, text in zip(rows, self._texts, strict=True):
            texts[row] = text
        return pl.Series(texts, dtype=pl.String)

    def _reasons(self, frame: pl.DataFrame, unread: Unread) -> pl.Expr:
        """What is doubtful about each row, and what it lacks because a query failed."""
        doubts: list[str | None] = [None] * len(frame)
        for row, several in self._problems_of.items():
            rest = len(several) - _SHOWN_DOUBTS
            more = f"; and {rest} more" if rest > 0 else ""
            doubts[row] = "; ".join(several[:_SHOWN_DOUBTS]) + more
        texts: list[pl.Expr] = [pl.lit(pl.Series(doubts, dtype=pl.String))]
        for asked, why in unread:
            names = [f"{c}_count" if BY_COLUMN[c].type == "histogram" else c for c in asked]
            lacks = pl.all_horizontal(
                pl.lit(True), *(pl.col(name).is_null() for name in names if name in frame.columns)
            )
            more = f" and {len(asked) - 1} more columns" if len(asked) > 1 else ""
            texts.append(pl.when(lacks).then(pl.lit(f"{asked[0]}{more} not read ({why})")))
        text = pl.concat_str([pl.lit(""), *texts], separator="; ", ignore_nulls=True)
        return text.str.strip_prefix("; ").replace("", None)


def _failed(
    good: pl.DataFrame, servers: Servers, attempts: Sequence[Attempt], silent: str
) -> pl.DataFrame:
    """A row for each engine of each scrape without a sample of it."""
    tried = [
        (name, one)
        for one in attempts
        if not servers.is_read_elsewhere(one)
        for name in servers.names_of(one.server)
    ]
    times: dict[str, set[int]] = defaultdict(set)  # of a server's good scrapes
    times_tried: dict[str, set[int]] = defaultdict(set)
    for name, time in good.select("instance", pl.col("time").dt.epoch("us")).unique().iter_rows():
        times[name].add(time)
    for name, one in tried:
        times_tried[name].add(one.time)
    reasons: dict[tuple[str, int], str] = {}
    for name, one in tried:
        own = times[name]
        # the samples of an answered scrape may carry times of their own
        is_elsewhere = one.reason is None and own and times_tried[name].isdisjoint(own)
        if one.time not in own and not is_elsewhere:
            reasons.setdefault((name, one.time), one.reason or silent)
    rows = [
        (name, engine, time, False, reason)
        for (name, time), reason in reasons.items()
        for engine in servers.engines_of(name)
    ]
    schema = {name: SCRAPE_SCHEMA[name] for name in ("instance", "engine", "time", "ok", "reason")}
    failed = pl.DataFrame(rows, {**schema, "time": pl.Int64}, orient="row")
    return pl.concat([empty_scrapes(), failed.cast({"time": TIME})], how="diagonal")


def _why_not(number: float, largest: float) -> str:
    """What is wrong with a number that its metric cannot have."""
    if number != number:
        return "NaN"
    if number in (float("inf"), float("-inf")):
        return "infinite"
    return f"negative ({number:g})" if number < 0 else f"{number:g}, above {largest:g}"
