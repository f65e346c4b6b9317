"""A condition as PromQL: two queries, one for where it is true and one for where it is false.

PromQL has two truths, a condition three: a target is in the first vector where the condition is
true, in the second where it is false, in neither where it is unknown. An unknown column is an
absent series, so a comparison is absent from both by itself. NOT swaps the two; AND is ``and`` of
the first and ``or`` of the second (De Morgan), so no vector is ever subtracted that unknown
targets would stay in.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import reduce
from typing import NoReturn

from sqlglot import exp

from driftwatch.condition import Condition, tree_of
from driftwatch.evidence import BY_NAME, Column
from driftwatch.export.promql import Atom, Binary, Call, Promql
from driftwatch.service.target_metrics import EVERY_TARGET, PREFIX, TEXT_LABEL

# Larger ones cost a Prometheus more than the rule is worth, and nobody can read them.
MOST_NODES = 2_000


class CannotExport(Exception):
    """A rule, or a part of one, that has no equal in PromQL; its text is the reason."""


@dataclass(frozen=True, slots=True)
class Truth:
    """Where a condition is true and where it is false; None = nowhere."""

    true: Promql | None
    false: Promql | None

    def inverted(self) -> Truth:
        """NOT."""
        return Truth(self.false, self.true)


# every target of the newest minute
EVERY = Atom(EVERY_TARGET)
ALWAYS, NEVER, UNKNOWN = Truth(EVERY, None), Truth(None, EVERY), Truth(None, None)

Number = Promql | float | None  # a float is a constant, None a number that nobody knows


@dataclass(frozen=True, slots=True)
class _Text:
    """A column of texts, or a constant."""

    column: str | None
    constant: str = ""


_Value = Number | Truth | _Text


def both(one: Promql | None, other: Promql | None) -> Promql | None:
    """Targets in both; None is nowhere, :data:`EVERY` everywhere."""
    if one is None or other is None:
        return None
    if one == EVERY or other == EVERY:
        return other if one == EVERY else one
    return _bounded(Binary(one, "and", other))


def either(one: Promql | None, other: Promql | None) -> Promql | None:
    """Targets in one of both."""
    if one is None or other is None:
        return other if one is None else one
    if EVERY in (one, other):
        return EVERY
    return _bounded(Binary(one, "or", other))


def without(one: Promql | None, other: Promql | None) -> Promql | None:
    """Targets in the first and not in the second."""
    if one is None or other is None:
        return one
    return None if other == EVERY else _bounded(Binary(one, "unless", other))


def truth_of(condition: Condition, columns: Mapping[str, Column] = BY_NAME) -> Truth:
    """A condition as PromQL over driftwatch's target metrics.

    Raises:
        CannotExport: two columns of texts are compared, or the query becomes too large.
    """
    if condition.false_when_unknown:
        raise CannotExport("columns that count as false where they are unknown")
    return _Visitor(columns).truth(tree_of(condition.text, columns))


def _bounded(query: Promql) -> Promql:
    if query.size > MOST_NODES:
        raise CannotExport(f"its PromQL has more than {MOST_NODES:,} parts; split the rule")
    return query


_ARITHMETIC: Mapping[type[exp.Expr], tuple[str, Callable[[float, float], float]]] = {
    exp.Add: ("+", operator.add),
    exp.Sub: ("-", operator.sub),
    exp.Mul: ("*", operator.mul),
    exp.Div: ("/", operator.truediv),
}
# sign, what is false where it is true, and the comparison of two constants
_COMPARISONS: Mapping[type[exp.Expr], tuple[str, str, Callable[[float, float], bool]]] = {
    exp.EQ: ("==", "!=", operator.eq),
    exp.NEQ: ("!=", "==", operator.ne),
    exp.LT: ("<", ">=", operator.lt),
    exp.LTE: ("<=", ">", operator.le),
    exp.GT: (">", "<=", operator.gt),
    exp.GTE: (">=", "<", operator.ge),
}


class _Visitor:
    """The nodes that :class:`driftwatch.condition.Condition` let through, as PromQL."""

    def __init__(self, columns: Mapping[str, Column]) -> None:
        self.columns = columns

    def truth(self, node: exp.Expr) -> Truth:
        match node:
            case exp.Paren():
                return self.truth(node.this)
            case exp.And() | exp.Or():
                one, other = self.truth(node.this), self.truth(node.expression)
                if isinstance(node, exp.Or):
                    return Truth(either(one.true, other.true), both(one.false, other.false))
                return Truth(both(one.true, other.true), either(one.false, other.false))
            case exp.Not():
                return self.truth(node.this).inverted()
            case exp.Is():
                is_known = self._where_known(self.value(node.this))
                return Truth(without(EVERY, is_known), is_known)
            case exp.Between():
                return self._between(node)
            case exp.In():
                subject = self.value(node.this)
                of_items = (
                    self._compared(subject, exp.EQ, self.value(i)) for i in node.expressions
                )
                return reduce(_or, of_items, NEVER)
        if type(node) in _COMPARISONS:
            return self._compared(self.value(node.this), type(node), self.value(node.expression))
        value = self.value(node)
        return value if isinstance(value, Truth) else _refuse(node)

    def value(self, node: exp.Expr) -> _Value:
        match node:
            case exp.Column():
                return self._column(node.name)
            case exp.Literal(is_string=True):
                return _Text(None, str(node.this))
            case exp.Literal():
                return float(node.this)
            case exp.Boolean():
                return ALWAYS if node.this else NEVER
            case exp.Paren():
                return self.value(node.this)
            case exp.Neg():
                inner = self._number(node.this)
                return -inner if isinstance(inner, float) else _negative(inner)
        if type(node) in _ARITHMETIC:
            return self._arithmetic(node)
        return self.truth(node)

    def _column(self, name: str) -> _Value:
        metric = Atom(f"{PREFIX}{name}")
        match self.columns[name].dtype:
            case "string":
                return _Text(name)
            case "bool":
                return Truth(Binary(metric, "==", Atom("1")), Binary(metric, "==", Atom("0")))
        return metric

    def _number(self, node: exp.Expr) -> Number:
        value = self.value(node)
        return _refuse(node) if isinstance(value, Truth | _Text) else value

    def _arithmetic(self, node: exp.Expr) -> Number:
        sign, of_constants = _ARITHMETIC[type(node)]
        one, other = self._number(node.this), self._number(node.expression)
        if one is None or other is None or (sign == "/" and other == 0):
            return None
        if isinstance(one, float) and isinstance(other, float):
            result = of_constants(one, other)
            return result if math.isfinite(result) else None
        query = _bounded(Binary(_operand(one), sign, _operand(other)))
        return query if _stays_finite(one, sign, other) else _finite(query)

    def _between(self, node: exp.Expr) -> Truth:
        subject = self.value(node.this)
        low, high = self.value(node.args["low"]), self.value(node.args["high"])
        above = self._compared(subject, exp.GTE, low)
        below = self._compared(subject, exp.LTE, high)
        return Truth(both(above.true, below.true), either(above.false, below.false))

    def _compared(self, one: _Value, kind: type[exp.Expr], other: _Value) -> Truth:
        sign, opposite, of_constants = _COMPARISONS[kind]
        if isinstance(one, _Text) and isinstance(other, _Text):
            equal = _texts(one, other)
            return equal if kind is exp.EQ else equal.inverted()
        if isinstance(one, Truth) and isinstance(other, Truth):
            same = either(both(one.true, other.true), both(one.false, other.false))
            differ = either(both(one.true, other.false), both(one.false, other.true))
            return Truth(same, differ) if kind is exp.EQ else Truth(differ, same)
        if isinstance(one, Truth | _Text) or isinstance(other, Truth | _Text):
            raise CannotExport("values of two types are compared")
        if one is None or other is None:
            return UNKNOWN
        if isinstance(one, float) and isinstance(other, float):
            return ALWAYS if of_constants(one, other) else NEVER
        one, other = _operand(one), _operand(other)
        return Truth(_bounded(Binary(one, sign, other)), _bounded(Binary(one, opposite, other)))

    def _where_known(self, value: _Value) -> Promql | None:
        """Where a value is known."""
        match value:
            case None:
                return None
            case float():
                return EVERY
            case _Text():
                return EVERY if value.column is None else _with_text(value.column, "")
            case Truth(Binary(Atom() as metric, "==", Atom("1"))):
                return metric
            case Truth():
                return either(value.true, value.false)
        return value


def _or(one: Truth, other: Truth) -> Truth:
    return Truth(either(one.true, other.true), both(one.false, other.false))


def _texts(one: _Text, other: _Text) -> Truth:
    """``=`` of texts."""
    if one.column is None and other.column is None:
        return ALWAYS if one.constant == other.constant else NEVER
    if one.column is not None and other.column is not None:
        raise CannotExport(f"{one.column} and {other.column} are texts: PromQL compares no labels")
    column, text = one.column or other.column or "", (one if one.column is None else other).constant
    return Truth(
        _with_text(column, f"{TEXT_LABEL}={quoted(text)}"),
        _with_text(column, f"{TEXT_LABEL}!={quoted(text)}"),
    )


def _with_text(column: str, matcher: str) -> Promql:
    """Targets whose text matches, without the label that carries it."""
    braces = f"{{{matcher}}}" if matcher else ""
    return Call(f"group without ({TEXT_LABEL})", Atom(f"{PREFIX}{column}{braces}"))


def quoted(text: str) -> str:
    """A text as PromQL writes it.

    >>> print(quoted('a"b'))
    "a\\"b"
    """
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def number_text(value: float) -> str:
    """A constant as PromQL reads it back to the same number.

    >>> number_text(900.0), number_text(0.95)
    ('900', '0.95')
    """
    return str(int(value)) if value.is_integer() and abs(value) < 1e15 else repr(value)


def _operand(value: Promql | float) -> Promql:
    return Atom(number_text(value)) if isinstance(value, float) else value


def _negative(inner: Promql | None) -> Promql | None:
    return None if inner is None else Call("-", inner)


def _stays_finite(one: Number, sign: str, other: Number) -> bool:
    """Whether it cannot overflow: a share of a finite number."""
    if sign == "*":
        return any(isinstance(each, float) and abs(each) <= 1 for each in (one, other))
    return sign == "/" and isinstance(other, float) and abs(other) >= 1


def _finite(query: Promql) -> Promql:
    """A result that is no number, as of a division by zero, is unknown."""
    return Call("", Binary(Binary(query, "<", Atom("Inf")), ">", Atom("-Inf")))


def _refuse(node: exp.Expr) -> NoReturn:
    raise CannotExport(f"{node.key.upper()} has no equal in PromQL")
