"""The rules of one alert: the condition in words, where it is another, who gets it."""

from __future__ import annotations

import difflib
from collections.abc import Sequence

from pydantic import Field

from driftwatch.evidence import BY_NAME
from driftwatch.notify.numbers import clean
from driftwatch.notify.page import http_url
from driftwatch.notify.rule_words import rule_lines
from driftwatch.rulebook.rules import Rule
from driftwatch.web.page import Link, NotFound, Page, Part, Query, View, Visit
from driftwatch.web.pages.rules import Weeks, loudness
from driftwatch.web.rule_views import (
    LastBacktest,
    MuteWindow,
    RuleRow,
    last_backtest,
    mute_windows,
    rule_path,
)

PATH = "/rules/{alert}"
_NEAR = 5


class RuleQuery(Query):
    """Over which time the rule is counted."""

    weeks: Weeks = 4


class Column(Part):
    """A column of the evidence that the rule reads."""

    name: str
    meaning: str


class PoolMutes(Part):
    """Mute windows of a pool: they hold back every rule there."""

    pool: str
    mutes: tuple[MuteWindow, ...]


class RuleOfAlert(Part):
    """One rule of the alert."""

    row: RuleRow
    lines: tuple[str, ...] = Field(description="the rule in words; indents say what belongs where")
    columns: tuple[Column, ...]
    tree: str | None = Field(description="that explains it; null: it has no diagnosis")
    receivers: tuple[str, ...] = Field(description="its own; none: by route and severity")
    runbook: str | None
    backtest: LastBacktest | None = Field(description="null: none of it is kept")
    commands: tuple[str, ...]


class RuleView(View):
    """Every rule of one alert."""

    alert: str
    weeks: int
    targets: int
    budget_pages: float | None
    rules: tuple[RuleOfAlert, ...]
    pool_mutes: tuple[PoolMutes, ...]


def load(visit: Visit) -> RuleView:
    """The rules of the alert that the path names.

    Raises NotFound: no rule has that name; with those of a name like it.
    """
    plan, alert = visit.web.plan, visit.path["alert"]
    if all(rule.alert != alert for rule in plan.rules):
        raise NotFound(f"There is no rule {clean(alert)}.", _near(alert, plan.rules))
    loud, result = loudness(visit, visit.query.weeks), visit.store.last_backtest()
    pools = [(one.name, one.mute_time_intervals) for one in plan.pools if one.mute_time_intervals]
    return RuleView(
        title=f"Rule {alert}",
        alert=alert,
        weeks=visit.query.weeks,
        targets=loud.targets,
        budget_pages=loud.budget_pages,
        rules=tuple(
            _rule(rule, row, result)
            for rule, row in zip(plan.rules, loud.rows, strict=True)
            if rule.alert == alert
        ),
        pool_mutes=tuple(
            PoolMutes(pool=clean(name), mutes=mute_windows(names, plan, visit.now))
            for name, names in pools
        ),
    )


def _rule(rule: Rule, row: RuleRow, result: bytes | None) -> RuleOfAlert:
    quoted = f"'{rule.id}'" if "{" in rule.id else rule.id
    return RuleOfAlert(
        row=row,
        lines=tuple(clean(text) for text, _ in rule_lines(rule)),
        columns=tuple(
            Column(name=name, meaning=BY_NAME[name].meaning) for name in sorted(rule.columns)
        ),
        tree=rule.tree,
        receivers=tuple(map(clean, rule.receivers)),
        runbook=http_url(rule.annotations.get("runbook_url")),
        backtest=last_backtest(result, rule),
        commands=(
            f"driftwatch rules explain {quoted}",
            "driftwatch rules backtest --from 30d",
        ),
    )


def _near(name: str, rules: Sequence[Rule]) -> tuple[Link, ...]:
    by_lower = {rule.alert.lower(): rule.alert for rule in rules}
    close = difflib.get_close_matches(name.lower(), by_lower, n=_NEAR, cutoff=0.4)
    return tuple(Link(text=by_lower[one], path=rule_path(by_lower[one])) for one in close)


PAGE = Page(PATH, "Rule", "rule.html", RuleView, load, RuleQuery)
