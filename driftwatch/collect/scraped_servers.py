"""Which servers an answer is of: names, doubles, engines and targets."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from functools import cached_property
from itertools import pairwise

import numpy as np
import polars as pl

from driftwatch.collect.identity import ALSO_LABEL, Identity, Span, also_text
from driftwatch.collect.registry import BY_COLUMN
from driftwatch.collect.samples import Attempt, Block, Bools, Ints, Known, Samples
from driftwatch.collect.schema import TIME, SourceProblem
from driftwatch.model import Target, TargetKey


class ScrapedServers:
    """The servers of one answer: who is who, and under which name."""

    _later: dict[Identity, Identity]  # server → whose name it has
    _spans_of: dict[Identity, Span]  # double → when the one that is read was scraped
    _homes: Homes
    # a scrape's code: the number of its engine in the high bits, its time since the first below
    _keys: list[TargetKey]
    _key_of: dict[TargetKey, int]
    _first: int
    _bits: int

    def __init__(self, samples: Samples, known: Known) -> None:
        self._blocks, self._configs, self._units, self._slots = samples.used()
        self._of_scrapes = samples._doubts
        self._known = known
        per_engine = [BY_COLUMN[slot.column].per_engine for slot in self._slots]
        self._per_engine = np.array([*per_engine, False], np.bool_)
        largest = [BY_COLUMN[slot.column].largest for slot in self._slots]
        self._largest = np.array([*largest, 0.0])
        self._problems: list[SourceProblem] = []
        self._doubts: dict[int, list[str]] = {}  # row → what is wrong with it

    def _spans(self) -> dict[Identity, Span]:
        """First and last sample of each server that has series of an engine."""
        count = len(self._units)
        first = np.full(count, np.iinfo(np.int64).max)
        last = np.full(count, np.iinfo(np.int64).min)
        for block in self._blocks:
            says = self._per_engine[block.slots[0]][block.series]
            units, times = block.unit[block.series][says], block.time[says]
            np.minimum.at(first, units, times)
            np.maximum.at(last, units, times)
        for number, time, _ in self._configs:
            first[number], last[number] = min(first[number], time), max(last[number], time)
        spans: dict[Identity, Span] = {}
        for number, unit in enumerate(self._units):
            if last[number] >= first[number]:
                before = spans.get(unit.server, (int(first[number]), int(last[number])))
                spans[unit.server] = (
                    min(before[0], int(first[number])),
                    max(before[1], int(last[number])),
                )
        return spans

    def _started(self) -> dict[Identity, tuple[object, ...]]:
        """When the process of each server began and its counters were made."""
        process: dict[Identity, float] = {}
        created: dict[Identity, dict[str, float]] = {}
        for column in ("process_start_time_seconds", "created_seconds"):
            numbers = [n for n, slot in enumerate(self._slots) if slot.column == column]
            for block in self._blocks:
                wanted = np.nonzero(np.isin(block.slots[0], numbers))[0]
                if not len(wanted):
                    continue
                last = np.full(len(block.unit), np.nan)
                last[block.series] = block.value
                for index in wanted[~np.isnan(last[wanted])].tolist():
                    unit = self._units[block.unit[index]]
                    if column == "created_seconds":
                        of = created.setdefault(unit.server, {})
                        of[unit.engine or "0"] = float(last[index])
                    else:
                        process[unit.server] = float(last[index])
        return {
            server: (process.get(server), *sorted(engines.items()))
            for server, engines in created.items()
        }

    def _same_counters(self, one: Identity, other: Identity) -> bool:
        """Whether the counters of two servers go up as those of one process do."""
        if self._known.names.twice.get(other) == one:
            return True
        ours, theirs = self._counted.get(one, {}), self._counted.get(other, {})
        values = [
            [value for _, value in sorted([*ours.get(key, ()), *theirs.get(key, ())])]
            for key in ours.keys() | theirs.keys()
        ]
        return any(max(each) > 0 for each in values) and all(
            before <= after for each in values for before, after in pairwise(each)
        )

    @cached_property
    def _counted(self) -> dict[Identity, dict[tuple[str, int], list[tuple[int, float]]]]:
        """Server → engine and slot of a counter → times and values."""
        counters = [n for n, s in enumerate(self._slots) if s.metric.type == "counter"]
        found: dict[Identity, dict[tuple[str, int], list[tuple[int, float]]]] = {}
        for block in self._blocks:
            wanted = np.isin(block.slots[0], counters)[block.series]
            series, times, values = (
                each[wanted].tolist() for each in (block.series, block.time, block.value)
            )
            unit, slot = block.unit.tolist(), block.slots[0].tolist()
            for index, time, value in zip(series, times, values, strict=True):
                whose = self._units[unit[index]]
                key = (whose.engine or "0", slot[index])
                found.setdefault(whose.server, {}).setdefault(key, []).append((time, value))
        return found

    def _note_doubles(self, twice: Mapping[Identity, Identity]) -> None:
        self._also: dict[Identity, list[str]] = {}
        for other, read in sorted(twice.items()):
            self._also.setdefault(read, []).append(also_text(other, read))
        for other, read in sorted(twice.items())[:1]:
            differ = sorted({k for k, _ in set(other) ^ set(read)})
            both = " and ".join(
                ", ".join(f'{k}="{v}"' for k, v in one if k in differ) for one in (read, other)
            )
            why = f"one process that is scraped more than once, as {both}: read once"
            if len(twice) > 1:
                why = f"{len(twice)} scrapes of servers that are scraped already: {why}"
            self._problems.append(SourceProblem(dict(read).get("instance", ""), why, lost=False))

    def _engines(self, listed: Iterable[Identity]) -> tuple[list[TargetKey], dict[TargetKey, int]]:
        """Every engine, and its number."""
        engines: dict[str, set[str]] = {self._known.names.held[one]: set() for one in listed}
        for unit in self._units:
            if unit.engine and (name := self._name(unit.server)) in engines:
                engines[name].add(unit.engine)
        self._known.engines |= {
            # by length first: engine 10 comes after engine 2
            name: tuple(sorted(found, key=lambda e: (len(e), e))) or ("0",)
            for name, found in engines.items()
        }
        keys = [TargetKey(name, e) for name in engines for e in self._known.engines[name]]
        return keys, {key: number for number, key in enumerate(keys)}

    def _name(self, server: Identity) -> str | None:
        return self._known.names.held.get(self._later.get(server, server))

    def _is_read_elsewhere(self, attempt: Attempt) -> bool:
        if not self._spans_of:
            return False
        homes = self._homes.of(attempt.server)
        spans = [self._spans_of[one] for one in homes if one in self._spans_of]
        return bool(spans) and all(first <= attempt.time <= last for first, last in spans)

    def _names_of(self, server: Identity) -> list[str]:
        found = [self._name(one) for one in self._homes.of(server)] or [self._name(server)]
        return [name for name in dict.fromkeys(found) if name]

    def _targets(self, present: Iterable[Identity]) -> dict[TargetKey, Target]:
        targets: dict[TargetKey, Target] = {}
        for server in sorted(present):
            name = self._known.names.held[server]
            for engine in self._known.engines.get(name, ("0",)):
                key = TargetKey(name, engine)
                model = self._known.models.get(key)
                own = {} if model is None else {"model_name": model}
                labels = {"instance": name, **dict(server), **own, "engine": engine}
                if server in self._also:
                    labels[ALSO_LABEL] = "; ".join(self._also[server])
                targets[key] = Target(key, labels)
        return targets

    def _note_homeless(self, block: Block, homeless: Bools) -> None:
        for index in np.nonzero(homeless)[0].tolist():
            name = self._name(self._units[block.unit[index]].server)
            if name is None or not (block.series == index).any():
                continue
            count = len(self._known.engines[name])
            why = f"{block.text(index)} carries no engine label on a page of {count} engines"
            if SourceProblem(name, why) not in self._problems:
                self._problems.append(SourceProblem(name, why))

    def _code(self, engine: Ints, time: Ints) -> Ints:
        return (engine << self._bits) + (time - self._first)

    def _note_scrapes(self, rows: Ints) -> None:
        """What is wrong with scrapes as a whole, once for all engines of each."""
        for server, time, reason in self._of_scrapes:
            told = False
            for name in self._names_of(server):
                for engine in self._known.engines.get(name, ()):
                    code = self._code(np.array([self._key_of[TargetKey(name, engine)]]),
                                      np.array([time]))  # fmt: skip
                    row, joins = self._row(rows, code)
                    if joins[0]:
                        self._doubt(int(row[0]), rows, reason, is_told=told)
                        told = True

    def _doubt(self, row: int, rows: Ints, reason: str, is_told: bool = False) -> None:
        key = self._keys[int(rows[row]) >> self._bits]
        micros = (int(rows[row]) & ((1 << self._bits) - 1)) + self._first
        time = pl.Series([micros]).cast(TIME)[0]
        self._doubts.setdefault(row, []).append(reason)
        if not is_told:
            self._problems.append(SourceProblem(key.instance, reason, time))

    def _row(self, rows: Ints, code: Ints) -> tuple[Ints, Bools]:
        """The row of each sample, and whether it has one."""
        row = np.searchsorted(rows, code).clip(max=len(rows) - 1)
        return row, rows[row] == code


class Homes:
    """Servers by the labels of a scrape, which may be fewer than those of its series."""

    def __init__(self, servers: Iterable[Identity], listed: Collection[Identity]) -> None:
        self.exact, self._listed = set(servers), listed
        self._by_instance: dict[str, list[Identity]] = {}
        for one in sorted(self.exact):
            self._by_instance.setdefault(dict(one).get("instance", ""), []).append(one)

    def of(self, scrape: Identity) -> list[Identity]:
        """The servers that this scrape is of."""
        if scrape in self.exact:
            return [scrape]
        own = dict(scrape)
        near = self._by_instance.get(own.get("instance", ""), [])
        near = [one for one in near if one in self._listed] or near
        whole = [one for one in near if own.items() <= dict(one).items()]
        if whole:
            return whole
        # labels that were dropped or changed after the scrape: the job and the address are left
        alike = [one for one in near if dict(one).get("job") == own.get("job")]
        return alike if len(alike) == 1 else near if len(near) == 1 else []
