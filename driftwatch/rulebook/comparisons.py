"""A condition as comparisons that all or any must hold."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import polars as pl
from sqlglot import exp

from driftwatch.condition import Condition, parse_condition


@dataclass(frozen=True, slots=True, eq=False)
class Comparison:
    """One comparison, a ``NOT`` before it inside."""

    columns: tuple[str, ...]  # in the order of the text
    truth: pl.Expr  # NULL = unknown


@dataclass(frozen=True, slots=True, eq=False)
class Joined:
    """Comparisons of which all, or any, must hold."""

    how: Literal["all", "any"]
    parts: tuple[Comparison | Joined, ...]


Part = Comparison | Joined


def parts_of(condition: Condition) -> Part:
    """The condition with every ``NOT`` inside a comparison."""
    return _part(condition.predicate, negated=False)


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
    text = node.sql()
    columns = tuple(dict.fromkeys(one.name for one in node.find_all(exp.Column, bfs=False)))
    condition = parse_condition(f"NOT ({text})" if negated else text)
    return Comparison(columns, condition.expression)
