"""Lints of one condition, and of the conditions of one rule."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Literal

from sqlglot import exp

from driftwatch.errors import Problem
from driftwatch.evidence import BY_NAME, Column
from driftwatch.rulebook.lint_places import Clause, Variant, problem
from driftwatch.rulebook.truths import possible
from driftwatch.yaml_models import near

_COMPARISON = exp.EQ | exp.NEQ | exp.LT | exp.LTE | exp.GT | exp.GTE | exp.Between | exp.In


def clause_problems(clause: Clause) -> Iterator[Problem]:
    """What is wrong with a condition by itself: ranges and units."""
    of_ranges = list(_range_problems(clause)) or list(_whole_problems(clause))
    yield from of_ranges
    if not of_ranges:
        yield from _unit_problems(clause)


def _range_problems(clause: Clause) -> Iterator[Problem]:
    """Comparisons of one column that its range, or its words, make true or false for good."""
    for part in comparisons(clause.condition.predicate):
        if isinstance(part, exp.In):
            for item in part.expressions:
                equal = exp.EQ(this=part.this.copy(), expression=item.copy())
                if not possible((equal, True)):
                    message = f"{equal.sql()} never holds: {_range(equal)}"
                    place = clause.part(part)
                    yield problem(clause.file, place, "never-holds", message, _instead(equal))
        elif (word := _for_good(part)) is not None:
            message = f"{clause.written(part)} {word} holds: {_range(part)}"
            yield problem(clause.file, clause.part(part), f"{word}-holds", message, _instead(part))


def _whole_problems(clause: Clause) -> Iterator[Problem]:
    """Comparisons that together are true or false for good."""
    if clause.condition.columns and (word := _for_good(clause.condition.predicate)) is not None:
        text = " ".join(clause.condition.text.split())
        why = "its comparisons exclude each other" if word == "never" else "one of its sides does"
        message = f"{clause.key}: {text} {word} holds: {why}"
        help_text = "AND wants both sides, OR one of them"
        yield problem(clause.file, clause.whole, f"{word}-holds", message, help_text)


def _for_good(node: exp.Expr) -> Literal["always", "never"] | None:
    """How often a condition holds, of the rows in which it is known."""
    if not possible((node, True)):
        return "never"
    return None if possible((node, False)) else "always"


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


def condition_problems(one: Variant) -> Iterator[Problem]:
    """Lints of the conditions of a rule or an override."""
    for clause in one.clauses:
        yield from clause_problems(clause)
    yield from _until(one)


def _until(one: Variant) -> Iterator[Problem]:
    """An end that comes while the condition still holds, or never."""
    rule, written = one.rule, one.entries.entries.keys()
    if rule.until is None or not {"when", "until", "given"} & written:
        return
    given = () if rule.precondition is None else ((rule.precondition.predicate, True),)
    until, when = rule.until.predicate, rule.when.predicate
    key = next(key for key in ("until", "when", "given") if key in written)
    help_text = "say when the incident ends: waiting_requests < 10 after waiting_requests > 20"
    if not possible((until, True), *given):
        if given and possible((until, True)):
            message = f"until: {rule.until.text} never holds where given: does: no incident ends"
            yield problem(one.file, one.place(key), "until-contradicts", message, help_text)
    elif possible((when, True), *given) and not possible((when, True), *given, (until, False)):
        message = f"until: {rule.until.text} holds whenever when: {rule.when.text} does"
        yield problem(one.file, one.place(key), "until-contradicts", message, help_text)
