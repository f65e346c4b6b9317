"""Lints of one condition, and of the conditions of one rule."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Collection, Iterator

from sqlglot import exp

from driftwatch.errors import Problem
from driftwatch.evidence import BY_NAME, Column
from driftwatch.rulebook.lint_places import Clause, Variant, problem
from driftwatch.yaml_models import near

_COMPARISON = exp.EQ | exp.NEQ | exp.LT | exp.LTE | exp.GT | exp.GTE | exp.Between | exp.In
_SWAPPED: dict[type[exp.Expr], type[exp.Expr]] = {
    exp.GT: exp.LT, exp.GTE: exp.LTE, exp.LT: exp.GT, exp.LTE: exp.GTE,
}  # fmt: skip
_HOLDS: dict[type[exp.Expr], Callable[[float, float], bool]] = {
    exp.GT: operator.gt, exp.GTE: operator.ge, exp.LT: operator.lt, exp.LTE: operator.le,
}  # fmt: skip
_NEGATED: dict[type[exp.Expr], type[exp.Expr]] = {
    exp.GT: exp.LTE, exp.GTE: exp.LT, exp.LT: exp.GTE, exp.LTE: exp.GT, exp.NEQ: exp.EQ,
}  # fmt: skip
# the numbers that meet a comparison, both ends included
_RANGES: dict[type[exp.Expr] | None, Callable[[float], tuple[float, float]]] = {
    exp.GT: lambda n: (math.nextafter(n, math.inf), math.inf),
    exp.GTE: lambda n: (n, math.inf),
    exp.LT: lambda n: (-math.inf, math.nextafter(n, -math.inf)),
    exp.LTE: lambda n: (-math.inf, n),
    exp.EQ: lambda n: (n, n),
}


def clause_problems(clause: Clause) -> Iterator[Problem]:
    """What is wrong with a condition by itself: ranges and units."""
    of_ranges = list(_range_problems(clause))
    yield from of_ranges
    if not of_ranges:
        yield from _unit_problems(clause)


def _range_problems(clause: Clause) -> Iterator[Problem]:
    """Comparisons of one column that its range, or its words, make true or false for good."""
    for part in comparisons(clause.condition.predicate):
        if isinstance(part, exp.In):
            for item in part.expressions:
                equal = exp.EQ(this=part.this.copy(), expression=item.copy())
                if _truths(equal) == {False}:
                    message = f"{equal.sql()} never holds: {_range(equal)}"
                    place = clause.part(part)
                    yield problem(clause.file, place, "never-holds", message, _instead(equal))
        elif len(truths := _truths(part)) == 1:
            word = "always" if True in truths else "never"
            message = f"{clause.written(part)} {word} holds: {_range(part)}"
            yield problem(clause.file, clause.part(part), f"{word}-holds", message, _instead(part))


def _truths(node: exp.Expr) -> set[bool]:
    """Which truths a comparison of a column with constants may have; other nodes: either."""
    either = {True, False}
    if isinstance(node, exp.Between):
        low, high = (_number(node.args[key]) for key in ("low", "high"))
        if low is None or high is None:
            return either
        above, below = (_compared(exp.GTE, node.this, low), _compared(exp.LTE, node.this, high))
        if low > high or {False} in (above, below):
            return {False}
        return above | below
    subject, other, kind = node.this, node.expression, type(node)
    if not isinstance(subject, exp.Column):
        subject, other, kind = other, subject, _SWAPPED.get(kind, kind)
    if isinstance(other, exp.Literal) and other.is_string and isinstance(subject, exp.Column):
        words = BY_NAME[subject.name].words
        if not words or other.this in words:
            return either
        return {kind is exp.NEQ}
    number = _number(other)
    return either if number is None else _compared(kind, subject, number)


def _compared(kind: type[exp.Expr], subject: exp.Expr, number: float) -> set[bool]:
    """Which truths a comparison of a column with a number may have."""
    if not isinstance(subject, exp.Column) or BY_NAME[subject.name].dtype != "float":
        return {True, False}
    column = BY_NAME[subject.name]
    low = -math.inf if column.low is None else column.low
    high = math.inf if column.high is None else column.high
    if kind in (exp.EQ, exp.NEQ):
        return {True, False} if low <= number <= high else {kind is exp.NEQ}
    holds = _HOLDS[kind]
    return {holds(low, number), holds(high, number)}


def _number(node: exp.Expr) -> float | None:
    """A constant, also a negative one."""
    if isinstance(node, exp.Neg):
        number = _number(node.this)
        return None if number is None else -number
    is_number = isinstance(node, exp.Literal) and not node.is_string
    return float(node.this) if is_number else None


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
    if one.is_rule:
        yield from _demand(one)


def _until(one: Variant) -> Iterator[Problem]:
    """An end that is reached while the condition still holds, and may never come after it."""
    until = one.rule.until
    if until is None or not {"when", "until"} & one.entries.entries.keys():
        return
    if follows(until.predicate, True, list(facts(one.rule.when.predicate, True))):
        key = "until" if "until" in one.entries.entries else "when"
        message = f"until: {until.text} holds whenever when: {one.rule.when.text} does"
        help_text = "say when the incident ends: waiting_requests < 10 after waiting_requests > 20"
        yield problem(one.file, one.place(key), "until-contradicts", message, help_text)


# a number's lowest and highest value, or a truth or a text that it is
Fact = tuple[str, float, float]


def facts(node: exp.Expr, truth: bool) -> Iterator[Fact]:
    """What is known where a condition has a truth."""
    match node:
        case exp.Paren():
            yield from facts(node.this, truth)
        case exp.Not():
            yield from facts(node.this, not truth)
        case exp.And() | exp.Or():
            if isinstance(node, exp.And) is truth:
                yield from facts(node.this, truth)
                yield from facts(node.expression, truth)
        case _:
            yield _fact(node, truth)


def _fact(node: exp.Expr, truth: bool) -> Fact:
    """A comparison with a number as a range of its column; else whether it holds, as 0 or 1."""
    number = _number(node.args.get("expression") or exp.Null())
    kind = type(node) if truth else _NEGATED.get(type(node))
    if number is not None and kind in _RANGES:
        low, high = _RANGES[kind](number)
        return node.this.sql(), low, high
    return node.sql(), float(truth), float(truth)


def follows(node: exp.Expr, truth: bool, known: Collection[Fact]) -> bool:
    """Whether a condition has the truth wherever these hold."""
    match node:
        case exp.Paren():
            return follows(node.this, truth, known)
        case exp.Not():
            return follows(node.this, not truth, known)
        case exp.And() | exp.Or():
            both = (follows(one, truth, known) for one in (node.this, node.expression))
            return all(both) if isinstance(node, exp.And) is truth else any(both)
    name, low, high = _fact(node, truth)
    return any(n == name and low <= here and there <= high for n, here, there in known)


def _demand(one: Variant) -> Iterator[Problem]:
    """A page that demand alone brings; one side of an OR suffices."""
    rule = one.rule
    if rule.severity != "page" or not rule.enabled:
        return
    conditions = [c for c in (rule.when, rule.precondition) if c is not None]
    is_alone = all(_moves(condition.predicate) for condition in conditions)
    if is_alone and _moves(rule.when.predicate, by_demand=True):
        message = f"{rule.alert} wakes somebody, but demand alone makes it true"
        help_text = (
            "add what users feel or a limit: slo_missed, limit_binding_share_10m_ratio >= 0.5"
        )
        yield problem(one.file, one.place("alert"), "demand-alone", message, help_text)


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
