"""What driftwatch did during a test: evidence, verdicts, and pages as they were sent.

Series go through rules, incidents, tree and pages as a tick's evidence; a recording goes through
the whole pipeline, as in ``driftwatch replay``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path

import polars as pl

from driftwatch.collect.recordings import open_recording
from driftwatch.diagnose.tree import walk
from driftwatch.durations import parse_duration
from driftwatch.incidents.incident import Incident, Transition
from driftwatch.model import Diagnosis, Target, TargetKey
from driftwatch.notify.page import Page
from driftwatch.pipeline.evaluation import Evaluation, Signals
from driftwatch.pipeline.explain import Window
from driftwatch.pipeline.incidents import advance
from driftwatch.pipeline.minutes import PastMinutes
from driftwatch.pipeline.pages import with_pages
from driftwatch.pipeline.plan import Plan, Pool
from driftwatch.pipeline.state import State
from driftwatch.rulebook.book import Rulebook
from driftwatch.rulebook.overrides import overridden
from driftwatch.rulebook.rules import Rule
from driftwatch.ruletests.cases import RuleTest
from driftwatch.ruletests.series import START, Evidence
from driftwatch.service.configuration import plan_of_rules, plan_of_settings
from driftwatch.service.replay import replay
from driftwatch.settings import load_settings

_SHIPPED = Path(__file__).resolve().parent.parent / "_demo"
_KEY = ["instance", "engine"]
_MINUTE = timedelta(minutes=1)


@dataclass(frozen=True, slots=True)
class Subject:
    """One target, or a pool."""

    target: str | None = None
    pool: str | None = None

    @property
    def text(self) -> str:
        """Its name."""
        return self.target or self.pool or ""

    def holds(self, incident: Incident) -> bool:
        """Whether the incident is about it."""
        if self.target is None:
            return incident.pool == self.pool
        return any(one.key.text == self.target for one in incident.servers)

    def is_concerned(self, incident: Incident) -> bool:
        """Whether the incident fires and counts it."""
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
    """One test as it ran."""

    start: datetime  # `at: 0m`
    book: Rulebook
    rows: pl.DataFrame  # evidence rows; `end` is the time at which they are looked at
    verdicts: pl.DataFrame  # one Boolean column per enabled rule id, beside the rows
    transitions: tuple[Transition, ...]  # with their pages, in order
    minutes: int  # how many minutes it has
    rules: tuple[Rule, ...]  # that are evaluated
    # its rows are minutes and its pages speak about ten of them; False: a row is both
    has_windows: bool = False
    looked_at: frozenset[datetime] = frozenset()  # times of which diagnoses are wanted
    _incidents: dict[datetime, Mapping[str, Incident]] = field(default_factory=dict)
    _diagnoses: dict[str, Mapping[tuple[str, datetime], Diagnosis]] = field(default_factory=dict)

    @property
    def targets(self) -> frozenset[str]:
        """Every target's name."""
        return frozenset(key.text for key in self._keys)

    @property
    def _keys(self) -> dict[TargetKey, Target]:
        rows = self.rows.select("instance", "engine", "pool").unique().iter_rows()
        return {TargetKey(*key): Target(TargetKey(*key), pool=pool) for *key, pool in rows}

    @property
    def pools(self) -> frozenset[str]:
        """Every pool's name."""
        return frozenset(self.rows["pool"].unique().drop_nulls())

    def time(self, at_seconds: float | None) -> datetime:
        """The moment of an ``at``; without one the last minute."""
        seconds = 60.0 * (self.minutes - 1) if at_seconds is None else at_seconds
        return self.start + timedelta(seconds=seconds)

    def firing(self, subject: Subject, at: datetime) -> frozenset[str]:
        """Ids of the rules that fire then and concern it."""
        return frozenset(one.rule for one in self._open(at) if subject.is_concerned(one))

    def pending(self, subject: Subject, at: datetime) -> dict[str, float]:
        """Id of a rule that is about it and does not fire yet → minute since which it is true."""
        waiting = (one for one in self._open(at) if one.state == "pending" and subject.holds(one))
        # a row is of the minute that ends then
        return {one.rule: (one.started_at - self.start) / _MINUTE + 1 for one in waiting}

    def _open(self, at: datetime) -> Iterable[Incident]:
        if at not in self._incidents:
            upto = self.rows["end"] <= at
            rows, verdicts = self.rows.filter(upto), self.verdicts.filter(upto)
            self._incidents[at] = advance(self.rules, {}, self._keys, rows, verdicts).incidents
        return self._incidents[at].values()

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
        for one in reversed(self.transitions):
            if one.at <= at and subject.holds(one.incident) and one.incident.page is not None:
                yield one.incident.page

    def diagnosis(self, target: str, at: datetime, tree: str) -> Diagnosis | None:
        """The walk over the row of a target's minute; None where it has no row."""
        if tree not in self._diagnoses:
            rows = self.rows.filter(pl.col("end").is_in(self.looked_at))
            keys = rows.select("instance", "end").iter_rows()
            walks = zip(keys, walk(self.book.trees[tree], rows), strict=True)
            self._diagnoses[tree] = {(instance, end): one for (instance, end), one in walks}
        return self._diagnoses[tree].get((target, at))


def played(evidence: Evidence, book: Rulebook, at_seconds: Iterable[float | None]) -> Timeline:
    """Run the series as a tick would; no advice is simulated.

    ``at_seconds``: the times that are looked at, since the beginning; None = the last minute.
    """
    pools = (Pool("", slo=evidence.slo),)  # of any target: its latency targets
    plan = Plan(rules=book.rules, trees=book.trees, pools=pools, simulations=0)
    rows, targets = evidence.rows(), evidence.targets
    verdicts = rows.select(rule.verdict.alias(rule.id) for rule in plan.enabled)
    incidents, happened, refreshes = advance(plan.enabled, {}, targets, rows, verdicts)
    first, last = START - timedelta(minutes=1), START + timedelta(minutes=evidence.minutes - 1)
    evaluation = Evaluation(
        State(targets=targets),
        plan,
        Signals(plan.frames(targets), rows),
        first,
        last,
        rows,
        verdicts,
        PastMinutes(),
        windows=_last_minutes,
    )
    transitions, _, _ = with_pages(evaluation, happened, incidents, refreshes)
    timeline = Timeline(START, book, rows, verdicts, transitions, evidence.minutes, plan.enabled)
    return replace(timeline, looked_at=frozenset(timeline.time(one) for one in at_seconds))


def _last_minutes(evaluation: Evaluation, windows: pl.DataFrame) -> pl.DataFrame:
    """A series says what a page of the minute shows: its row stands for the ten minutes."""
    rows, key = evaluation.rows, [*_KEY, "end"]
    joined = windows.select(key).join(rows, on=key, how="left", maintain_order="left")
    return joined.select(rows.columns)


def recording_path(text: str, folder: Path) -> Path:
    """A recording beside the test, or a shipped one by its name (run_cap)."""
    shipped = _SHIPPED / f"{text}.jsonl.gz"
    return shipped if "/" not in text and shipped.exists() else folder / text


def window_of(text: str) -> tuple[float, float] | None:
    """Seconds from and to of ``10m..95m``; None where it is none."""
    first, _, last = text.partition("..")
    with suppress(ValueError):
        start, end = parse_duration(first), parse_duration(last)
        if start < end:
            return start, end
    return None


def recording_played(test: RuleTest, folder: Path, book: Rulebook) -> Timeline:
    """A recording; `at: 0m` is the minute of its first scrape.

    Raises:
        ConfigError: its configuration has problems.
        RecordingError: it cannot be read.
        UsageError: the baseline holds no minute with a scrape.
    """
    settings = None if test.config is None else load_settings(folder / test.config)
    base = plan_of_rules(()) if settings is None else plan_of_settings(settings)
    rules, _, _ = overridden(book.rules, settings)
    plan = replace(base, rules=rules, trees=book.trees)
    source = open_recording(recording_path(test.recording or "", folder))
    try:
        span = source.span()
        start = span[0].replace(second=0, microsecond=0)
        seconds = window_of(test.baseline or "")
        baseline = seconds and Window(*(start + timedelta(seconds=one) for one in seconds))
        outcomes = list(replay([source], span, plan, baseline=baseline))
    finally:
        source.close()
    with_rows = [outcome for outcome in outcomes if outcome.rows.width]
    return Timeline(
        start,
        book,
        pl.concat([outcome.rows for outcome in with_rows]),
        pl.concat([outcome.verdicts for outcome in with_rows]),
        tuple(transition for outcome in outcomes for transition in outcome.transitions),
        int((span[1] - start).total_seconds() // 60) + 1,
        plan.enabled,
        has_windows=True,
    )
