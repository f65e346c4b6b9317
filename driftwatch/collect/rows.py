"""Samples of series → rows of the scrape table: the one way, for an API, pages and recordings.

Samples of one server and engine with the same time are one scrape. A number that no engine can
have makes its own column unknown and is named; what else the scrape has is read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import polars as pl

from driftwatch.collect.histograms import Histograms, gathered
from driftwatch.collect.identity import doubles, successors
from driftwatch.collect.registry import BY_COLUMN, REGISTRY
from driftwatch.collect.samples import (
    NONE,
    Attempt,
    Block,
    Bools,
    Floats,
    Ints,
    Ints32,
    Part,
)
from driftwatch.collect.schema import (
    SCRAPE_SCHEMA,
    TIME,
    Collected,
    SourceProblem,
    empty_scrapes,
    scrape_frame,
)
from driftwatch.collect.scraped_servers import Homes, ScrapedServers
from driftwatch.model import TargetKey

# what stands in a cell whose number is none, and in one that two series claim
_BAD, _TWICE = -1.0, -2.0
_SHOWN_DOUBTS = 3
_NEXT_SCRAPE = 90_000_000  # microseconds in which a server that is scraped has another scrape


class Table(ScrapedServers):
    """The rows of one answer."""

    def rows(
        self,
        attempts: Sequence[Attempt],
        unread: Sequence[tuple[Sequence[str], str]],
        silent: str,
        any_server: bool,
    ) -> Collected:
        """Every scrape once (:meth:`driftwatch.collect.samples.Samples.rows`)."""
        spans = self._spans()
        known = self._known
        twice = doubles(spans, self._started(), known.names.held, self._same_counters)
        self._note_doubles(twice)
        self._spans_of = {
            one: (spans[read][0] - _NEXT_SCRAPE, spans[read][1] + _NEXT_SCRAPE)
            for one, read in twice.items()
        }
        later = successors({one: span for one, span in spans.items() if one not in twice})
        # whose name a server has: that of the one that is read, and of its successor
        self._later = later | {one: later.get(read, read) for one, read in twice.items()}
        listed = {self._later.get(one, one) for one in spans}
        before = {self._later.get(one, one) for one in known.names.held}
        self._homes = Homes(listed | twice.keys() | before, listed | twice.keys())
        tried = {one.server: self._homes.of(one.server) for one in attempts}
        strangers = {one for one, homes in tried.items() if not homes and any_server}
        present = listed | strangers | {home for homes in tried.values() for home in homes}
        present -= twice.keys()
        now = max((span[1] for span in spans.values()), default=0)
        now = max(now, *(one.time for one in attempts), 0)
        known.names.give(present, twice, later, now)
        self._keys, self._key_of = self._engines(listed)
        self._own, self._process = self._places()
        frame = self._good(unread)
        failed = self._failed(frame, attempts, silent)
        scrapes = pl.concat([frame, failed], how="vertical")
        scrapes = scrapes.sort("instance", "engine", "time", maintain_order=True).rechunk()
        return Collected(scrapes, self._targets(present), tuple(self._problems))

    def _places(self) -> tuple[Ints, list[Ints]]:
        """Of each unit its engine's number; and, where it is of a process, those of all of them."""
        own = np.full(len(self._units), NONE)
        process: list[list[int]] = []
        # a process that is scraped twice is read by one of them, while that one has samples
        spans = [self._spans_of.get(unit.server, (0, -1)) for unit in self._units]
        self._from, self._to = np.array(spans, np.int64).reshape(-1, 2).T
        for number, unit in enumerate(self._units):
            name = self._name(unit.server)
            engines = self._known.engines.get(name or "", ())
            if name is not None and (unit.engine or len(engines) == 1):
                own[number] = self._key_of.get(TargetKey(name, unit.engine or engines[0]), NONE)
            servers = [name] if name else [self._name(one) for one in self._homes.of(unit.server)]
            process.append(
                [
                    self._key_of[TargetKey(one, engine)]
                    for one in servers
                    if one
                    for engine in self._known.engines.get(one, ())
                    if unit.engine in (None, engine) and TargetKey(one, engine) in self._key_of
                ]
            )
        deepest = max(map(len, process), default=0)
        return own, [
            np.array([one[i] if i < len(one) else NONE for one in process], np.int64)
            for i in range(deepest)
        ]

    def _parts(self) -> Iterator[Part]:
        """Block, series, engine, slot of samples that belong together."""
        own, process = self._own, self._process
        counter = np.array([BY_COLUMN[s.column].type == "counter" for s in self._slots] + [False])
        for block in self._blocks:
            for slots in block.slots:
                per_engine = self._per_engine[slots] & (slots != NONE)
                engine_of = np.where(per_engine, own[block.unit], NONE)
                self._note_homeless(block, per_engine & (engine_of == NONE))
                yield from self._samples(block, slots, engine_of)
                shared = ~per_engine & (slots != NONE)
                if shared.any():
                    for depth, of in enumerate(process):
                        # a gauge of the process holds for each engine, a counter is counted once
                        once = shared & ~(counter[slots] & (depth > 0))
                        yield from self._samples(block, slots, np.where(once, of[block.unit], NONE))

    def _samples(self, block: Block, slots: Ints32, engine_of: Ints) -> Iterator[Part]:
        keep = (engine_of != NONE)[block.series]
        if self._spans_of:
            unit = block.unit[block.series]
            keep &= (block.time < self._from[unit]) | (block.time > self._to[unit])
        if not keep.any():
            return
        whole = bool(keep.all())
        series = block.series if whole else block.series[keep]
        time = block.time if whole else block.time[keep]
        value = block.value if whole else block.value[keep]
        code = self._code(engine_of[series], time)
        yield Part(block, series, code, slots[series], value)

    def _good(self, unread: Sequence[tuple[Sequence[str], str]]) -> pl.DataFrame:
        """The rows of scrapes that brought something of an engine."""
        times = [b.time for b in self._blocks if len(b.time)]
        times += [np.array([time for _, time, _ in self._configs], np.int64)] * bool(self._configs)
        if not times or not self._keys:
            return empty_scrapes()
        self._first = min(int(t.min()) for t in times)
        self._bits = (max(int(t.max()) for t in times) - self._first).bit_length() + 1
        own = self._own
        units = np.array([unit for unit, _, _ in self._configs], np.int64)
        at = np.array([time for _, time, _ in self._configs], np.int64)
        configured = own[units] != NONE
        configured &= (at < self._from[units]) | (at > self._to[units])
        config_codes = self._code(own[units][configured], at[configured])
        says = self._per_engine
        self._held = list(self._parts())
        codes = [np.unique(code[says[slot]]) for _, _, code, slot, _ in self._held]
        rows = np.unique(np.concatenate([*codes, config_codes]))
        if not len(rows):
            return empty_scrapes()
        self._note_scrapes(rows)
        models, others = self._models(rows)
        matrix = self._matrix(rows, others)
        engine, micros = rows >> self._bits, (rows & ((1 << self._bits) - 1)) + self._first
        columns: dict[str, pl.Series] = {
            "instance": pl.Series([key.instance for key in self._keys]).gather(engine),
            "engine": pl.Series([key.engine for key in self._keys]).gather(engine),
            "time": pl.Series(micros).cast(TIME),
            "model_name": models,
        }
        texts = [text for (_, _, text), has in zip(self._configs, configured, strict=True) if has]
        columns["cache_config"] = self._config(rows, config_codes, texts)
        for metric in REGISTRY:
            if metric.type == "histogram":
                columns |= self._histogram(metric.column, rows, matrix)
            elif metric.type != "info":
                columns |= self._scalar(metric.column, matrix)
        frame = pl.DataFrame(columns)
        starts = ("process_start_time_seconds", "created_seconds")
        several = pl.all_horizontal(
            pl.lit(True), *(pl.col(c).is_null() for c in starts if c in columns)
        )
        if any(set(starts) & set(asked) for asked, _ in unread):
            several = pl.lit(None, pl.Boolean)
        frame = frame.with_columns(
            ok=pl.lit(True), several_api_servers=several, reason=self._reasons(frame, unread)
        )
        return pl.concat([empty_scrapes(), frame], how="diagonal").select(list(SCRAPE_SCHEMA))

    def _models(self, rows: Ints) -> tuple[pl.Series, Ints | None]:
        """The model of each row, and its number where an engine names several.

        Of several at one time the first is read, and that is told.
        """
        own = self._own
        numbers = {m: i for i, m in enumerate(dict.fromkeys(u.model for u in self._units))}
        held = list(numbers)
        of_key: list[set[int]] = [set() for _ in self._keys]
        model_of = np.array([numbers[unit.model] for unit in self._units], np.int64)
        for number, unit in enumerate(self._units):
            if unit.model is not None and own[number] != NONE:
                of_key[own[number]].add(int(model_of[number]))
        engine = rows >> self._bits
        first = np.array([min(models, default=NONE) for models in of_key], np.int64)
        chosen = first[engine]
        several = np.array([len(models) > 1 for models in of_key], np.bool_)
        if several.any():
            nobody = len(held)
            chosen[several[engine]] = nobody
            for block, series, code, _, _ in self._held:
                row, joins = self._row(rows, code)
                model = model_of[block.unit[series]]
                ours = joins & several[engine[row]] & (np.array(held)[model] != None)  # noqa: E711
                np.minimum.at(chosen, row[ours], model[ours])
            chosen = np.where(chosen == nobody, first[engine], chosen)
        last = dict(zip(engine.tolist(), chosen.tolist(), strict=True))
        self._known.models |= {
            self._keys[key]: str(held[model]) for key, model in last.items() if model != NONE
        }
        return gathered(pl.Series(held, dtype=pl.String), chosen), (
            chosen if several.any() else None
        )

    def _matrix(self, rows: Ints, chosen: Ints | None) -> Floats:
        """(slots, rows): the number of each cell; NaN where there is none.

        ``chosen``: the model that each row is of, where an engine names several.
        """
        numbers = {m: i for i, m in enumerate(dict.fromkeys(u.model for u in self._units))}
        model_of = np.array([numbers[unit.model] for unit in self._units], np.int64)
        matrix = np.full((len(self._slots), len(rows)), np.nan)
        flat = matrix.reshape(-1)
        for block, series, code, slot, value in self._held:
            row, joins = self._row(rows, code)
            if chosen is not None:
                joins &= self._of_chosen(rows, row, joins, model_of[block.unit[series]], chosen)
            with np.errstate(invalid="ignore"):
                bad = ~((value >= 0) & (value <= self._largest[slot]))
            for index in np.nonzero(bad & joins)[0].tolist():
                why = _why_not(float(value[index]), float(self._largest[slot[index]]))
                self._doubt(int(row[index]), rows, f"{block.text(int(series[index]))} is {why}")
            if bad.any():
                value = np.where(bad, _BAD, value)
            cell = slot.astype(np.int64) * len(rows) + row
            if not joins.all():
                cell, value, series, row = cell[joins], value[joins], series[joins], row[joins]
            had = flat[cell]
            flat[cell] = value
            other = (flat[cell] != value) | (~np.isnan(had) & (had != value))
            for index in np.nonzero(other)[0].tolist():
                there, own = flat[cell[index]], value[index]
                if there == _TWICE:
                    continue
                if not np.isnan(had[index]):
                    there = had[index]
                flat[cell[index]] = _TWICE
                if min(there, own) >= 0:
                    one, two = sorted((float(there), float(own)))
                    what = f"is there twice at one time, as {one:g} and {two:g}"
                    self._doubt(int(row[index]), rows, f"{block.text(int(series[index]))} {what}")
        return matrix

    def _of_chosen(self, rows: Ints, row: Ints, joins: Bools, model: Ints, chosen: Ints) -> Bools:
        """Whether a sample is of the model that its row is read for, or names none."""
        held = list(dict.fromkeys(unit.model for unit in self._units))
        nameless = held.index(None) if None in held else NONE
        other = joins & (model != chosen[row]) & (model != nameless)
        for one in np.unique(row[other]).tolist():
            engine = self._keys[int(rows[one]) >> self._bits].engine
            what = f"engine {engine} has several model_name values: read {held[chosen[one]]} only"
            if what not in self._doubts.get(one, ()):
                self._doubt(one, rows, what)
        is_own: Bools = ~other
        return is_own

    def _of_column(self, column: str) -> list[list[int]]:
        """Numbers of a column's slots, of each name that it has; the current one first."""
        found: dict[int, list[int]] = {}
        for number, slot in enumerate(self._slots):
            if slot.column == column:
                found.setdefault(slot.rank, []).append(number)
        return [found[rank] for rank in sorted(found)]

    def _scalar(self, column: str, matrix: Floats) -> dict[str, pl.Series]:
        """One series is the sum of one; a bad summand makes the sum unknown."""
        total: Floats | None = None
        for slots in self._of_column(column):
            part = matrix[slots]
            there = ~np.isnan(part)
            value = np.where(there, part, 0).sum(axis=0)
            value[~there.any(axis=0)] = np.nan
            value[(part < 0).any(axis=0)] = _BAD
            total = value if total is None else np.where(np.isnan(total), value, total)
        if total is None:
            return {}
        total[total < 0] = np.nan
        return {column: pl.Series(total).fill_nan(None)}

    def _histogram(self, column: str, rows: Ints, matrix: Floats) -> Mapping[str, pl.Series]:
        """Buckets sorted by edge, with sum and count; none of them where one is not sound."""
        metric = BY_COLUMN[column]
        wires = (metric.wire_name, *(one.wire_name for one in metric.old_names))
        found = Histograms(len(rows))
        free = np.ones(len(rows), np.bool_)
        ranks = self._of_column(column)
        for slots in ranks:
            parts = [(self._slots[number], number) for number in slots]
            found.add(wires[parts[0][0].rank], parts, matrix, free)
        for row, why in found.wrong:
            self._doubt(row, rows, why)
        for bare in found.bare if metric.buckets else ():
            # relabelling may drop the buckets and keep what means and rates are made of
            for key in np.unique(rows[bare] >> self._bits).tolist():
                why = f"{metric.wire_name} has _sum and _count, no _bucket"
                self._problems.append(SourceProblem(self._keys[key].instance, why))
        return found.columns(column, metric.buckets) if ranks else {}

    def _config(self, rows: Ints, codes: Ints, texts: Sequence[str]) -> pl.Series:
        """The configuration of each row; of several the last is read."""
        held = list(dict.fromkeys(texts))
        number = {text: i for i, text in enumerate(held)}
        of = np.full(len(rows), NONE)
        place = np.searchsorted(rows, codes)
        first = of.copy()
        for row, text in zip(place.tolist(), texts, strict=True):
            if first[row] not in (NONE, number[text]):
                what = "vllm:cache_config_info has several series with different labels"
                if f"{what}: read the last" not in self._doubts.get(row, ()):
                    self._doubt(row, rows, f"{what}: read the last")
            of[row] = first[row] = number[text]
        return gathered(pl.Series(held, dtype=pl.String), of)

    def _reasons(self, frame: pl.DataFrame, unread: Sequence[tuple[Sequence[str], str]]) -> pl.Expr:
        """What is doubtful about each row, and what it lacks because it could not be asked for."""
        doubts: list[str | None] = [None] * len(frame)
        for row, several in self._doubts.items():
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
        self, frame: pl.DataFrame, attempts: Sequence[Attempt], silent: str
    ) -> pl.DataFrame:
        """A row for each engine of each scrape that brought nothing of it."""
        times: dict[str, list[int]] = {}
        there = frame.select("instance", pl.col("time").dt.epoch("us")).unique()
        for name, time in there.iter_rows():
            times.setdefault(name, []).append(time)
        taken = {(name, time) for name, several in times.items() for time in several}
        attempts = [one for one in attempts if not self._is_read_elsewhere(one)]
        tried: dict[str, set[int]] = {}
        for one in attempts:
            for name in self._names_of(one.server):
                tried.setdefault(name, set()).add(one.time)
        rows: list[dict[str, object]] = []
        told: set[tuple[str, int]] = set()
        for one in attempts:
            for name in self._names_of(one.server):
                own = times.get(name, ())
                if one.reason is None and own and tried[name].isdisjoint(own):
                    continue  # its samples carry times of their own
                if (name, one.time) in taken or (name, one.time) in told:
                    continue
                told.add((name, one.time))
                rows += [
                    {"instance": name, "engine": engine, "time": one.time, "ok": False}
                    | {"reason": one.reason or silent}
                    for engine in self._known.engines.get(name, ("0",))
                ]
        if not rows:
            return empty_scrapes()
        return scrape_frame(
            [row | {"time": pl.Series([row["time"]]).cast(TIME)[0]} for row in rows]
        )


def _why_not(number: float, largest: float) -> str:
    """What is wrong with a number that is none of its metric's."""
    if number != number:
        return "NaN"
    if number in (float("inf"), float("-inf")):
        return "infinite"
    return f"negative ({number:g})" if number < 0 else f"{number:g}, above {largest:g}"
