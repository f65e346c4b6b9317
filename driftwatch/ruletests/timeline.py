"""What driftwatch said over the time of a test: evidence, verdicts, and pages as they were sent."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

import polars as pl

from driftwatch.diagnose.tree import walk
from driftwatch.incidents.incident import Incident, Transition
from driftwatch.model import Diagnosis, Target, TargetKey
from driftwatch.notify.page import Page
from driftwatch.pipeline.incidents import advanced
from driftwatch.rulebook.book import Rulebook
from driftwatch.rulebook.rules import Rule


@dataclass(frozen=True, slots=True)
class Subject:
    """One target, or a pool."""

    target: str | None = None
    pool: str | None = None

    @property
    def text(self) -> str:
        """How a person calls it."""
        return self.target or self.pool or ""

    def holds(self, incident: Incident) -> bool:
        """The incident is about it."""
        if self.target is None:
            return incident.pool == self.pool
        return any(one.key.text == self.target for one in incident.servers)

    def is_concerned(self, incident: Incident) -> bool:
        """The incident fires, and its messages count it."""
        if self.target is None:
            return incident.pool == self.pool and bool(incident.concerned)
        return any(key.text == self.target for key in incident.concerned)

    @property
    def rows(self) -> pl.Expr:
        """Its evidence rows."""
        if self.target is None:
            return pl.col("pool") == self.pool
        one = pl.when(pl.col("engine") == "0").then("instance")
        return one.otherwise(pl.format("{}/{}", "instance", "engine")) == self.target


@dataclass(frozen=True, slots=True, eq=False)
class Timeline:
    """One played test."""

    start: datetime  # `at: 0m`
    book: Rulebook
    rows: pl.DataFrame  # evidence rows; `end` is the time at which they are looked at
    verdicts: pl.DataFrame  # one Boolean column per enabled rule id, beside the rows
    transitions: tuple[Transition, ...]  # with their pages, in order
    minutes: int  # how many minutes it has
    rules: tuple[Rule, ...]  # that are evaluated
    # its rows are minutes and its pages speak about ten of them; False: a row is both
    has_windows: bool
    looked_at: frozenset[datetime] = frozenset()  # times of which diagnoses are wanted
    _incidents: dict[datetime, Mapping[str, Incident]] = field(default_factory=dict)
    _diagnoses: dict[str, Mapping[tuple[str, datetime], Diagnosis]] = field(default_factory=dict)

    @property
    def targets(self) -> frozenset[str]:
        """Every target's name."""
        keys = self.rows.select("instance", "engine").unique().iter_rows()
        return frozenset(TargetKey(*key).text for key in keys)

    @property
    def _keys(self) -> dict[TargetKey, Target]:
        rows = self.rows.select("instance", "engine", "pool").unique().iter_rows()
        named = ((TargetKey(instance, engine), pool) for instance, engine, pool in rows)
        return {key: Target(key, pool=pool) for key, pool in named}

    @property
    def pools(self) -> frozenset[str]:
        """Every pool's name."""
        return frozenset(self.rows["pool"].unique().drop_nulls())

    def time(self, at_seconds: float | None) -> datetime:
        """The moment of an ``at``; without one the last minute."""
        seconds = 60.0 * (self.minutes - 1) if at_seconds is None else at_seconds
        return self.start + timedelta(seconds=seconds)

    def firing(self, subject: Subject, at: datetime) -> dict[str, Incident]:
        """rule id → incident that fires then and concerns it."""
        if at not in self._incidents:
            upto = self.rows["end"] <= at
            rows, verdicts = self.rows.filter(upto), self.verdicts.filter(upto)
            self._incidents[at] = advanced(self.rules, {}, self._keys, rows, verdicts).incidents
        return {one.rule: one for one in self._incidents[at].values() if subject.is_concerned(one)}

    def false_rules(self, subject: Subject, at: datetime) -> frozenset[str]:
        """Rules whose condition is false for all of its rows of the minute, none unknown."""
        mask = self.rows.select(mask=subject.rows & (pl.col("end") == at))["mask"]
        here = self.verdicts.filter(mask)
        if here.is_empty():
            return frozenset()
        return frozenset(
            name for name in here.columns if here[name].eq(False).all(ignore_nulls=False)
        )

    def pages(self, subject: Subject, at: datetime) -> Iterator[Page]:
        """Pages that were sent by then, the newest first."""
        for transition in reversed(list(self._until(subject, at))):
            if transition.incident.page is not None:
                yield transition.incident.page

    def diagnosis(self, target: str, at: datetime, tree: str) -> Diagnosis | None:
        """The walk over the row of a target's minute; None where it has no row."""
        if tree not in self._diagnoses:
            rows = self.rows.filter(pl.col("end").is_in(self.looked_at))
            keys = rows.select("instance", "end").iter_rows()
            walks = zip(keys, walk(self.book.trees[tree], rows), strict=True)
            self._diagnoses[tree] = {(instance, end): one for (instance, end), one in walks}
        return self._diagnoses[tree].get((target, at))

    def _until(self, subject: Subject, at: datetime) -> Iterator[Transition]:
        for transition in self.transitions:
            if transition.at <= at and subject.holds(transition.incident):
                yield transition
