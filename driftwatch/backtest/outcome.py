"""What a rule set would have sent over a history, and over how much of it it could judge."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

import polars as pl

from driftwatch.backtest.pages import PastPage, advised_then, past_pages, with_past_pages
from driftwatch.backtest.stored import StoredDays, columns_read
from driftwatch.model import Incident, Severity, Target, TargetKey, Transition
from driftwatch.pipeline.incidents import advanced, closed_for
from driftwatch.pipeline.plan import Plan
from driftwatch.pipeline.state import Stretch

MONTH_DAYS = 365.25 / 12
_MINUTE = timedelta(minutes=1)
Report = Callable[[float, float], None]


@dataclass(frozen=True, slots=True)
class History:
    """How much there was to judge."""

    since: datetime
    until: datetime
    servers: int  # instances that were listed at some time
    server_minutes: int  # minutes of servers while they were listed
    minutes_with_data: int  # those with a usable scrape

    @property
    def days(self) -> float:
        """Length of the span."""
        return (self.until - self.since) / timedelta(days=1)

    @property
    def server_months(self) -> float:
        """What pages are counted over: minutes with data, for in others nothing can be judged."""
        return self.minutes_with_data / (MONTH_DAYS * 24 * 60)

    @property
    def data_ratio(self) -> float | None:
        """Share of the minutes with data; None without a minute."""
        return self.minutes_with_data / self.server_minutes if self.server_minutes else None


@dataclass(frozen=True, slots=True)
class RuleCount:
    """One rule and what came of it."""

    rule: str  # rule id
    severity: Severity
    pages: int
    leaf: str | None  # where most of its diagnoses ended; None without one


@dataclass(frozen=True, slots=True)
class Backtest:
    """A rule set over a history."""

    history: History
    pages: tuple[PastPage, ...]  # in order of time
    # rule id → share of the minutes with data in which it was undetermined
    undetermined_ratio: Mapping[str, float] = field(default_factory=dict)

    def of(self, severity: Severity) -> tuple[PastPage, ...]:
        """The pages of a severity."""
        return tuple(page for page in self.pages if page.severity == severity)

    def counts(self, severity: Severity) -> list[RuleCount]:
        """Its rules, the one with the most pages first."""
        pages = self.of(severity)
        counted = Counter(page.rule for page in pages)
        ordered = sorted(counted, key=lambda rule: (-counted[rule], rule))
        return [
            RuleCount(rule, severity, counted[rule], _most_frequent(pages, rule))
            for rule in ordered
        ]

    def per_server_month(self, pages: int) -> float | None:
        """A count as a rate; None where there was nothing to judge."""
        return pages / self.history.server_months if self.history.server_months else None


def _most_frequent(pages: Sequence[PastPage], rule: str) -> str | None:
    leaves = Counter(page.leaf for page in pages if page.rule == rule and page.leaf is not None)
    return min(leaves, key=lambda leaf: (-leaves[leaf], leaf)) if leaves else None


@dataclass(frozen=True, slots=True, eq=False)
class Judged:
    """Minutes of the same targets, and what a rule set makes of them."""

    stretch: Stretch
    rows: pl.DataFrame  # the columns that the rules read
    verdicts: pl.DataFrame  # one Boolean column per enabled rule id, beside the rows
    happened: tuple[Transition, ...]  # what fired and what ended, in order
    is_last: bool  # of its day


def judged(days: StoredDays, plan: Plan, *, with_pages: bool = False) -> Iterator[Judged]:
    """Every stretch of the minutes in order, incidents carried from one to the next.

    Args:
        plan: with the rules to judge by.
        with_pages: transitions have their pages.
    """
    incidents: Mapping[str, Incident] = {}
    targets: Mapping[TargetKey, Target] = {}
    columns = columns_read(plan.enabled)
    for day in days.days:
        rows, verdicts = days.rows(day, columns), days.verdicts(day, plan.enabled)
        stretches = days.stretches(day, rows)
        for stretch in stretches:
            inside = pl.col("end").is_between(stretch.first, stretch.last, closed="right")
            here = rows.select(inside).to_series()
            part, of_rules = rows.filter(here), verdicts.filter(here)
            before = incidents
            incidents, happened = _advanced(plan, before, stretch, part, of_rules, targets)
            if with_pages:
                happened, incidents = with_past_pages(
                    days, plan, stretch, before, happened, incidents
                )
            targets = stretch.staying
            yield Judged(stretch, part, of_rules, happened, stretch is stretches[-1])


def backtest(
    days: StoredDays,
    plan: Plan,
    *,
    with_pages: bool = True,
    progress: Report | None = None,
    each: Callable[[Judged], None] | None = None,
) -> Backtest:
    """The pages of a rule set over the minutes of a store.

    Args:
        plan: with the rules to judge by.
        with_pages: leaf and line 1 too; else counts and times alone.
        progress: told how many days of how many are done.
        each: given every stretch as it was judged.
    """
    coverage, transitions, done = _Coverage(), list[Transition](), 0
    for one in judged(days, plan, with_pages=with_pages):
        coverage.add(one.stretch, one.rows, one.verdicts)
        transitions += one.happened
        done += one.is_last
        if each is not None:
            each(one)
        if progress is not None:
            progress(done, len(days.days))
    since, until = days.span
    past = past_pages(transitions)
    if with_pages:
        past = advised_then(past, days.store.incidents(since=since, limit=100_000))
    return Backtest(coverage.history(since, until), tuple(past), coverage.undetermined())


def _advanced(
    plan: Plan,
    before: Mapping[str, Incident],
    stretch: Stretch,
    rows: pl.DataFrame,
    verdicts: pl.DataFrame,
    targets: Mapping[TargetKey, Target],
) -> tuple[Mapping[str, Incident], tuple[Transition, ...]]:
    """Open incidents after a stretch, and what fired and ended in it, in order."""
    incidents, ended_before = closed_for(
        plan.rules, before, stretch.targets, stretch.departed, stretch.first, targets
    )
    incidents, happened = advanced(plan.enabled, incidents, stretch.targets, rows, verdicts)
    incidents, closed = closed_for(
        plan.rules, incidents, stretch.staying, stretch.retired, stretch.last
    )
    return incidents, (*ended_before, *happened, *closed)


class _Coverage:
    """Counts over the stretches of a history."""

    def __init__(self) -> None:
        self._instances: set[str] = set()
        self._minutes = self._with_data = self._scraped = 0
        self._unknown: Counter[str] = Counter()
        self._last: datetime | None = None
        self._staying: Mapping[TargetKey, Target] = {}

    def add(self, stretch: Stretch, rows: pl.DataFrame, verdicts: pl.DataFrame) -> None:
        """Count a stretch, and the minutes before it in which nothing at all was scraped."""
        self._instances |= {key.instance for key in stretch.targets}
        both = {key.instance for key in self._staying if key in stretch.targets}
        if self._last is not None and stretch.first > self._last:
            self._minutes += len(both) * ((stretch.first - self._last) // _MINUTE)
        self._last, self._staying = stretch.last, stretch.staying
        scraped = pl.col("scrapes") > 0
        of_servers = rows.select("instance", "end", scraped=scraped)
        if (rows["engine"] != "0").any():
            of_servers = of_servers.group_by("instance", "end").agg(pl.col("scraped").any())
        self._minutes += len(of_servers)
        self._with_data += int(of_servers["scraped"].sum())
        with_data = verdicts.filter(rows.select(scraped).to_series())
        self._scraped += len(with_data)
        for rule in with_data.columns:
            self._unknown[rule] += with_data[rule].null_count()

    def history(self, since: datetime, until: datetime) -> History:
        """What was counted."""
        return History(since, until, len(self._instances), self._minutes, self._with_data)

    def undetermined(self) -> dict[str, float]:
        """Rule id → share of the minutes with data in which it was unknown."""
        scraped = max(self._scraped, 1)
        return {rule: count / scraped for rule, count in sorted(self._unknown.items())}
