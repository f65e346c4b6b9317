"""A condition as comparisons that all or any must hold: in words, and how far each is from it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import reduce
from typing import Literal

import polars as pl
from sqlglot import exp

from driftwatch.condition import Condition, parse_condition
from driftwatch.evidence import BY_NAME

# What an unknown comparison counts beside false ones, which count 1 and a little by distance.
_UNKNOWN_COST = 2.0
_LIGHT = 0.01


@dataclass(frozen=True, slots=True, eq=False)
class Comparison:
    """One comparison; ``NOT`` is in its words."""

    subject: str  # what is compared: a column, or arithmetic
    wanted: str  # with what: ``below 0.8``
    columns: tuple[str, ...]  # in the order of the text
    truth: pl.Expr  # NULL = unknown
    # how far numbers are from the threshold over the threshold; 1 where they are no numbers
    distance: pl.Expr

    @property
    def cost(self) -> pl.Expr:
        """0 where it holds; where it does not, 1 and up to 0.01 by its distance."""
        light = 1.0 + _LIGHT * self.distance.fill_null(1.0).clip(0.0, 1.0)
        return pl.when(self.truth).then(0.0).when(~self.truth).then(light).otherwise(_UNKNOWN_COST)


@dataclass(frozen=True, slots=True, eq=False)
class Joined:
    """Comparisons of which all, or any, must hold."""

    how: Literal["all", "any"]
    parts: tuple[Comparison | Joined, ...]

    @property
    def cost(self) -> pl.Expr:
        """How many comparisons fail, the least of an ``any``; the lightest where as many do."""
        costs = [part.cost for part in self.parts]
        return reduce(lambda a, b: a + b, costs) if self.how == "all" else pl.min_horizontal(costs)


Part = Comparison | Joined


def parts_of(condition: Condition) -> Part:
    """The condition with every ``NOT`` inside a comparison."""
    return _part(condition.predicate, negated=False)


def comparisons(part: Part) -> Iterator[Comparison]:
    """Every comparison, in the order of the text."""
    if isinstance(part, Comparison):
        yield part
        return
    for one in part.parts:
        yield from comparisons(one)


def failing(part: Part, row: pl.DataFrame) -> list[Comparison]:
    """What would have to change for one row: of an ``any`` the part that is nearest."""
    if isinstance(part, Comparison):
        return [] if row.select(part.truth).item() else [part]
    if part.how == "all":
        return [one for inner in part.parts for one in failing(inner, row)]
    return failing(min(part.parts, key=lambda one: float(row.select(one.cost).item())), row)


_COMPARED: dict[type[exp.Expr], tuple[str, type[exp.Expr], type[exp.Expr]]] = {
    # words, negated, with its sides swapped
    exp.GT: ("above", exp.LTE, exp.LT),
    exp.GTE: ("at least", exp.LT, exp.LTE),
    exp.LT: ("below", exp.GTE, exp.GT),
    exp.LTE: ("at most", exp.GT, exp.GTE),
    exp.EQ: ("equal to", exp.NEQ, exp.EQ),
    exp.NEQ: ("other than", exp.EQ, exp.NEQ),
}


def _part(node: exp.Expr, *, negated: bool) -> Part:
    match node:
        case exp.Paren():
            return _part(node.this, negated=negated)
        case exp.Not():
            return _part(node.this, negated=not negated)
        case exp.And() | exp.Or():
            how: Literal["all", "any"] = "all" if isinstance(node, exp.And) != negated else "any"
            parts: list[Part] = []
            for side in (node.this, node.expression):
                part = _part(side, negated=negated)
                parts += part.parts if isinstance(part, Joined) and part.how == how else (part,)
            return Joined(how, tuple(parts))
    return _comparison(node, negated=negated)


def _comparison(node: exp.Expr, *, negated: bool) -> Comparison:
    subject, wanted, distance = _words(node, negated)
    text = node.sql()
    condition = parse_condition(f"NOT ({text})" if negated else text)
    columns = tuple(dict.fromkeys(one.name for one in node.find_all(exp.Column, bfs=False)))
    return Comparison(subject, wanted, columns, condition.expression, distance)


def _words(node: exp.Expr, negated: bool) -> tuple[str, str, pl.Expr]:
    """What is compared, with what, and the distance."""
    far = pl.lit(1.0)
    match node:
        case exp.GT() | exp.GTE() | exp.LT() | exp.LTE() | exp.EQ() | exp.NEQ():
            kind: type[exp.Expr] = type(node)
            subject, limit = node.this, node.expression
            if subject.find(exp.Column) is None:
                kind, subject, limit = _COMPARED[kind][2], limit, subject
            kind = _COMPARED[kind][1] if negated else kind
            is_number = _is_number(subject)
            distance = _distance(_value(subject), _value(limit)) if is_number else far
            words = f"{_COMPARED[kind][0]} {limit.sql()}{_unit(subject, limit)}"
            return subject.sql(), words, distance
        case exp.Between():
            low, high = node.args["low"], node.args["high"]
            value = _value(node.this)
            nearest = pl.min_horizontal(_distance(value, _value(b)) for b in (low, high))
            words = f"{'outside' if negated else 'between'} {low.sql()} and {high.sql()}"
            return node.this.sql(), f"{words}{_unit(node.this, high)}", nearest
        case exp.In():
            named = ", ".join(item.sql() for item in node.expressions)
            return node.this.sql(), f"{'none' if negated else 'one'} of {named}", far
        case exp.Is():
            return node.this.sql(), "not unknown" if negated else "unknown", far
    return node.sql(), "false" if negated else "true", far


def unit_text(unit: str) -> str:
    """A unit behind a number.

    >>> unit_text("seconds"), unit_text("1/s"), unit_text("requests"), unit_text("1")
    (' s', '/s', ' requests', '')
    """
    return {"1": "", "seconds": " s", "1/s": "/s"}.get(unit, f" {unit}")


def _is_number(node: exp.Expr) -> bool:
    return all(BY_NAME[one.name].dtype == "float" for one in node.find_all(exp.Column))


def _unit(subject: exp.Expr, limit: exp.Expr) -> str:
    """The column's unit behind a number, where it has one."""
    if not isinstance(subject, exp.Column) or limit.find(exp.Column) is not None:
        return ""
    column = BY_NAME[subject.name]
    return unit_text(column.unit) if column.dtype == "float" else ""


def _distance(value: pl.Expr, threshold: pl.Expr) -> pl.Expr:
    away = (value - threshold).abs()
    return pl.when(threshold == 0).then(away).otherwise(away / threshold.abs())


def _value(node: exp.Expr) -> pl.Expr:
    """Arithmetic that :func:`driftwatch.condition.parse_condition` has checked."""
    match node:
        case exp.Column():
            return pl.col(node.name).cast(pl.Float64)
        case exp.Paren():
            return _value(node.this)
        case exp.Neg():
            return -_value(node.this)
        case exp.Add():
            return _value(node.this) + _value(node.expression)
        case exp.Sub():
            return _value(node.this) - _value(node.expression)
        case exp.Mul():
            return _value(node.this) * _value(node.expression)
        case exp.Div():
            return _value(node.this) / _value(node.expression)
    return pl.lit(float(node.this))
