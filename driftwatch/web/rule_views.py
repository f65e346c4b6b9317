"""What the pages of rules show, and how it is counted. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import datetime

import orjson
from pydantic import Field

from driftwatch.backtest.stored_result import version_of
from driftwatch.notify.numbers import clean, duration, plural
from driftwatch.pipeline.plan import Plan
from driftwatch.rulebook.comparisons import comparisons, parts_of
from driftwatch.rulebook.rules import Rule
from driftwatch.settings.time_intervals import interval_text
from driftwatch.store.incidents import NOT_USEFUL, USEFUL
from driftwatch.web.page import Part
from driftwatch.web.rule_counts import RuleCount

MONTH_DAYS = 365.25 / 12
# of less data an incident says nothing about a month
_LEAST_MINUTES = 24 * 60
_OF_HISTORY = ("at", "since", "until", "servers", "minutes_with_data")


class MuteWindow(Part):
    """A time in which pages of a rule are held back."""

    name: str
    holds: bool = Field(description="whether it holds now")
    times: tuple[str, ...] = Field(description="each interval in words")


class Tally(Part):
    """Incidents that fired in some weeks."""

    pages: int = Field(description="that woke somebody")
    tickets: int
    notices: int
    quiet: int = Field(description="that a silence or a mute window held back")
    useful: int = Field(description="pages that somebody marked so")
    not_useful: int
    unmarked: int = Field(description="pages that nobody marked: whether they were of use is open")
    last_firing_at: datetime | None


class LastBacktest(Part):
    """What the last backtest of the database said of a rule."""

    at: datetime = Field(description="when it was run")
    since: datetime
    until: datetime
    servers: int
    minutes_with_data: int = Field(description="of all servers together")
    incidents: int = Field(description="how often the rule would have fired")
    per_server_month: float | None = Field(description="null: of less than a day of data")
    undetermined_ratio: float | None = Field(
        description="share of minutes with data without a verdict of the rule"
    )
    is_of_this_version: bool = Field(description="whether the rule is still what it was then")


def last_backtest(document: bytes | None, rule: Rule) -> LastBacktest | None:
    """Of a rule, from what the store kept; None: it was not judged, or nothing was kept."""
    kept_result = {} if document is None else orjson.loads(document)
    of_rule = dict(kept_result.get("rules", {}).get(rule.id, {}))
    if not of_rule:
        return None
    version = of_rule.pop("version")
    if kept_result["minutes_with_data"] < _LEAST_MINUTES:
        of_rule["per_server_month"] = None
    fields = {name: kept_result[name] for name in _OF_HISTORY}
    return LastBacktest(**fields, **of_rule, is_of_this_version=version == version_of(rule))


class RuleRow(Part):
    """One rule."""

    rule: str
    alert: str
    path: str
    incidents: str = Field(description="path of its incidents")
    severity: str
    summary: str | None = Field(description="of its annotations; null: it has none")
    when: str = Field(description="in words, in a few")
    is_on: bool
    reason: str | None = Field(description="why it is off")
    firing: int = Field(description="incidents of now")
    tally: Tally
    budget_share: float | None = Field(
        description="part of the fleet's noise budget that its pages marked not useful spent"
    )
    budget_reason: str | None = Field(description="why there is no budget")
    mutes: tuple[MuteWindow, ...]


def noise_budget(false_episodes_per_server_month: float, targets: int, days: float) -> float:
    """Pages without use that so many targets may cause in so many days."""
    return false_episodes_per_server_month * targets * days / MONTH_DAYS


def tallies(counts: Iterable[RuleCount]) -> dict[str, Tally]:
    """Rule → what it fired."""
    numbers: dict[str, Counter[str]] = {}
    last: dict[str, datetime] = {}
    for one in counts:
        number = numbers.setdefault(one.rule, Counter())
        last[one.rule] = max(last.get(one.rule, one.last_firing_at), one.last_firing_at)
        number["quiet" if one.is_quiet else one.severity] += one.incidents
        if one.severity == "page" and not one.is_quiet:
            number[one.mark or "unmarked"] += one.incidents
    return {rule: _tally(number, last[rule]) for rule, number in numbers.items()}


def total(every: Iterable[Tally]) -> Tally:
    """All of them together."""
    listed = list(every)
    sums: Counter[str] = Counter()
    for one in listed:
        sums.update({k: v for k, v in one.model_dump().items() if isinstance(v, int)})
    ends = [one.last_firing_at for one in listed if one.last_firing_at is not None]
    names = ("pages", "tickets", "notices", "quiet", "useful", "not_useful", "unmarked")
    return Tally(**{name: sums[name] for name in names}, last_firing_at=max(ends, default=None))


def _tally(number: Mapping[str, int], last: datetime | None) -> Tally:
    count = Counter(number)
    return Tally(
        pages=count["page"],
        tickets=count["ticket"],
        notices=count["notice"],
        quiet=count["quiet"],
        useful=count[USEFUL],
        not_useful=count[NOT_USEFUL],
        unmarked=count["unmarked"],
        last_firing_at=last,
    )


def rule_row(
    rule: Rule,
    plan: Plan,
    tally: Tally | None,
    firing: int,
    budget: float | None,
    now: datetime,
    *,
    incidents: str,
) -> RuleRow:
    """One rule as a row; ``budget``: of the whole fleet, None = there is none."""
    tally = tally or _tally({}, None)
    summary = rule.annotations.get("summary")
    return RuleRow(
        rule=clean(rule.id),
        alert=rule.alert,
        path=rule_path(rule.alert),
        incidents=incidents,
        severity=rule.severity,
        summary=None if summary is None else clean(summary),
        when=when_text(rule),
        is_on=rule.is_evaluated,
        reason=None if rule.is_evaluated else clean(rule.reason or "switched off"),
        firing=firing,
        tally=tally,
        budget_share=tally.not_useful / budget if budget else None,
        budget_reason=None if budget else "no target is stored yet",
        mutes=mute_windows(rule.mute_time_intervals, plan, now),
    )


def rule_path(alert: str) -> str:
    """Where the page of a rule's alert is."""
    return f"/rules/{alert}"


def when_text(rule: Rule) -> str:
    """When it fires, in a few words: one comparison in full, of more how many."""
    each = list(comparisons(parts_of(rule.when)))
    after = duration(rule.for_seconds) if rule.for_seconds else "one minute"
    if len(each) == 1:
        return clean(f"after {after} in which {each[0].subject} is {each[0].wanted}")
    return f"after {after}, on {plural(len(each), 'comparison')}"


def mute_windows(names: Iterable[str], plan: Plan, now: datetime) -> tuple[MuteWindow, ...]:
    """The time intervals of these names."""
    return tuple(
        MuteWindow(
            name=clean(name),
            holds=plan.time_intervals[name].contains(now),
            times=tuple(map(interval_text, plan.time_intervals[name].time_intervals)),
        )
        for name in names
        if name in plan.time_intervals
    )
