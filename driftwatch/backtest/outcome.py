"""What a rule set would have sent over a history, and over how much of it it could judge."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

import polars as pl
from scipy.special import gammaincinv

from driftwatch.backtest.pages import PastPage, past_pages
from driftwatch.backtest.stored import StoredHistory, Stretch
from driftwatch.incidents.incident import Incident, Transition
from driftwatch.model import Severity, Target, TargetKey
from driftwatch.pipeline.evaluation import Evaluation, signals_from_rows
from driftwatch.pipeline.incidents import advanced, closed_for
from driftwatch.pipeline.minutes import PastMinutes
from driftwatch.pipeline.pages import with_pages
from driftwatch.pipeline.plan import Plan
from driftwatch.pipeline.state import State
from driftwatch.pipeline.tick import verdicts_of

MONTH_DAYS = 365.25 / 12
FEWEST_SERVER_DAYS = 3.0  # over less, one page is ten and more a month
_MINUTE = timedelta(minutes=1)
Report = Callable[[float, float], None]


@dataclass(frozen=True, slots=True)
class Rate:
    """A count per server-month, with its 95 % interval (exact, of a Poisson count)."""

    per_server_month: float
    low: float
    high: float


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

    def rate(self, count: int) -> Rate | None:
        """A count per server-month; None below :data:`FEWEST_SERVER_DAYS`."""
        months = self.server_months
        if months * MONTH_DAYS < FEWEST_SERVER_DAYS:
            return None
        low, high = gammaincinv([count or 1, count + 1], [0.025, 0.975])
        return Rate(count / months, float(low) / months if count else 0.0, float(high) / months)

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

    def per_server_month(self, pages: int) -> Rate | None:
        """A count as a rate; None where too little was judged for one."""
        return self.history.rate(pages)


def _most_frequent(pages: Sequence[PastPage], rule: str) -> str | None:
    leaves = Counter(page.leaf for page in pages if page.rule == rule and page.leaf is not None)
    return min(leaves, key=lambda leaf: (-leaves[leaf], leaf)) if leaves else None


@dataclass(frozen=True, slots=True, eq=False)
class Judged:
    """Minutes of the same targets, and what a rule set makes of them."""

    rows: pl.DataFrame  # evidence
    verdicts: pl.DataFrame  # one Boolean column per enabled rule id, beside the rows
    happened: tuple[Transition, ...]  # what fired and what ended, in order


class _RuleSet:
    """One rule set on its way through a history: open incidents, what happened, what was judged."""

    def __init__(self, plan: Plan, history: StoredHistory) -> None:
        self.plan = plan
        self._history = history
        self._coverage = _Coverage()
        self._transitions: list[Transition] = []
        self._incidents: Mapping[str, Incident] = {}

    def judge(self, stretch: Stretch, rows: pl.DataFrame, verdicts: pl.DataFrame) -> Judged:
        """What happens in a stretch, with its pages; nothing is simulated."""
        before = self._incidents
        after, happened = _advanced(self.plan, before, stretch, rows, verdicts)
        if happened:
            known = self._history.reference(stretch.targets, stretch.last.date())
            evaluation = Evaluation(
                State(targets=stretch.targets, incidents=before),
                replace(self.plan, simulations=0),
                signals_from_rows(self.plan.frames(stretch.targets), rows, known),
                stretch.first,
                stretch.last,
                rows,
                verdicts,
                PastMinutes(self._history.store),
            )
            happened, after, _ = with_pages(evaluation, happened, after)
        self._incidents = after
        self._coverage.add(stretch, rows, verdicts)
        self._transitions += happened
        return Judged(rows, verdicts, happened)

    def result(self) -> Backtest:
        """Its pages."""
        since, until = self._history.span
        pages, coverage = past_pages(self._transitions), self._coverage
        return Backtest(coverage.history(since, until), tuple(pages), coverage.undetermined())


def backtests(
    history: StoredHistory,
    plans: Sequence[Plan],
    *,
    progress: Report | None = None,
    each: Callable[[Judged], None] | None = None,
) -> list[Backtest]:
    """The pages of rule sets over the minutes of a store: evidence is made once for all of them.

    Args:
        plans: with the rules to judge by.
        progress: told how many days of how many are done.
        each: given every stretch as the first rule set judged it.
    """
    sets = [_RuleSet(plan, history) for plan in plans]
    for done, (day, rows) in enumerate(history.rows()):
        stretches = list(history.stretches(day, rows))
        if len(stretches) > 1:
            rows = rows.sort("end", maintain_order=True)
        verdicts = [verdicts_of(one.plan.enabled, rows) for one in sets]
        for stretch in stretches:
            first, length = _within(rows, stretch) if len(stretches) > 1 else (0, len(rows))
            here = rows.slice(first, length)
            judged = [
                one.judge(stretch, here, of_rules.slice(first, length))
                for one, of_rules in zip(sets, verdicts, strict=True)
            ]
            if each is not None:
                each(judged[0])
        del rows, verdicts  # before the next day is read
        if progress is not None:
            progress(done + 1, len(history.days))
    return [one.result() for one in sets]


def _within(rows: pl.DataFrame, stretch: Stretch) -> tuple[int, int]:
    """First row and number of the rows of a stretch; they are sorted by end."""
    first = rows["end"].search_sorted(stretch.first, "right")
    return first, rows["end"].search_sorted(stretch.last, "right") - first


def _advanced(
    plan: Plan,
    before: Mapping[str, Incident],
    stretch: Stretch,
    rows: pl.DataFrame,
    verdicts: pl.DataFrame,
) -> tuple[Mapping[str, Incident], tuple[Transition, ...]]:
    """Open incidents after a stretch, and what fired and ended in it, in order."""
    incidents, ended_before = closed_for(plan.rules, before, stretch.targets, {}, stretch.first)
    incidents, happened, _ = advanced(plan.enabled, incidents, stretch.targets, rows, verdicts)
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
