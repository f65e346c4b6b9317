"""Lints of one condition, and of the conditions of one rule."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from sqlglot import exp

from driftwatch.errors import Problem
from driftwatch.evidence import BY_NAME, Column
from driftwatch.rulebook.lint_places import Clause, alert_place, clauses_of, problem, variants_of
from driftwatch.rulebook.lint_ranges import Box
from driftwatch.rulebook.lint_truth import (
    boxes_of,
    boxes_where,
    boxes_where_all,
    can_be,
    can_be_unknown,
    rows_of,
)
from driftwatch.rulebook.rules import ReadRule, Rule
from driftwatch.yaml_models import near

_COMPARISON = exp.EQ | exp.NEQ | exp.LT | exp.LTE | exp.GT | exp.GTE | exp.Between | exp.In


def clause_problems(clause: Clause) -> Iterator[Problem]:
    """What is wrong with a condition by itself: its truth and its units."""
    truth_problems = list(_truth_problems(clause))
    yield from truth_problems
    if not truth_problems:
        yield from _unit_problems(clause)


def _truth_problems(clause: Clause) -> Iterator[Problem]:
    """Parts that never, or always, hold; else the whole that does."""
    condition = clause.condition
    every = rows_of(condition.columns)
    is_clean = True
    for part in comparisons(condition.predicate):
        may_hold = can_be(condition, True, part, every)
        if may_hold and can_be(condition, False, part, every):
            for item in part.expressions if isinstance(part, exp.In) else ():
                equal = exp.EQ(this=part.this.copy(), expression=item.copy())
                if not can_be(condition, True, equal, every):
                    is_clean = False
                    message = f"{equal.sql()} never holds: {_range(equal)}"
                    place = clause.part(part)
                    yield problem(clause.file, place, "never-holds", message, _instead(equal))
            continue
        is_clean = False
        code = "always-holds" if may_hold else "never-holds"
        word = "always" if may_hold else "never"
        message = f"{clause.written(part)} {word} holds: {_range(part)}"
        yield problem(clause.file, clause.part(part), code, message, _instead(part))
    if not is_clean:
        return
    if not boxes_of(condition, True):
        message = f"{clause.key} never holds: its parts exclude each other"
        yield problem(clause.file, clause.whole, "never-holds", message, "join them with OR?")
    elif not boxes_of(condition, False):
        message = f"{clause.key} always holds: its parts cover every value"
        yield problem(clause.file, clause.whole, "always-holds", message, "join them with AND?")


def comparisons(node: exp.Expr) -> Iterator[exp.Expr]:
    """The comparisons that a condition joins by AND, OR and NOT."""
    match node:
        case exp.And() | exp.Or():
            yield from comparisons(node.this)
            yield from comparisons(node.expression)
        case exp.Paren() | exp.Not():
            yield from comparisons(node.this)
        case _ if isinstance(node, _COMPARISON):
            yield node


def _columns(node: exp.Expr) -> list[Column]:
    names = dict.fromkeys(column.name for column in node.find_all(exp.Column))
    return [BY_NAME[name] for name in names]


def _range(node: exp.Expr) -> str:
    """What the columns of a comparison may be."""
    columns = _columns(node)
    if _is_reversed(node):
        return "BETWEEN takes the lower end first"
    texts = []
    for column in columns:
        name = column.name if len(columns) > 1 else "the column"
        if column.words:
            texts.append(f"{name} is {', '.join(column.words[:-1])} or {column.words[-1]}")
        elif column.low is not None and column.high is not None:
            texts.append(f"{name} is {column.low:g} to {column.high:g}")
        elif column.low is not None:
            texts.append(f"{name} is {column.low:g} or more")
    return ", ".join(texts) or "it compares constants"


def _instead(node: exp.Expr) -> str | None:
    """What its author may have meant."""
    columns = _columns(node)
    if _is_reversed(node):
        return f"write BETWEEN {node.args['high'].sql()} AND {node.args['low'].sql()}"
    if len(columns) != 1:
        return None
    column = columns[0]
    is_plain = node.find(exp.Add, exp.Sub, exp.Mul, exp.Div) is None
    for literal in node.find_all(exp.Literal) if is_plain else ():
        if literal.is_string and column.words and literal.this not in column.words:
            return near(str(literal.this), column.words)
        if not literal.is_string and column.high == 1.0 and 1.0 < float(literal.this) <= 100.0:
            return f"a share is 0 to 1: write {float(literal.this) / 100:g}"
    return f"driftwatch evidence {column.name} explains the column"


def _is_reversed(node: exp.Expr) -> bool:
    """Whether it is a BETWEEN whose first number is the larger one."""
    if not isinstance(node, exp.Between):
        return False
    ends = [node.args[key] for key in ("low", "high")]
    if any(not isinstance(end, exp.Literal) or end.is_string for end in ends):
        return False
    low, high = (float(end.this) for end in ends)
    return low > high


def _unit_problems(clause: Clause) -> Iterator[Problem]:
    """Thresholds far above what a column is: milliseconds, per cent."""
    if all(BY_NAME[name].usual is None for name in clause.condition.columns):
        return
    for part in comparisons(clause.condition.predicate):
        columns = _columns(part)
        if len(columns) != 1 or part.find(exp.Add, exp.Sub, exp.Mul, exp.Div) is not None:
            continue
        column = columns[0]
        usual = math.inf if column.usual is None else column.usual
        for literal in part.find_all(exp.Literal):
            if literal.is_string or float(literal.this) <= usual:
                continue
            number = float(literal.this)
            if column.unit == "seconds":
                minutes = f" is {number / 60:,.3g} min," if number >= 120 else " is"
                message = f"{number:,g} s{minutes} too long for {column.name}"
                help_text = f"for {number:,g} ms write {number / 1000:g}"
            else:
                message = f"{column.name} is a ratio: {number:g} is {number * 100:,g} %"
                help_text = f"for {number:g} % write {number / 100:g}"
            yield problem(clause.file, clause.part(part), "unit", message, help_text)
            break


def rule_problems(one: ReadRule, rule: Rule, is_explained: bool) -> Iterator[Problem]:
    """Lints of a rule's conditions.

    Args:
        is_explained: a comment stands at the rule.
    """
    for entries, variant in variants_of(one, rule):
        clauses = list(clauses_of(entries, one.file, variant))
        broken = False
        for clause in clauses:
            of_clause = list(clause_problems(clause))
            broken = broken or any(p.code in ("never-holds", "always-holds") for p in of_clause)
            yield from of_clause
        if not broken:
            yield from _together(variant, clauses)
    yield from _demand(one, rule)
    if not is_explained:
        yield from _unexplained(one, rule)


def _together(rule: Rule, clauses: Sequence[Clause]) -> Iterator[Problem]:
    """`when` beside `given`, and `until` beside `when`."""
    by_key = {clause.key: clause for clause in clauses}
    if rule.precondition is not None and (by_key.keys() & {"when", "given"}):
        every = [rows_of(rule.when.columns | rule.precondition.columns)]
        if not boxes_where_all((rule.precondition, rule.when), every):
            clause = by_key.get("given") or by_key["when"]
            message = "`when` and `given` never hold in the same minute"
            help_text = "`given` names the minutes in which driftwatch judges `when`"
            yield problem(clause.file, clause.whole, "never-holds", message, help_text)
    if rule.until is not None and (by_key.keys() & {"when", "until"}):
        every = [rows_of(rule.when.columns | rule.until.columns)]
        if not can_end(rule, every):
            clause = by_key.get("until") or by_key["when"]
            message = "`until` holds only while `when` does, so the incident never ends"
            help_text = "leave `until` out: the incident then ends when `when` is false"
            yield problem(clause.file, clause.whole, "until-never", message, help_text)


def can_end(rule: Rule, every: Sequence[Box]) -> bool:
    """Whether `until` may hold in a minute in which `when` does not."""
    if rule.until is None:
        return True
    over = boxes_where(rule.until, True, every)
    return bool(boxes_where(rule.when, False, over)) or can_be_unknown(rule.when, over)


def _demand(one: ReadRule, rule: Rule) -> Iterator[Problem]:
    """A page that demand alone brings; one side of an OR suffices."""
    if rule.severity != "page" or not rule.enabled:
        return
    conditions = [c for c in (rule.when, rule.precondition) if c is not None]
    is_alone = all(_moves(condition.predicate) for condition in conditions)
    if is_alone and _moves(rule.when.predicate, by_demand=True):
        message = f"{rule.alert} wakes somebody, but demand alone makes it true"
        help_text = (
            "add what users feel or a limit: slo_missed, limit_binding_share_10m_ratio >= 0.5"
        )
        yield problem(one.file, alert_place(one), "demand-alone", message, help_text)


def _moves(node: exp.Expr, *, by_demand: bool = False, negated: bool = False) -> bool:
    """Whether demand, or how driftwatch scrapes, makes it true; ``by_demand``: demand does."""
    match node:
        case exp.Paren():
            return _moves(node.this, by_demand=by_demand, negated=negated)
        case exp.Not():
            return _moves(node.this, by_demand=by_demand, negated=not negated)
        case exp.And() | exp.Or():
            sides = (node.this, node.expression)
            of_demand = any(_moves(one, by_demand=by_demand, negated=negated) for one in sides)
            if isinstance(node, exp.And) is negated:  # either side suffices
                return of_demand
            return of_demand and all(_moves(one, negated=negated) for one in sides)
    moved = [column.moves_with for column in _columns(node)]
    return all(moved) and ("demand" in moved or not by_demand)


def _unexplained(one: ReadRule, rule: Rule) -> Iterator[Problem]:
    """The first threshold of a rule without a comment."""
    for entries, variant in variants_of(one, rule):
        for clause in clauses_of(entries, one.file, variant):
            for part in comparisons(clause.condition.predicate):
                for literal in part.find_all(exp.Literal):
                    if not literal.is_string and float(literal.this) != 0.0:
                        message = f"no comment at the rule says why {literal.this}"
                        help_text = "write where the number comes from: # measured over 30 days"
                        place = clause.part(part)
                        yield problem(one.file, place, "no-source", message, help_text)
                        return
