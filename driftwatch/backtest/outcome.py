"""What a rule set would have sent over a history, and over how much of it it could judge."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

import polars as pl

from driftwatch.backtest.archive import Archive
from driftwatch.backtest.evaluate import Judged, judged
from driftwatch.backtest.pages import PageMaker, PastPage, past_pages
from driftwatch.model import Severity, Target, TargetKey, Transition
from driftwatch.pipeline.plan import Plan

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


def backtest(
    archive: Archive,
    plan: Plan,
    *,
    with_pages: bool = True,
    advice: bool = True,
    progress: Report | None = None,
    each: Callable[[Judged], None] | None = None,
) -> Backtest:
    """The pages of a rule set over kept evidence.

    Args:
        with_pages: leaf, advice and line 1 too; else counts and times alone.
        advice: a change is simulated; else the page says that it was not.
        progress: told how many days of how many are done.
        each: given every stretch as it was judged.
    """
    maker = PageMaker(archive, plan, advice=advice)
    coverage, transitions = _Coverage(), list[Transition]()
    days = {day: number for number, day in enumerate(archive.days)}
    pages = maker if with_pages else None
    for one in judged(archive, plan, capacity=maker.capacity, pages=pages):
        coverage.add(one)
        transitions += one.happened
        if each is not None:
            each(one)
        if progress is not None:
            progress(days[one.day] + 1, len(days))
    since, until = archive.span
    past = tuple(past_pages(transitions))
    return Backtest(coverage.history(since, until), past, coverage.undetermined())


class _Coverage:
    """Counts over the stretches of a history."""

    def __init__(self) -> None:
        self._instances: set[str] = set()
        self._minutes = self._with_data = self._scraped = 0
        self._unknown: Counter[str] = Counter()
        self._last: datetime | None = None
        self._staying: Mapping[TargetKey, Target] = {}

    def add(self, one: Judged) -> None:
        """Count a stretch, and the minutes before it in which nothing at all was scraped."""
        stretch = one.stretch
        self._instances |= {key.instance for key in stretch.targets}
        both = {key.instance for key in self._staying if key in stretch.targets}
        if self._last is not None and stretch.first > self._last:
            self._minutes += len(both) * ((stretch.first - self._last) // _MINUTE)
        self._last, self._staying = stretch.last, stretch.staying
        scraped = pl.col("scrapes") > 0
        of_servers = one.rows.select("instance", "end", scraped=scraped)
        if (one.rows["engine"] != "0").any():
            of_servers = of_servers.group_by("instance", "end").agg(pl.col("scraped").any())
        self._minutes += len(of_servers)
        self._with_data += int(of_servers["scraped"].sum())
        with_data = one.verdicts.filter(one.rows.select(scraped).to_series())
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
