"""The evidence of a store's minutes, a UTC day at a time; the pages that a rule set would have sent
over it, and how much of it had data.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, timedelta
from itertools import pairwise
from typing import ClassVar

import polars as pl
from scipy.special import gammaincinv

from driftwatch.backtest.report import PastPage, past_pages
from driftwatch.baselines.in_force import in_force
from driftwatch.collect.schema import KEY
from driftwatch.detect.days import with_usual
from driftwatch.detect.references import References
from driftwatch.errors import NoVerdict
from driftwatch.incidents.incident import Incident, Transition
from driftwatch.model import Target, TargetKey
from driftwatch.pipeline.evaluation import (
    TEN_MINUTES,
    Evaluation,
    Signals,
    minute_windows,
    stored_evidence,
)
from driftwatch.pipeline.incidents import advance, close_departed, just_ended
from driftwatch.pipeline.minutes import PastMinutes
from driftwatch.pipeline.pages import with_pages
from driftwatch.pipeline.plan import Plan
from driftwatch.pipeline.state import State
from driftwatch.pipeline.stored_state import stored_targets
from driftwatch.pipeline.tick import verdicts_of
from driftwatch.store.minute_columns import STORED_SCHEMA
from driftwatch.store.minutes import MINUTE
from driftwatch.store.store import Store

NO_MINUTES = "the server is gone (no minute of it is stored)"
NOTE = "only whole minutes are judged; they are kept for two days, then as rows of ten minutes"
_DAY = timedelta(days=1)
# Rows that are made evidence at a time: a day of 25 targets.
_MOST_ROWS = 36_000

Span = tuple[datetime, datetime]


@dataclass(frozen=True, slots=True)
class Stretch:
    """Minutes with the same targets, and those that left with the last one."""

    first: datetime  # start of the first minute
    last: datetime  # end of the last one
    targets: Mapping[TargetKey, Target]  # with their pools
    retired: Mapping[TargetKey, str]  # target → why

    @property
    def staying(self) -> Mapping[TargetKey, Target]:
        """The targets after the last minute."""
        return {key: one for key, one in self.targets.items() if key not in self.retired}


class StoredHistory:
    """Evidence rows of a span.

    Args:
        span: from, to.
        plan: whose pools, settings and latency targets hold; the rules do not matter.

    Raises:
        NoVerdict: no minute is stored of the span.
    """

    def __init__(self, store: Store, span: Span, plan: Plan) -> None:
        self.store, self.plan = store, plan
        reach = store.minutes_reach()
        first, last = (at.replace(second=0, microsecond=0) for at in span)
        if reach is not None:  # what lies before and after was not judged
            first, last = max(first, reach[0]), min(last, reach[1])
        self.span = first, max(first, last)
        edges = [first]
        while edges[-1] < last:
            midnight = edges[-1].astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
            edges.append(min(midnight + _DAY, last))
        self.days = list(pairwise(edges))
        if reach is None or not any(self._has_minutes(day) for day in self.days):
            raise _nothing(span, reach)
        self._labels = stored_targets(store)
        self._baselines = store.baselines()
        self._references = References().with_newer(store.references())

    def _has_minutes(self, day: Span) -> bool:
        parts = self.store.past_in_parts(*day, KEY, _MOST_ROWS)
        return any((part["seconds"] == MINUTE).any() for part in parts)

    def rows(self) -> Iterator[tuple[Span, pl.DataFrame]]:
        """Each day and its evidence rows by target and end, with ``ever_seen``, without lists."""
        before = self.store.past(self.span[0] - TEN_MINUTES, self.span[0])
        for day in self.days:
            parts, last = [], []
            for part in self.store.past_in_parts(*day, STORED_SCHEMA, _MOST_ROWS):
                own = part.filter(pl.col("seconds") == MINUTE)
                earlier = before.select(own.columns).join(own.select(KEY), on=KEY, how="semi")
                parts.append(self._evidence(own, pl.concat([earlier, own]).sort(*KEY, "end")))
                last.append(own.filter(pl.col("end") > day[1] - TEN_MINUTES))
            before, rows = pl.concat(last), pl.concat(parts)
            parts.clear()
            yield day, rows
            del rows

    def _evidence(self, minutes: pl.DataFrame, recent: pl.DataFrame) -> pl.DataFrame:
        targets = self.plan.assign(self.targets(minutes))
        windows, last = minute_windows(minutes), minutes["end"].max()
        assert isinstance(last, datetime)  # noqa: S101 - there is a minute
        reference = self.reference(targets, last.date())
        evidence = stored_evidence(minutes, windows, targets, self.plan, reference, recent)
        evidence = evidence.with_columns(minutes["pool"], minutes["ever_seen"])
        return evidence.select(pl.exclude(pl.List(pl.Float64)))

    def reference(self, targets: Mapping[TargetKey, Target], day: date) -> pl.DataFrame:
        """What is "before" of targets on a day: their baselines now, else their days before it."""
        measured = in_force(self._baselines, targets, self.plan).reference
        declared = self.plan.declared_reference(targets.values())
        return with_usual(measured, declared, self._references, day)

    def targets(self, rows: pl.DataFrame) -> dict[TargetKey, Target]:
        """The targets of rows, with their newest labels."""
        last = rows.group_by(KEY, maintain_order=True).agg(pl.col("model_name").drop_nulls().last())
        targets = {}
        for instance, engine, model in last.iter_rows():
            key = TargetKey(instance, engine)
            own = {"instance": instance, "engine": engine}
            own |= {"model_name": model} if model else {}
            targets[key] = self._labels.get(key) or Target(key, own)
        return targets

    def stretches(self, day: Span, rows: pl.DataFrame) -> Iterator[Stretch]:
        """Who had minutes when: one who has none any more is retired with the last."""
        minute = pl.duration(minutes=1)
        begins = (pl.col("end").diff().over(KEY) != minute).fill_null(True)
        runs = (
            rows.select(*KEY, "pool", "end")
            .with_columns(run=(begins | (pl.col("pool") != pl.col("pool").shift(1))).cum_sum())
            .group_by(*KEY, "pool", "run", maintain_order=True)
            .agg(first=pl.col("end").min() - minute, last=pl.col("end").max())
            .sort(KEY)
        )
        known = self.targets(rows)
        for first, last in pairwise(sorted({*runs["first"], *runs["last"]})):
            here = runs.filter((pl.col("first") <= first) & (pl.col("last") >= last))
            targets, retired = {}, {}
            for instance, engine, pool, until in here.select(*KEY, "pool", "last").iter_rows():
                key = TargetKey(instance, engine)
                targets[key] = replace(known[key], pool=pool)
                if until == last and last < day[1]:
                    retired[key] = NO_MINUTES
            if targets:
                yield Stretch(first, last, targets, retired)


def _nothing(span: Span, reach: Span | None) -> NoVerdict:
    """That no minute is there, and from when to when some are."""
    form = "%Y-%m-%d %H:%M"
    return NoVerdict(
        f"no minute with a usable scrape between {span[0]:{form}} and {span[1]:{form}} UTC is "
        "stored",
        help_text="nothing is stored yet: driftwatch run -c driftwatch.yaml"
        if reach is None
        else f"minutes reach from {reach[0]:{form}} to {reach[1]:{form}} UTC",
    )


FEWEST_SERVER_DAYS = 3.0  # over less, one page is ten and more a month
_MINUTE = timedelta(minutes=1)
Report = Callable[[float, float], None]


@dataclass(frozen=True, slots=True)
class History:
    """How much data rule sets were judged on."""

    MONTH_SECONDS: ClassVar = 86_400 * 365.25 / 12

    since: datetime
    until: datetime
    servers: int  # instances that were listed at some time
    server_minutes: int  # of each server from its first to its last
    minutes_with_data: int  # those with a usable scrape

    @property
    def server_months(self) -> float:
        """Minutes with data, over which pages are counted: no rule can judge the others."""
        return 60 * self.minutes_with_data / self.MONTH_SECONDS

    @classmethod
    def is_rate(cls, server_months: float) -> bool:
        """Whether that is enough for a rate."""
        return server_months * cls.MONTH_SECONDS >= 86_400 * FEWEST_SERVER_DAYS

    def rate(self, count: int) -> tuple[float, float, float] | None:
        """A count per server-month, with its 95 % interval (exact, of a Poisson count); None below
        :data:`FEWEST_SERVER_DAYS`.
        """
        months = self.server_months
        if not self.is_rate(months):
            return None
        low, high = gammaincinv([count or 1, count + 1], [0.025, 0.975])
        return count / months, float(low) / months if count else 0.0, float(high) / months

    @property
    def data_ratio(self) -> float | None:
        """Share of the minutes with data; None without a minute."""
        return self.minutes_with_data / self.server_minutes if self.server_minutes else None


@dataclass(frozen=True, slots=True)
class Backtest:
    """A rule set over a history."""

    history: History
    pages: tuple[PastPage, ...]  # in order of time
    # rule id → share of the minutes with data in which it was undetermined
    undetermined_ratio: Mapping[str, float] = field(default_factory=dict)


class _RuleSet:
    """One rule set on its way through a history: open incidents, and what happened."""

    def __init__(self, plan: Plan, history: StoredHistory) -> None:
        self.plan = plan
        self._history = history
        self._unknown: Counter[str] = Counter()  # rule → minutes with data and no verdict
        self._transitions: list[Transition] = []
        self._incidents: Mapping[str, Incident] = {}
        self._ended: tuple[Incident, ...] = ()

    def judge(self, stretch: Stretch, rows: pl.DataFrame, verdicts: pl.DataFrame) -> None:
        """Add what fires and ends in a stretch, in order, with pages; nothing is simulated."""
        before = self._incidents
        after, happened = _advanced(self.plan, before, stretch, rows, verdicts, self._ended)
        ended = (*self._ended, *(one.incident for one in happened))
        self._ended = just_ended(ended, stretch.last)
        if happened:
            known = self._history.reference(stretch.targets, stretch.last.date())
            evaluation = Evaluation(
                State(targets=stretch.targets, incidents=before),
                replace(self.plan, simulations=0),
                Signals(self.plan.frames(stretch.targets), rows, known),
                stretch.first,
                stretch.last,
                rows,
                verdicts,
                PastMinutes(self._history.store),
            )
            happened, after, _ = with_pages(evaluation, happened, after)
        self._incidents = after
        unknown = verdicts.filter((rows["scrapes"] > 0).fill_null(value=False)).null_count()
        self._unknown.update(next(unknown.iter_rows(named=True), {}))
        self._transitions += happened

    def result(self, history: History, scraped: int) -> Backtest:
        """Its pages; ``scraped``: minutes of targets with data."""
        unknown = {rule: n / max(scraped, 1) for rule, n in sorted(self._unknown.items())}
        return Backtest(
            history, tuple(past_pages(self._transitions, self._incidents.values())), unknown
        )


def backtests(
    history: StoredHistory,
    plans: Sequence[Plan],
    *,
    progress: Report | None = None,
) -> list[Backtest]:
    """The pages of rule sets over the minutes of a store: evidence is made once for all of them.

    Args:
        plans: with the rules to judge by.
        progress: called with the days done and the days in all.
    """
    sets, counts = [_RuleSet(plan, history) for plan in plans], []
    for done, (day, rows) in enumerate(history.rows()):
        stretches = list(history.stretches(day, rows))
        if len(stretches) > 1:
            rows = rows.sort("end", maintain_order=True)
        verdicts = [verdicts_of(one.plan.enabled, rows) for one in sets]
        for stretch in stretches:
            first, length = _within(rows, stretch) if len(stretches) > 1 else (0, len(rows))
            here = rows.slice(first, length)
            for one, of_rules in zip(sets, verdicts, strict=True):
                one.judge(stretch, here, of_rules.slice(first, length))
        counts.append(_counted(rows))
        del rows, verdicts  # before the next day is read
        if progress is not None:
            progress(done + 1, len(history.days))
    minutes = pl.concat(counts)
    spans = minutes.group_by("instance").agg(pl.col("first").min(), pl.col("last").max())
    listed = spans.select((pl.col("last") - pl.col("first")).sum()).item() // _MINUTE + len(spans)
    seen = History(*history.span, len(spans), listed, int(minutes["with_data"].sum()))
    return [one.result(seen, int(minutes["scraped"].sum())) for one in sets]


def _counted(rows: pl.DataFrame) -> pl.DataFrame:
    """A row a server of one day: its first and last minute, and how many minutes have data."""
    scraped = (pl.col("scrapes") > 0).fill_null(value=False)
    return rows.group_by("instance").agg(
        first=pl.col("end").min(),
        last=pl.col("end").max(),
        with_data=pl.col("end").filter(scraped).n_unique(),
        scraped=scraped.sum(),
    )


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
    ended: Sequence[Incident],
) -> tuple[Mapping[str, Incident], tuple[Transition, ...]]:
    """Open incidents after a stretch, and what fired and ended in it, in order."""
    incidents, ended_before = close_departed(plan.rules, before, stretch.targets, {}, stretch.first)
    incidents, happened, _ = advance(
        plan.enabled, incidents, stretch.targets, rows, verdicts, ended
    )
    incidents, closed = close_departed(
        plan.rules, incidents, stretch.staying, stretch.retired, stretch.last
    )
    return incidents, (*ended_before, *happened, *closed)
