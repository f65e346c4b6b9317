"""The rules: what each fires on, how loud it was, whether anything mutes it."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, NamedTuple

from pydantic import Field

from driftwatch.web.page import Page, View, Visit
from driftwatch.web.pages.incidents import incidents_path
from driftwatch.web.paging import Paged, Slice, part_of
from driftwatch.web.rule_views import RuleRow, Tally, noise_budget, rule_row, tallies, total

PATH = "/rules"
Weeks = Annotated[int, Field(ge=1, le=52, description="weeks before now that are counted")]


class RulesQuery(Paged):
    """Over which time rules are counted."""

    weeks: Weeks = 4


class RulesView(View):
    """Every rule, the loudest first."""

    weeks: int
    targets: int
    budget_pages: float | None = Field(
        description="pages without use that these weeks allow; null: no target is stored"
    )
    false_episodes_per_server_month: float
    tally: Tally
    rows: tuple[RuleRow, ...]
    part: Slice


class Loudness(NamedTuple):
    """Every rule of the plan over some weeks."""

    rows: tuple[RuleRow, ...]  # in the order of the plan
    tally: Tally  # of rules that are gone from the plan, too
    targets: int
    budget_pages: float | None  # None = no target is stored


def loudness(visit: Visit, weeks: int) -> Loudness:
    """What the rules did in the weeks before now."""
    plan, days = visit.web.plan, 7 * weeks
    by_rule = tallies(visit.store.rule_counts(visit.now - timedelta(days=days)))
    firing = visit.store.firing_rules()
    targets = len(visit.web.fleet.current(visit.store).targets)
    per_month = plan.detection.false_episodes_per_server_month
    budget = noise_budget(per_month, targets, days) or None
    rows = tuple(
        rule_row(
            rule,
            plan,
            by_rule.get(rule.id),
            firing.get(rule.id, 0),
            budget,
            visit.now,
            incidents=incidents_path(rule=rule.id),
        )
        for rule in plan.rules
    )
    return Loudness(rows, total(by_rule.values()), targets, budget)


def load(visit: Visit) -> RulesView:
    """The rules, ordered by how much noise they made; those that are off come last."""
    query: RulesQuery = visit.query
    loud = loudness(visit, query.weeks)
    listed, part = part_of(sorted(loud.rows, key=_loudness), query, PATH)
    return RulesView(
        title="Rules",
        weeks=query.weeks,
        targets=loud.targets,
        budget_pages=loud.budget_pages,
        false_episodes_per_server_month=visit.web.plan.detection.false_episodes_per_server_month,
        tally=loud.tally,
        rows=tuple(listed),
        part=part,
    )


def _loudness(row: RuleRow) -> tuple[bool, int, int, int, str]:
    one = row.tally
    return (not row.is_on, -one.not_useful, -one.pages, -one.tickets - one.notices, row.rule)


PAGE = Page(PATH, "Rules", "rules.html", RulesView, load, RulesQuery, place=3)
