"""Predicates over the evidence table: the ``when`` of rules and tree nodes.

A condition is the WHERE part of an SQL query and nothing else: columns, literals, ``AND OR NOT``,
comparisons, ``BETWEEN``, ``IN``, ``IS [NOT] NULL``, ``+ - * /`` and parentheses. Two whitelists
stand between a user's text and Polars: every *token* is checked before sqlglot's parser sees it
(``condition_text``), and every *node* of the parsed tree when it becomes a Polars expression.
Nothing is opened, read or run while parsing, which is why ``polars.sql_expr`` is not used: it
opens files.

Truth is three-valued, as in SQL (Kleene): NULL is *unknown*. NaN, infinities and a division by
zero are NULL.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NoReturn

import polars as pl
from sqlglot import exp
from sqlglot.errors import SqlglotError

from driftwatch.condition_text import ALLOWED, SQL, read_tokens, refuse
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
    builder = _Builder(text, columns, lenient)
    try:
        predicate = _only(SQL.parser().parse(read_tokens(text, columns), text))
        expression = builder.truth(predicate)
    except (SqlglotError, RecursionError, ValueError) as error:
        refuse(text, 0, "syntax", f"this is not a condition ({type(error).__name__})", ALLOWED)
    columns_read = frozenset(builder.columns)
    return Condition(text, columns_read, expression & _EVERY_ROW, predicate, lenient)


def _only(statements: list[exp.Expr | None]) -> exp.Expr:
    if len(statements) != 1 or statements[0] is None:
        raise ValueError(f"{len(statements)} statements")
    return statements[0]


# As long as the frame: a constant has one row, and Polars 2.1 gives one for
# `literal == when(…).then(column)` where the whole column is NULL.
_EVERY_ROW = pl.repeat(True, pl.len(), dtype=pl.Boolean)
_LITERALS = exp.Literal | exp.Boolean
_TRUTHS = (
    exp.And | exp.Or | exp.Not | exp.Is | exp.Between | exp.In
    | exp.EQ | exp.NEQ | exp.LT | exp.LTE | exp.GT | exp.GTE
)  # fmt: skip
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
    """The visitor: ``truth`` makes Boolean expressions, ``value`` any; the rest is refused."""

    def __init__(self, text: str, schema: Mapping[str, Column], lenient: frozenset[str]) -> None:
        self.text = text
        self.schema = schema
        self.lenient = lenient
        self.columns: set[str] = set()

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
                self._unchained(node.this)
                return self.value(node.this)[0].is_null()
            case exp.Between() | exp.In():
                return self._settled(node, self._range(node))
            case exp.EQ() | exp.NEQ() | exp.LT() | exp.LTE() | exp.GT() | exp.GTE():
                return self._settled(node, self._comparison(node))
        expression, kind = self.value(node)
        if kind != "bool":
            message = f"this is {_WORDS[kind]}, not a condition"
            self._fail(node, message, "type", "compare it with something")
        return self._settled(node, expression)

    def value(self, node: exp.Expr) -> tuple[pl.Expr, DType]:
        """An expression and its type, or a refusal of the node."""
        match node:
            case exp.Column(this=exp.Identifier(quoted=False)) if len(node.parts) == 1:
                return self._column(node.name)
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
            case exp.Add():
                return _finite(self._number(node.this) + self._number(node.expression)), "float"
            case exp.Sub():
                return _finite(self._number(node.this) - self._number(node.expression)), "float"
            case exp.Mul():
                return _finite(self._number(node.this) * self._number(node.expression)), "float"
            case exp.Div():
                return _finite(self._number(node.this) / self._number(node.expression)), "float"
        if isinstance(node, _TRUTHS):
            return self.truth(node), "bool"
        self._fail(node, f"{node.key.upper()} is not allowed here", "not-allowed", ALLOWED)

    def _column(self, name: str) -> tuple[pl.Expr, DType]:
        self.columns.add(name)
        kind = self.schema[name].dtype
        # Cast: an evidence column that is NULL throughout may come without its type.
        column = pl.col(name).cast(_DTYPES[kind])
        return (_finite(column) if kind == "float" else column), kind

    def _number(self, node: exp.Expr) -> pl.Expr:
        expression, kind = self.value(node)
        if kind != "float":
            self._fail(node, f"a number is wanted here, this is {_WORDS[kind]}", "type")
        return expression

    def _comparison(self, node: exp.Expr) -> pl.Expr:
        self._unchained(node.this)
        self._unchained(node.expression)
        (first, kind), (second, other) = self.value(node.this), self.value(node.expression)
        self._same(node, kind, other)
        match node:
            case exp.EQ():
                return first == second
            case exp.NEQ():
                return first != second
        if kind != "float":
            self._fail(node, f"{_WORDS[kind]} has no order", "type", "write = or <>")
        match node:
            case exp.LT():
                return first < second
            case exp.LTE():
                return first <= second
            case exp.GT():
                return first > second
        return first >= second

    def _range(self, node: exp.Expr) -> pl.Expr:
        """BETWEEN and IN."""
        self._unchained(node.this)
        subject, kind = self.value(node.this)
        if isinstance(node, exp.Between):
            self._same(node, kind, "float")
            low, high = self._number(node.args["low"]), self._number(node.args["high"])
            return (subject >= low) & (subject <= high)
        result = pl.lit(False, dtype=pl.Boolean)
        for item in node.expressions:
            if not isinstance(item.this if isinstance(item, exp.Neg) else item, _LITERALS):
                self._fail(item, "IN takes literals only", "not-allowed", "use = and OR")
            literal, other = self.value(item)
            self._same(item, kind, other)
            result = result | (subject == literal)
        return result

    def _same(self, node: exp.Expr, kind: DType, other: DType) -> None:
        if "time" in (kind, other):
            self._fail(node, "a time can only be asked for with IS NULL", "type")
        if kind != other:
            message = f"{_WORDS[kind]} is compared with {_WORDS[other]}"
            self._fail(node, message, "type", "text stands in single quotes, numbers do not")

    def _unchained(self, node: exp.Expr) -> None:
        """``a < b < c`` and ``a = b IS NULL`` mean other things to other readers."""
        if isinstance(node, _TRUTHS):
            help_text = "join them with AND, or put one in parentheses"
            self._fail(node, "comparisons cannot be chained", "syntax", help_text)

    def _settled(self, node: exp.Expr, expression: pl.Expr) -> pl.Expr:
        """False instead of NULL where the node reads a lenient column."""
        if self.lenient and any(
            column.name in self.lenient for column in node.find_all(exp.Column)
        ):
            return expression.fill_null(False)
        return expression

    def _fail(
        self, node: exp.Expr, message: str, code: str, help_text: str | None = None
    ) -> NoReturn:
        """Refuse a node, from the first to the last place below it that sqlglot kept."""
        spans = [
            (part.meta["start"], part.meta["end"] + 1)
            for part in node.walk()
            if isinstance(part.meta.get("start"), int) and isinstance(part.meta.get("end"), int)
        ]
        start = min((first for first, _ in spans), default=0)
        end = max((last for _, last in spans), default=1)
        end = min(end, f"{self.text}\n".index("\n", start))
        refuse(self.text, start, code, message, help_text, max(end - start, 1))


def _finite(expression: pl.Expr) -> pl.Expr:
    """NULL where a number is NaN or infinite; so is x / 0, 0 / 0 and an overflow."""
    return pl.when(expression.is_finite()).then(expression)
