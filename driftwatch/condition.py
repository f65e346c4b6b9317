"""Predicates over the evidence table: the ``when`` of rules and tree nodes.

A condition is the WHERE part of an SQL query and nothing else: columns, literals, ``AND OR NOT``,
comparisons, ``BETWEEN``, ``IN``, ``IS [NOT] NULL``, ``+ - * /`` and parentheses; ``condition_text``
refuses the rest of SQL. Nothing is opened, read or run while parsing, which is why
``polars.sql_expr`` is not used: it opens files.

Truth is three-valued, as in SQL (Kleene): NULL is *unknown*. NaN, infinities and a division by
zero are NULL.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NoReturn

import polars as pl
from sqlglot import exp

from driftwatch.condition_text import ALLOWED, read_predicate, refuse, span_of
from driftwatch.evidence import BY_NAME, Column, DType


@dataclass(frozen=True, slots=True)
class Condition:
    """A predicate that was checked and can be evaluated over evidence frames."""

    text: str  # as the user wrote it
    columns: frozenset[str]  # the evidence columns it reads
    # Boolean, one value per row of the frame; NULL = unknown. Float columns have NaN and infinities
    # turned NULL first
    expression: pl.Expr = field(compare=False, repr=False)
    predicate: exp.Expr = field(compare=False, repr=False)  # the checked tree of ``text``
    # columns whose comparisons count as false where they are unknown
    false_when_unknown: frozenset[str] = frozenset()


def parse_condition(
    text: str,
    *,
    columns: Mapping[str, Column] = BY_NAME,
    false_when_unknown: Collection[str] = (),
) -> Condition:
    """Check a condition and make its Polars expression.

    Args:
        text: the predicate, at most 512 characters and 64 columns and literals.
        columns: the columns it may read, with their types.
        false_when_unknown: a comparison (or a bare boolean column) that reads one of these is
            FALSE instead of unknown; ``NOT IN`` and ``NOT BETWEEN`` are comparisons too.

    Raises:
        ConditionError: with 1-based line and column inside ``text`` and one of the codes
            ``empty``, ``too-long``, ``too-many-terms``, ``too-deep``, ``syntax``,
            ``not-allowed``, ``unknown-column``, ``type``, ``number``.
    """
    lenient = frozenset(false_when_unknown)
    if columns is BY_NAME:
        return _of_evidence(text, lenient)
    return _checked(text, columns, lenient)


@lru_cache(maxsize=1024)
def _of_evidence(text: str, lenient: frozenset[str]) -> Condition:
    """Rule files are read again and again, and say the same."""
    return _checked(text, BY_NAME, lenient)


def _checked(text: str, columns: Mapping[str, Column], lenient: frozenset[str]) -> Condition:
    predicate = read_predicate(text, columns)
    expression = _Builder(text, columns, lenient).truth(predicate)
    columns_read = frozenset(column.name for column in predicate.find_all(exp.Column))
    return Condition(text, columns_read, expression & _EVERY_ROW, predicate, lenient)


# As long as the frame: a constant has one row, and Polars 2.1 gives one for
# `literal == when(…).then(column)` where the whole column is NULL.
_EVERY_ROW = pl.repeat(True, pl.len(), dtype=pl.Boolean)
_LITERALS = exp.Literal | exp.Boolean
_TRUTHS = exp.Connector | exp.Not | exp.Predicate
_OPERATORS: Mapping[type[exp.Expr], Callable[[Any, Any], pl.Expr]] = {
    exp.Add: operator.add, exp.Sub: operator.sub, exp.Mul: operator.mul, exp.Div: operator.truediv,
    exp.EQ: operator.eq, exp.NEQ: operator.ne, exp.LT: operator.lt, exp.LTE: operator.le,
    exp.GT: operator.gt, exp.GTE: operator.ge,
}  # fmt: skip
_WORDS: Mapping[DType, str] = {
    "float": "a number",
    "bool": "true or false",
    "string": "text",
}
_DTYPES: Mapping[DType, type[pl.DataType]] = {
    "float": pl.Float64,
    "bool": pl.Boolean,
    "string": pl.String,
}


class _Builder:
    """The visitor: ``truth`` makes Boolean expressions, ``value`` any; other types are refused."""

    def __init__(self, text: str, schema: Mapping[str, Column], lenient: frozenset[str]) -> None:
        self.text, self.schema, self.lenient = text, schema, lenient

    def truth(self, node: exp.Expr) -> pl.Expr:
        """A Boolean expression, or a refusal of the node."""
        match node:
            case exp.Paren():
                return self.truth(node.this)
            case exp.And():
                return self.truth(node.this) & self.truth(node.expression)
            case exp.Or():
                return self.truth(node.this) | self.truth(node.expression)
            case exp.Not(this=exp.Between() | exp.In()):
                return self._settled(node, ~self._range(node.this))
            case exp.Not():
                return ~self.truth(node.this)
            case exp.Is(expression=exp.Null()):
                return self.value(self._unchained(node.this))[0].is_null()
            case exp.Between() | exp.In():
                return self._settled(node, self._range(node))
            case exp.Predicate() if type(node) in _OPERATORS:
                return self._settled(node, self._comparison(node))
        expression, kind = self.value(node)
        if kind != "bool":
            message = f"this is {_WORDS[kind]}, not a condition"
            self._fail(node, message, "type", "compare it with something")
        return self._settled(node, expression)

    def value(self, node: exp.Expr) -> tuple[pl.Expr, DType]:
        """An expression and its type, or a refusal of the node."""
        match node:
            case exp.Column():
                kind = self.schema[node.name].dtype
                # Cast: an evidence column that is NULL throughout may come without its type.
                column = pl.col(node.name).cast(_DTYPES[kind])
                return (_finite(column) if kind == "float" else column), kind
            case exp.Literal(is_string=True):
                return pl.lit(str(node.this), dtype=pl.String), "string"
            case exp.Literal():
                return pl.lit(float(node.this), dtype=pl.Float64), "float"
            case exp.Boolean():
                return pl.lit(bool(node.this), dtype=pl.Boolean), "bool"
            case exp.Paren():
                return self.value(node.this)
            case exp.Neg():
                return -self._number(node.this), "float"
            case exp.Add() | exp.Sub() | exp.Mul() | exp.Div():
                ends = self._number(node.this), self._number(node.expression)
                return _finite(_OPERATORS[type(node)](*ends)), "float"
        if isinstance(node, exp.Null) or (
            isinstance(node, exp.Is) and not isinstance(node.expression, exp.Null)
        ):
            help_text = "write IS NULL, IS NOT NULL, or ="
            self._fail(node, "IS is only for NULL", "not-allowed", help_text)
        return self.truth(node), "bool"

    def _number(self, node: exp.Expr) -> pl.Expr:
        expression, kind = self.value(node)
        if kind != "float":
            self._fail(node, f"a number is wanted here, this is {_WORDS[kind]}", "type")
        return expression

    def _comparison(self, node: exp.Expr) -> pl.Expr:
        (first, kind), (second, other) = (
            self.value(self._unchained(one)) for one in (node.this, node.expression)
        )
        self._same(node, kind, other)
        if kind != "float" and not isinstance(node, exp.EQ | exp.NEQ):
            self._fail(node, f"{_WORDS[kind]} has no order", "type", "write = or <>")
        return _OPERATORS[type(node)](first, second)

    def _range(self, node: exp.Expr) -> pl.Expr:
        """BETWEEN and IN."""
        subject, kind = self.value(self._unchained(node.this))
        if isinstance(node, exp.Between):
            self._same(node, kind, "float")
            low, high = self._number(node.args["low"]), self._number(node.args["high"])
            return (subject >= low) & (subject <= high)
        if not node.expressions:
            self._fail(node, "IN wants a list of literals in parentheses", "syntax", ALLOWED)
        result = pl.lit(False, dtype=pl.Boolean)
        for item in node.expressions:
            if not isinstance(item.this if isinstance(item, exp.Neg) else item, _LITERALS):
                self._fail(item, "IN takes literals only", "not-allowed", "use = and OR")
            literal, other = self.value(item)
            self._same(item, kind, other)
            result = result | (subject == literal)
        return result

    def _same(self, node: exp.Expr, kind: DType, other: DType) -> None:
        if kind != other:
            message = f"{_WORDS[kind]} is compared with {_WORDS[other]}"
            help_text = "text stands in single quotes, numbers do not"
            if "bool" in (kind, other):
                side = node.this if kind == "bool" else node.expression
                name = side.name if isinstance(side, exp.Column) else "the condition"
                help_text = f"write {name}, or NOT {name}"
            self._fail(node, message, "type", help_text)

    def _unchained(self, node: exp.Expr) -> exp.Expr:
        """``a < b < c`` and ``a = b IS NULL`` mean other things to other readers."""
        if isinstance(node, _TRUTHS):
            help_text = "join them with AND, or put one in parentheses"
            self._fail(node, "comparisons cannot be chained", "syntax", help_text)
        return node

    def _settled(self, node: exp.Expr, expression: pl.Expr) -> pl.Expr:
        """False instead of NULL where the node reads a lenient column."""
        if self.lenient.isdisjoint(column.name for column in node.find_all(exp.Column)):
            return expression
        return expression.fill_null(False)

    def _fail(
        self, node: exp.Expr, message: str, code: str, help_text: str | None = None
    ) -> NoReturn:
        """Refuse a node, as far as its first line."""
        start, end = span_of(node, self.text)
        end = min(end, f"{self.text}\n".index("\n", start))
        refuse(self.text, start, code, message, help_text, max(end - start, 1))


def _finite(expression: pl.Expr) -> pl.Expr:
    """NULL where a number is NaN or infinite; so is x / 0, 0 / 0 and an overflow."""
    return pl.when(expression.is_finite()).then(expression)
