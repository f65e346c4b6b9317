"""A rule set over kept evidence: verdicts and incidents, day by day, as a replay has them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import polars as pl

from driftwatch.backtest.archive import ROW_KEY, Archive, Day
from driftwatch.model import Incident, Target, TargetKey, Transition
from driftwatch.pipeline.capacity import READ_OF_ROWS, Ask, with_capacity
from driftwatch.pipeline.findings import WORST_COLUMNS
from driftwatch.pipeline.incidents import READ_BY_INCIDENTS, advanced, closed_for
from driftwatch.pipeline.minutes import PastMinutes
from driftwatch.pipeline.plan import Plan
from driftwatch.pipeline.question import CAPACITY
from driftwatch.pipeline.state import (
    CAPACITY_REASON,
    JUDGED_SCHEMA,
    State,
    Stretch,
    no_capacity,
)
from driftwatch.pipeline.tick import verdicts_of
from driftwatch.rulebook.rules import Rule

# Columns that no evidence has: a rule set asks for what it reads of them.
OF_CAPACITY: Mapping[str, type[pl.DataType]] = {
    **dict.fromkeys(CAPACITY, pl.Float64),
    CAPACITY_REASON: pl.String,
}
_READ_BY_SILENCE = ("scrapes", "slower_at_equal_load", "speed_unknown_code", "speed_unknown_reason")


@dataclass(frozen=True, slots=True, eq=False)
class Judged:
    """Minutes of the same targets, and what a rule set makes of them."""

    day: Day
    stretch: Stretch
    rows: pl.DataFrame  # evidence rows: the columns that the rules read
    verdicts: pl.DataFrame  # one Boolean column per enabled rule id, beside the rows
    happened: tuple[Transition, ...]  # what fired and what ended, in order
    before: Mapping[str, Incident]  # open incidents by identity, before and after
    after: Mapping[str, Incident]


# a stretch → its transitions with their pages, and the open incidents with theirs
Paged = tuple[tuple[Transition, ...], Mapping[str, Incident]]
Pages = Callable[[Judged], Paged]
PastOf = Callable[[Day], PastMinutes]


@dataclass(frozen=True, slots=True)
class Capacity:
    """How the capacity columns are filled, where a rule reads them."""

    ask: Ask
    past_of: PastOf


@dataclass(slots=True)
class _Memory:
    incidents: Mapping[str, Incident] = field(default_factory=dict)
    targets: Mapping[TargetKey, Target] = field(default_factory=dict)
    capacity: pl.DataFrame = field(default_factory=no_capacity)


def judged(
    archive: Archive,
    plan: Plan,
    *,
    capacity: Capacity | None = None,
    pages: Pages | None = None,
) -> Iterator[Judged]:
    """Every stretch of the history in order, incidents carried from one to the next.

    Args:
        plan: with the rules to judge by.
        capacity: None = the capacity columns are unknown.
        pages: None = transitions have no pages.
    """
    columns, memory = columns_read(plan.enabled), _Memory()
    asks = capacity is not None and any(_reads_capacity(rule) for rule in plan.enabled)
    for day in archive.days:
        rows = archive.rows(day, columns).with_columns(_no_capacity())
        for stretch in archive.roster(day):
            inside = pl.col("end").is_between(stretch.first, stretch.last, closed="right")
            part = rows.filter(inside)
            if asks and capacity is not None and len(part):
                past, gpus = capacity.past_of(day), archive.gpus(day)
                state = State(targets=stretch.targets, gpus=gpus, capacity=memory.capacity)
                part, memory.capacity = with_capacity(part, state, past, plan, ask=capacity.ask)
            judgement = _incidents_of(day, stretch, part, plan, memory)
            if pages is not None:
                happened, after = pages(judgement)
                judgement = replace(judgement, happened=happened, after=after)
            memory.incidents, memory.targets = judgement.after, stretch.staying
            yield judgement


def _incidents_of(
    day: Day, stretch: Stretch, rows: pl.DataFrame, plan: Plan, memory: _Memory
) -> Judged:
    before = memory.incidents
    incidents, ended_before = closed_for(
        plan.rules, before, stretch.targets, stretch.departed, stretch.first, memory.targets
    )
    verdicts = verdicts_of(plan.enabled, rows)
    if len(rows):
        incidents, happened = advanced(plan.enabled, incidents, stretch.targets, rows, verdicts)
    else:
        happened = ()
    incidents, closed = closed_for(
        plan.rules, incidents, stretch.staying, stretch.retired, stretch.last
    )
    every = (*ended_before, *happened, *closed)
    return Judged(day, stretch, rows, verdicts, every, before, incidents)


def columns_read(rules: Sequence[Rule]) -> list[str]:
    """The columns of evidence that judging these rules reads."""
    of_rules = {name for rule in rules for name in rule.columns}
    of_capacity = READ_OF_ROWS if any(_reads_capacity(rule) for rule in rules) else ()
    beside = (*READ_BY_INCIDENTS, *_READ_BY_SILENCE, *WORST_COLUMNS, *of_capacity, *JUDGED_SCHEMA)
    return sorted({*of_rules, *beside}.difference(ROW_KEY, OF_CAPACITY))


def _no_capacity() -> list[pl.Expr]:
    return [pl.lit(None, dtype).alias(name) for name, dtype in OF_CAPACITY.items()]


def _reads_capacity(rule: Rule) -> bool:
    return any(not one.when.columns.isdisjoint(CAPACITY) for one in rule.variants)
