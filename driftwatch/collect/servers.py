"""The servers of an answer: names, duplicates, engines and targets."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import zip_longest

import numpy as np
import polars as pl

from driftwatch.arrays import Integers
from driftwatch.collect.identity import (
    ALSO_LABEL,
    Identity,
    Span,
    also_text,
    second_scrapes,
    successors,
)
from driftwatch.collect.registry import Slot
from driftwatch.collect.samples import NONE, Attempt, SourceMemory, Unit
from driftwatch.collect.schema import SourceProblem
from driftwatch.model import Target, TargetKey


class Servers:
    """The servers of one answer, and their names.

    ``frame``, ``units``, ``slots``: from :meth:`driftwatch.collect.samples.Samples.frame`;
    ``attempts``: every known try to scrape; ``known``: of earlier answers, new servers are added;
    ``any_server``: count a server that has attempts and no sample.
    """

    def __init__(
        self,
        frame: pl.DataFrame,
        units: Sequence[Unit],
        slots: Sequence[Slot],
        configurations: Iterable[tuple[int, int, str]],
        attempts: Sequence[Attempt],
        known: SourceMemory,
        any_server: bool,
    ) -> None:
        self._known, self.units, self.slots = known, units, slots
        self.problems: list[SourceProblem] = []
        self.per_engine = np.array([slot.metric.per_engine for slot in slots], np.bool_)
        spans = self._spans(frame, configurations)
        # two jobs, or two replicas of a Prometheus, that scrape one address
        read_as = second_scrapes(spans, known.names.held)
        self._read_as = read_as
        self.is_read = np.array([unit.server not in read_as for unit in units], np.bool_)
        successor_of = successors({one: of for one, of in spans.items() if one not in read_as})
        # server → the server whose name it has: the one that is read, or its successor
        self._named_as = successor_of | {
            one: successor_of.get(read, read) for one, read in read_as.items()
        }
        listed = {self._named_as.get(one, one) for one in spans}
        before = {self._named_as.get(one, one) for one in known.names.held}
        self._matcher = ScrapeMatcher(listed | read_as.keys() | before, listed | read_as.keys())
        matches = {one.server: self._matcher.servers_of(one.server) for one in attempts}
        unmatched = {one for one, servers in matches.items() if not servers and any_server}
        matched = {one for servers in matches.values() for one in servers}
        self._present = (listed | unmatched | matched) - read_as.keys()
        now = max([0, *(last for _, last in spans.values()), *(one.time for one in attempts)])
        known.names.give(self._present, successor_of, now)
        self.keys = self._engines(listed)
        self.number = {key: number for number, key in enumerate(self.keys)}
        self._note_doubles(read_as)

    def _spans(
        self, frame: pl.DataFrame, configurations: Iterable[tuple[int, int, str]]
    ) -> dict[Identity, Span]:
        """First and last sample of each server that has series of an engine."""
        own = frame.filter(pl.Series(self.per_engine[frame["slot"].to_numpy()], dtype=pl.Boolean))
        ends = own.group_by("unit").agg(first=pl.col("time").min(), last=pl.col("time").max())
        spans: dict[Identity, Span] = {}
        for unit, first, last in [*ends.iter_rows(), *((u, at, at) for u, at, _ in configurations)]:
            server = self.units[unit].server
            before = spans.get(server, (first, last))
            spans[server] = min(before[0], first), max(before[1], last)
        return spans

    def _note_doubles(self, read_as: Mapping[Identity, Identity]) -> None:
        self._also: dict[Identity, list[str]] = {}
        for other, read in sorted(read_as.items()):
            self._also.setdefault(read, []).append(also_text(other, read))
        for other, read in sorted(read_as.items())[:1]:
            both = f"{also_text(read, other)} and {also_text(other, read)}"
            why = f"one process that is scraped more than once, as {both}: read once"
            if len(read_as) > 1:
                why = f"{len(read_as)} scrapes of servers that are scraped already: {why}"
            self.problems.append(SourceProblem(dict(read).get("instance", ""), why, lost=False))

    def _engines(self, listed: Iterable[Identity]) -> list[TargetKey]:
        """Every engine of the listed servers."""
        engines: dict[str, set[str]] = {self._known.names.held[one]: set() for one in listed}
        for unit in self.units:
            if unit.engine and (name := self.name_of(unit.server)) in engines:
                engines[name].add(unit.engine)
        self._known.engines |= {
            # by length first: engine 10 comes after engine 2
            name: tuple(sorted(found, key=lambda e: (len(e), e))) or ("0",)
            for name, found in engines.items()
        }
        return [TargetKey(name, e) for name in engines for e in self._known.engines[name]]

    def engine_numbers(self) -> tuple[Integers, list[Integers]]:
        """The number of each unit's engine; and, for what is of the whole process, arrays that
        together hold the numbers of all engines of that process. ``NONE`` where there is none.
        """
        own = np.full(len(self.units), NONE)
        process: list[list[int]] = []
        for number, unit in enumerate(self.units):
            name = self.name_of(unit.server)
            engines = self._known.engines.get(name or "", ())
            if name is not None and (unit.engine or len(engines) == 1):
                own[number] = self.number.get(TargetKey(name, unit.engine or engines[0]), NONE)
            keys = [
                TargetKey(one, engine)
                for one in ([name] if name else self.names_of(unit.server))
                for engine in self._known.engines.get(one, ())
                if unit.engine in (None, engine)
            ]
            process.append([self.number[key] for key in keys if key in self.number])
        columns = zip_longest(*process, fillvalue=NONE)
        return own, [np.array(column, np.int64) for column in columns]

    def is_read_elsewhere(self, attempt: Attempt) -> bool:
        """The attempt is the second scrape of a server that is read."""
        servers = self._matcher.servers_of(attempt.server)
        return bool(servers) and all(one in self._read_as for one in servers)

    def engines_of(self, name: str) -> tuple[str, ...]:
        """The engines of a server, by its name."""
        return self._known.engines.get(name, ("0",))

    def name_of(self, server: Identity) -> str | None:
        """What a server is called."""
        return self._known.names.held.get(self._named_as.get(server, server))

    def names_of(self, server: Identity) -> list[str]:
        """Names of the servers that a scrape with these labels belongs to."""
        servers = self._matcher.servers_of(server) or [server]
        found = [self.name_of(one) for one in servers]
        return [name for name in dict.fromkeys(found) if name]

    def targets(self) -> dict[TargetKey, Target]:
        """Every target, with its labels."""
        targets: dict[TargetKey, Target] = {}
        for server in sorted(self._present):
            name = self._known.names.held[server]
            for engine in self.engines_of(name):
                key = TargetKey(name, engine)
                model = self._known.models.get(key)
                own = {} if model is None else {"model_name": model}
                labels = {"instance": name, **dict(server), **own, "engine": engine}
                if server in self._also:
                    labels[ALSO_LABEL] = "; ".join(self._also[server])
                targets[key] = Target(key, labels)
        return targets


class ScrapeMatcher:
    """Finds servers by the labels of a scrape, which may be fewer than those of its series."""

    def __init__(self, servers: Iterable[Identity], listed: Collection[Identity]) -> None:
        self._exact, self._listed = set(servers), listed
        self._by_instance: dict[str, list[Identity]] = {}
        for one in sorted(self._exact):
            self._by_instance.setdefault(dict(one).get("instance", ""), []).append(one)

    def servers_of(self, scrape: Identity) -> list[Identity]:
        """The servers that a scrape with these labels belongs to."""
        if scrape in self._exact:
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
