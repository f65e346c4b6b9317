"""Predicates over the evidence table: the ``when`` of rules and tree nodes.

A condition is the WHERE part of an SQL query and nothing else: columns, literals, ``AND OR NOT``,
comparisons, ``BETWEEN``, ``IN``, ``IS [NOT] NULL``, ``+ - * /`` and parentheses. Two whitelists
stand between a user's text and Polars: every *token* is checked before sqlglot's parser sees it
(so no function, sub-select or alias can be built at all, and every refusal has a position), and
every *node* of the parsed tree is checked when it becomes a Polars expression. Nothing is opened,
read or run while parsing, which is why ``polars.sql_expr`` is not used: it opens files.

Truth is three-valued, as in SQL (Kleene): NULL is *unknown*. NaN, infinities and a division by
zero are NULL.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NoReturn

import polars as pl
from sqlglot import Token, TokenType, exp
from sqlglot.dialects.dialect import Dialect
from sqlglot.errors import SqlglotError

from driftwatch.errors import ConditionError
from driftwatch.evidence import BY_NAME, Column

MAX_CHARACTERS = 512
MAX_TERMS = 64  # columns and literals
MAX_DEPTH = 16  # parentheses, NOT and minus signs in a row: far below Python's recursion limit

_ALLOWED = (
    "a condition is columns, numbers, 'text', AND OR NOT, = <> < <= > >=, BETWEEN, IN, "
    "IS NULL, + - * / and parentheses"
)
_NUMBER = re.compile(r"(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?")

_LITERALS = {TokenType.NUMBER, TokenType.STRING, TokenType.TRUE, TokenType.FALSE}
_OPERANDS = _LITERALS | {TokenType.VAR, TokenType.NULL}
_ALLOWED_TOKENS = _OPERANDS | {
    TokenType.L_PAREN,
    TokenType.R_PAREN,
    TokenType.COMMA,
    TokenType.PLUS,
    TokenType.DASH,
    TokenType.STAR,
    TokenType.SLASH,
    TokenType.EQ,
    TokenType.NEQ,
    TokenType.LT,
    TokenType.LTE,
    TokenType.GT,
    TokenType.GTE,
    TokenType.AND,
    TokenType.OR,
    TokenType.NOT,
    TokenType.IS,
    TokenType.IN,
    TokenType.BETWEEN,
}
_INSTEAD = {
    "&&": "write AND",
    "||": "write OR",
    "==": "write =",
    ";": "a condition is one predicate",
    "<=>": "write = or IS NULL",
    "like": "write = or IN",
    "isnull": "write IS NULL",
    "notnull": "write IS NOT NULL",
    "select": "a condition reads the one evidence row and nothing else",
}


@dataclass(frozen=True, slots=True)
class Condition:
    """A predicate that was checked and can be evaluated over evidence frames.

    Attributes:
        text: as the user wrote it.
        columns: the evidence columns it reads.
        expression: Boolean, one value per row of the frame; NULL = unknown. Float columns have
            NaN and infinities turned NULL first.
        false_when_unknown: columns whose comparisons count as false where they are unknown.
    """

    text: str
    columns: frozenset[str]
    expression: pl.Expr = field(compare=False, repr=False)
    false_when_unknown: frozenset[str] = frozenset()


def parse_condition(
    text: str,
    *,
    known: Mapping[str, Column] = BY_NAME,
    false_when_unknown: Collection[str] = (),
) -> Condition:
    """Check a condition and make its Polars expression.

    Args:
        text: the predicate, at most 512 characters and 64 columns and literals.
        known: the columns it may read, with their types.
        false_when_unknown: a comparison (or a bare boolean column) that reads one of these is
            FALSE instead of unknown; ``NOT IN`` and ``NOT BETWEEN`` are comparisons too.

    Raises:
        ConditionError: with 1-based line and column inside ``text`` and one of the codes
            ``empty``, ``too-long``, ``too-many-terms``, ``too-deep``, ``syntax``,
            ``not-allowed``, ``unknown-column``, ``type``, ``number``.
    """
    if len(text) > MAX_CHARACTERS:
        raise ConditionError(
            f"the condition has {len(text):,} characters, at most {MAX_CHARACTERS} are allowed",
            code="too-long",
            line=1,
            column=1,
            help_text="split it into two rules, or ask for a column that says it",
        )
    tokens = _checked_tokens(text, known)
    lenient = frozenset(false_when_unknown)
    builder = _Builder(text, known, lenient)
    try:
        statements = Dialect.get_or_raise(None).parser().parse(tokens, text)
        tree = statements[0] if len(statements) == 1 else None
        if not isinstance(tree, exp.Expression):
            _refuse(text, 0, "this is not a condition", "syntax")
        expression = builder.truth(tree)
    except SqlglotError as error:
        raise _syntax_error(text, error) from None
    except RecursionError:
        _refuse(text, 0, "the condition is nested too deeply", "too-deep")
    if not builder.columns:
        # A constant: made as long as the frame, which a bare literal would not be.
        expression = pl.repeat(pl.select(expression).item(), pl.len(), dtype=pl.Boolean)
    return Condition(text, frozenset(builder.columns), expression, lenient)


def _refuse(
    text: str, offset: int, message: str, code: str, length: int = 1, help_text: str | None = None
) -> NoReturn:
    """Raise a ConditionError at a character offset of the text."""
    line = text.count("\n", 0, offset) + 1
    column = offset - (text.rfind("\n", 0, offset) + 1) + 1
    raise ConditionError(
        message, code=code, line=line, column=column, length=length, help_text=help_text
    )


def _syntax_error(text: str, error: SqlglotError) -> ConditionError:
    """What sqlglot says, without its markup, at the place it names (else at the end)."""
    details = getattr(error, "errors", None) or [{}]
    what = str(details[0].get("description") or error).split("\n")[0].rstrip(".")
    if "Required keyword" in what:
        what = "something is missing here"
    line, column = details[0].get("line"), details[0].get("col")
    lines = text.split("\n")
    if not isinstance(line, int) or not isinstance(column, int) or line > len(lines):
        line, column = len(lines), len(lines[-1])
    return ConditionError(
        what[0].lower() + what[1:],
        code="syntax",
        line=line,
        column=max(column, 1),
        help_text=_ALLOWED,
    )


# --- first whitelist: tokens ------------------------------------------------------------------


def _checked_tokens(text: str, known: Mapping[str, Column]) -> list[Token]:
    """Tokens of the text, each allowed where it stands; columns are known and plain names."""
    try:
        tokens = list(Dialect.get_or_raise(None).tokenize(text))
    except SqlglotError:
        quote = max(text.rfind(mark) for mark in "'\"`")
        _refuse(
            text, max(quote, 0), "this text is not closed", "syntax", help_text="add the closing '"
        )
    if not tokens:
        _refuse(text, 0, "the condition is empty", "empty", help_text=_ALLOWED)
    # A column may carry a name that is a keyword elsewhere in SQL.
    tokens = [_as_column(token) if token.text in known else token for token in tokens]
    depth = row = terms = 0
    for index, token in enumerate(tokens):
        before = tokens[index - 1] if index else None
        after = tokens[index + 1] if index + 1 < len(tokens) else None
        _check_token(text, token, before, after, known)
        kind = token.token_type
        depth += (kind is TokenType.L_PAREN) - (kind is TokenType.R_PAREN)
        row = row + 1 if kind in (TokenType.NOT, TokenType.DASH, TokenType.PLUS) else 0
        terms += kind in _OPERANDS
        if depth < 0:
            _refuse(text, token.start, "this parenthesis closes nothing", "syntax")
        if depth + row > MAX_DEPTH:
            _refuse(
                text, token.start, f"nested more than {MAX_DEPTH} deep", "too-deep", help_text=None
            )
        if terms > MAX_TERMS:
            _refuse(
                text,
                token.start,
                f"more than {MAX_TERMS} columns and literals",
                "too-many-terms",
                help_text="split it into two rules, or ask for a column that says it",
            )
    if depth:
        _refuse(text, len(text.rstrip()), "a parenthesis is not closed", "syntax")
    return tokens


def _as_column(token: Token) -> Token:
    if token.token_type in (TokenType.STRING, TokenType.IDENTIFIER):
        return token
    return Token(
        TokenType.VAR,
        text=token.text,
        line=token.line,
        col=token.col,
        start=token.start,
        end=token.end,
        comments=token.comments,
    )


def _check_token(
    text: str,
    token: Token,
    before: Token | None,
    after: Token | None,
    known: Mapping[str, Column],
) -> None:
    kind, start = token.token_type, token.start
    length = token.end - start + 1
    shown = text[start : start + length]
    ends_operand = before is not None and (
        before.token_type in _OPERANDS or before.token_type is TokenType.R_PAREN
    )
    if token.comments:
        _refuse(
            text,
            _comment_offset(text),
            "comments are not allowed inside a condition",
            "not-allowed",
            help_text="write it in the YAML file, after a #",
        )
    if kind is TokenType.IDENTIFIER:
        _refuse(
            text,
            start,
            "quoted names are not allowed",
            "not-allowed",
            length,
            "columns are written plainly, text in single quotes: 'kv_cache'",
        )
    if kind is TokenType.VAR and ends_operand:
        _refuse(
            text,
            start,
            f"{shown} is left over after the condition",
            "syntax",
            length,
            "join comparisons with AND or OR",
        )
    if kind not in _ALLOWED_TOKENS or shown == "==":
        _refuse(
            text,
            start,
            f"{shown} is not allowed in a condition",
            "not-allowed",
            length,
            _INSTEAD.get(shown.lower(), _ALLOWED),
        )
    if kind is TokenType.VAR:
        if after is not None and after.token_type is TokenType.L_PAREN:
            _refuse(
                text,
                start,
                f"functions are not allowed: {shown}",
                "not-allowed",
                length,
                "conditions read columns; see driftwatch evidence",
            )
        if shown not in known:
            close = difflib.get_close_matches(shown, known, n=1)
            _refuse(
                text,
                start,
                shown,
                "unknown-column",
                length,
                f"did you mean {close[0]}?" if close else "driftwatch evidence lists the columns",
            )
    if (kind in _OPERANDS or kind is TokenType.L_PAREN) and ends_operand:
        _refuse(
            text,
            start,
            f"{shown} is left over: an operator is missing before it",
            "syntax",
            length,
            "join comparisons with AND or OR",
        )
    if kind is TokenType.STAR and not ends_operand:
        _refuse(text, start, "* stands for no column here", "not-allowed", length, _ALLOWED)
    if kind is TokenType.NULL and not _after_is(text, start):
        _refuse(
            text,
            start,
            "NULL can only be asked for",
            "not-allowed",
            length,
            "write IS NULL or IS NOT NULL",
        )
    if kind is TokenType.NUMBER and not (_NUMBER.fullmatch(shown) and math.isfinite(float(shown))):
        _refuse(text, start, f"{shown} is not a number", "number", length)


def _comment_offset(text: str) -> int:
    found = [text.find(mark) for mark in ("--", "/*") if mark in text]
    return min(found, default=0)


def _after_is(text: str, start: int) -> bool:
    return re.search(r"\bis(\s+not)?\s*$", text[:start], re.IGNORECASE) is not None


# --- second whitelist: the parsed tree becomes a Polars expression ------------------------------

_Kind = Literal["float", "bool", "string", "time"]
_WORDS: Mapping[_Kind, str] = {
    "float": "a number",
    "bool": "true or false",
    "string": "text",
    "time": "a time",
}
_DTYPES: Mapping[_Kind, type[pl.DataType]] = {
    "float": pl.Float64,
    "bool": pl.Boolean,
    "string": pl.String,
}


class _Builder:
    """One visitor: ``truth`` makes Boolean expressions, ``value`` numbers and text."""

    def __init__(self, text: str, known: Mapping[str, Column], lenient: frozenset[str]) -> None:
        self.text = text
        self.known = known
        self.lenient = lenient
        self.columns: set[str] = set()

    def truth(self, node: exp.Expression) -> pl.Expr:
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
            case exp.Is():
                kind = "bool" if self._is_truth(node.this) else None
                inner = self.truth(node.this) if kind else self.value(node.this)[0]
                if not isinstance(node.expression, exp.Null):
                    self._fail(node, "only IS NULL and IS NOT NULL are allowed", "not-allowed")
                return inner.is_null()
            case exp.Between() | exp.In():
                return self._settled(node, self._range(node))
            case exp.EQ() | exp.NEQ() | exp.LT() | exp.LTE() | exp.GT() | exp.GTE():
                return self._settled(node, self._comparison(node))
            case exp.Boolean():
                return pl.lit(bool(node.this), dtype=pl.Boolean)
            case exp.Column():
                expression, kind_of = self.value(node)
                if kind_of != "bool":
                    self._fail(
                        node,
                        f"{node.name} is {_WORDS[kind_of]}, not a condition",
                        "type",
                        "compare it with something",
                    )
                return self._settled(node, expression)
            case _:
                self._fail(node, "this is not a condition", "type", "compare it with something")

    def value(self, node: exp.Expression) -> tuple[pl.Expr, _Kind]:
        match node:
            case exp.Paren():
                return self.value(node.this)
            case exp.Column(this=exp.Identifier(quoted=False)) if len(node.parts) == 1:
                return self._column(node)
            case exp.Literal(is_string=True):
                return pl.lit(str(node.this), dtype=pl.String), "string"
            case exp.Literal():
                return pl.lit(float(node.this), dtype=pl.Float64), "float"
            case exp.Boolean():
                return pl.lit(bool(node.this), dtype=pl.Boolean), "bool"
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
            case _ if self._is_truth(node):
                return self.truth(node), "bool"
            case _:
                self._fail(node, f"{node.key.upper()} is not allowed here", "not-allowed", _ALLOWED)

    def _column(self, node: exp.Column) -> tuple[pl.Expr, _Kind]:
        name = node.name
        self.columns.add(name)
        kind = self.known[name].dtype
        column = pl.col(name)
        if kind in _DTYPES:
            # An evidence column that is NULL throughout may come without its type.
            column = column.cast(_DTYPES[kind])
        return (_finite(column) if kind == "float" else column), kind

    def _number(self, node: exp.Expression) -> pl.Expr:
        expression, kind = self.value(node)
        if kind != "float":
            self._fail(node, f"{_WORDS[kind]} cannot be calculated with", "type")
        return expression

    def _comparison(self, node: exp.Expression) -> pl.Expr:
        left_node, right_node = node.this, node.expression
        for side in (left_node, right_node):
            if self._is_truth(side) and not isinstance(side, exp.Paren):
                self._fail(
                    side,
                    "comparisons cannot be chained",
                    "syntax",
                    "join them with AND, or put one in parentheses",
                )
        (left, kind), (right, other) = self.value(left_node), self.value(right_node)
        self._same(node, kind, other)
        match node:
            case exp.EQ():
                return left == right
            case exp.NEQ():
                return left != right
        if kind != "float":
            self._fail(node, f"{_WORDS[kind]} has no order", "type", "write = or <>")
        match node:
            case exp.LT():
                return left < right
            case exp.LTE():
                return left <= right
            case exp.GT():
                return left > right
            case _:
                return left >= right

    def _range(self, node: exp.Expression) -> pl.Expr:
        """BETWEEN and IN."""
        subject, kind = self.value(node.this)
        if isinstance(node, exp.Between):
            bounds = (self._number(node.args["low"]), self._number(node.args["high"]))
            self._same(node, kind, "float")
            if node.args.get("symmetric"):
                self._fail(node, "SYMMETRIC is not allowed", "not-allowed")
            return (subject >= bounds[0]) & (subject <= bounds[1])
        items: Sequence[exp.Expression] = node.expressions
        others = set(node.args) - {"this", "expressions"}
        if not items or any(node.args.get(name) is not None for name in others):
            self._fail(node, "IN wants a list of literals in parentheses", "syntax")
        result = pl.lit(False, dtype=pl.Boolean)
        for item in items:
            plain = item.this if isinstance(item, exp.Neg) else item
            if not isinstance(plain, exp.Literal | exp.Boolean):
                self._fail(item, "IN takes literals only", "not-allowed", "use = and OR")
            literal, other = self.value(item)
            self._same(node, kind, other)
            result = result | (subject == literal)
        return result

    def _same(self, node: exp.Expression, kind: _Kind, other: _Kind) -> None:
        if kind == "time" or other == "time":
            self._fail(node, "a time can only be asked for with IS NULL", "type")
        if kind != other:
            self._fail(
                node,
                f"{_WORDS[kind]} is compared with {_WORDS[other]}",
                "type",
                "text stands in single quotes, numbers do not",
            )

    def _settled(self, node: exp.Expression, expression: pl.Expr) -> pl.Expr:
        """False instead of NULL where the node reads a lenient column."""
        if self.lenient and any(c.name in self.lenient for c in node.find_all(exp.Column)):
            return expression.fill_null(False)
        return expression

    def _is_truth(self, node: exp.Expression) -> bool:
        while isinstance(node, exp.Paren):
            node = node.this
        return isinstance(
            node,
            exp.And | exp.Or | exp.Not | exp.Is | exp.Between | exp.In
            | exp.EQ | exp.NEQ | exp.LT | exp.LTE | exp.GT | exp.GTE,
        )  # fmt: skip

    def _fail(
        self, node: exp.Expression, message: str, code: str, help_text: str | None = None
    ) -> NoReturn:
        """Refuse a node, at the first place below it whose position sqlglot kept."""
        spans = [
            (part.meta["start"], part.meta["end"])
            for part in node.walk()
            if isinstance(part.meta.get("start"), int) and isinstance(part.meta.get("end"), int)
        ]
        start, end = min(spans, default=(0, 0))
        _refuse(self.text, start, message, code, end - start + 1, help_text)


def _finite(expression: pl.Expr) -> pl.Expr:
    """NULL where a number is NaN or infinite; so is x / 0, 0 / 0 and an overflow."""
    return pl.when(expression.is_finite()).then(expression)
