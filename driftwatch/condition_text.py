"""The text of a condition → sqlglot's tree of it, or an error with its position.

What a condition may not contain is refused token by token, before sqlglot's parser, and node by
node behind it, as that parser is lenient (``a > 1 garbage`` is an alias there).
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Collection
from typing import NoReturn

from sqlglot import Token, TokenType, exp
from sqlglot.dialects.dialect import Dialect
from sqlglot.errors import ParseError, SqlglotError

from driftwatch.errors import ConditionError

MAX_CHARACTERS = 512
MAX_TERMS = 64  # columns and literals
MAX_DEPTH = 16  # of parentheses, and of NOTs or signs in a row: below Python's recursion limit

ALLOWED = (
    "a condition is columns, numbers, 'text', AND OR NOT, = <> < <= > >=, BETWEEN, IN, "
    "IS NULL, + - * / and parentheses"
)
_SMALLER = "split it into two rules, or ask for a column that says it"
_INSTEAD = {
    ".": "write 0.5 for .5; columns have no table before them",
    "!": "write NOT",
    "&&": "write AND",
    "||": "write OR",
    "==": "write =",
    ";": "a condition is one predicate",
    "<=>": "write = or IS NULL",
    "like": "write = or IN",
    "isnull": "write IS NULL",
    "notnull": "write IS NOT NULL",
    "select": "a condition reads one evidence row and nothing else",
}
_SQL = Dialect.get_or_raise(None)
_NUMBER = re.compile(r"\d+(\.\d*)?([eE][+-]?\d+)?")

_FREE_TEXT = {TokenType.NUMBER, TokenType.STRING, TokenType.VAR}
_OPERANDS = _FREE_TEXT | {TokenType.TRUE, TokenType.FALSE}
_PREFIXES = {TokenType.NOT, TokenType.DASH, TokenType.PLUS}
# sqlglot reads more spellings than these as the same token ("!" for NOT, "==" for "=").
_SPELLINGS = frozenset(("(", ")", ",", "+", "-", "*", "/", "=", "<>", "!=", "<", "<=", ">", ">="))
_WORDS = frozenset(("AND", "OR", "NOT", "IS", "IN", "BETWEEN", "NULL", "TRUE", "FALSE"))
_NODES = (
    exp.And, exp.Or, exp.Not, exp.Is, exp.Between, exp.In, exp.Paren, exp.Column, exp.Identifier,
    exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.Add, exp.Sub, exp.Mul, exp.Div, exp.Neg,
    exp.Literal, exp.Boolean, exp.Null,
)  # fmt: skip


def position(text: str, offset: int) -> tuple[int, int]:
    """1-based line and column of a character offset."""
    return text.count("\n", 0, offset) + 1, offset - text.rfind("\n", 0, offset)


def refusal(
    text: str, offset: int, code: str, message: str, help_text: str | None = None, length: int = 1
) -> ConditionError:
    """What is wrong at a character offset of the text (its end is a place too)."""
    line, column = position(text, offset)
    return ConditionError(
        message, code=code, line=line, column=column, length=length, help_text=help_text
    )


def refuse(
    text: str, offset: int, code: str, message: str, help_text: str | None = None, length: int = 1
) -> NoReturn:
    """Raise it."""
    raise refusal(text, offset, code, message, help_text, length)


def read_predicate(text: str, columns: Collection[str]) -> exp.Expr:
    """The tree of the text; it has only nodes of a condition, and columns that exist.

    Raises:
        ConditionError: ``empty``, ``too-long``, ``too-many-terms``, ``too-deep``, ``syntax``,
            ``not-allowed``, ``unknown-column`` or ``number``.
    """
    tokens = _tokens(text, columns)
    try:
        tree, *more = _SQL.parser(error_message_context=MAX_CHARACTERS).parse(tokens, text)
    except ParseError as error:
        _refuse_order(text, **error.errors[0])
    except (SqlglotError, RecursionError, ValueError) as error:
        refuse(text, 0, "syntax", f"this is not a condition ({type(error).__name__})", ALLOWED)
    if tree is None or more:
        refuse(text, 0, "syntax", "this is not a condition", ALLOWED)
    for node in tree.walk():
        if isinstance(node, exp.Alias | exp.Aliases):
            start, end = span_of(node.args.get("alias") or node.expressions[0], text)
            message = f"{text[start:end]} is left over"
            refuse(text, start, "syntax", message, "join comparisons with AND or OR", end - start)
        is_keyword = isinstance(node, exp.Column) and node.name not in columns
        if is_keyword or not isinstance(node, _NODES):
            start, end = span_of(node, text)
            refuse(text, start, "syntax", "this is not a condition", ALLOWED, end - start)
    return tree


def span_of(node: exp.Expr, text: str) -> tuple[int, int]:
    """From the first to behind the last place at or below a node that sqlglot kept, a sign too."""
    places = [one.meta for one in node.walk() if isinstance(one.meta.get("start"), int)]
    starts, ends = [one["start"] for one in places], [one["end"] + 1 for one in places]
    start = min(starts, default=0)
    before = text[:start].rstrip() if node.find(exp.Neg) else ""
    return len(before) - 1 if before.endswith("-") else start, max(ends, default=1)


def _refuse_order(
    text: str, *, description: str, start_context: str, highlight: str, **_: object
) -> NoReturn:
    """A token that does not stand where it can, as sqlglot names it."""
    start, help_text, rest = len(start_context), ALLOWED, text[len(start_context + highlight) :]
    if description.startswith("Invalid expression"):
        message = f"{highlight} is left over"
        help_text = (
            "add ( or leave it out" if highlight == ")" else "join comparisons with AND or OR"
        )
    elif "'high'" in description:
        message, help_text = "BETWEEN wants two bounds", "write x BETWEEN 1 AND 2"
    elif rest.strip() or "'this'" in description:
        message = f"something is wrong at {highlight}"
    else:
        start, highlight = len(text.rstrip()), " "
        is_open = description == "Expecting )"
        message = "a parenthesis is not closed" if is_open else "something is missing at the end"
    refuse(text, start, "syntax", message, help_text, len(highlight))


def _tokens(text: str, columns: Collection[str]) -> list[Token]:
    """Tokens of the text, each of a kind that a condition has."""
    if len(text) > MAX_CHARACTERS:
        most = f"at most {MAX_CHARACTERS} are allowed"
        message = f"the condition has {len(text):,} characters, {most}"
        refuse(text, 0, "too-long", message, _SMALLER)
    try:
        tokens = _SQL.tokenize(text)
    except SqlglotError:
        quote = max(text.rfind(mark) for mark in "'\"")
        refuse(text, max(quote, 0), "syntax", "this text is not closed", "add the closing quote")
    if not tokens:
        refuse(text, 0, "empty", "the condition is empty", ALLOWED)
    # A column may carry a name that is a keyword elsewhere in SQL.
    tokens = [_as_column(token) if token.text in columns else token for token in tokens]
    kinds = [None, *(token.token_type for token in tokens), None]
    terms = opened = signs = 0
    for token, before, kind, following in zip(tokens, kinds, kinds[1:], kinds[2:], strict=False):
        _check_token(text, token, (before, following), columns)
        terms += kind in _OPERANDS
        opened += (kind is TokenType.L_PAREN) - (kind is TokenType.R_PAREN)
        signs = signs + 1 if kind in _PREFIXES else 0
        if terms > MAX_TERMS:
            message = f"more than {MAX_TERMS} columns and literals"
            refuse(text, token.start, "too-many-terms", message, _SMALLER)
        if max(opened, signs) > MAX_DEPTH:
            message = f"nested more than {MAX_DEPTH} deep"
            refuse(text, token.start, "too-deep", message, _SMALLER)
    _check_names(text, tokens, columns)
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
    text: str, token: Token, beside: tuple[TokenType | None, ...], columns: Collection[str]
) -> None:
    """Refuse a token that may stand nowhere in a condition, or not ``beside`` these two."""
    kind, start, (before, following) = token.token_type, token.start, beside
    spelling = text[start : token.end + 1]

    def no(message: str, help_text: str = ALLOWED) -> NoReturn:
        refuse(text, start, "not-allowed", message, help_text, len(spelling))

    if token.comments:
        offset = min(text.find(mark) for mark in ("--", "/*") if mark in text)
        message = "comments are not allowed inside a condition"
        refuse(text, offset, "not-allowed", message, "write it in the YAML file, after a #", 2)
    if kind is TokenType.IDENTIFIER:
        help_text = "columns are written plainly, text in single quotes: 'kv_cache'"
        no("quoted names are not allowed", help_text)
    if kind not in _FREE_TEXT and spelling.upper() not in _SPELLINGS | _WORDS:
        help_text = _INSTEAD.get(spelling.lower(), ALLOWED)
        no(f"{spelling} is not allowed in a condition", help_text)
    if kind is TokenType.IS and following not in (TokenType.NULL, TokenType.NOT):
        no("IS is only for NULL", "write IS NULL, IS NOT NULL, or =")
    if kind is TokenType.NULL and before not in (TokenType.IS, TokenType.NOT):
        no("nothing equals NULL: it is unknown", "write IS NULL or IS NOT NULL")
    is_number = _NUMBER.fullmatch(spelling) and math.isfinite(float(spelling))
    if kind is TokenType.NUMBER and not is_number:
        refuse(text, start, "number", f"{spelling} is not a number", None, len(spelling))
    if kind is TokenType.VAR and following is TokenType.L_PAREN and spelling not in columns:
        help_text = "conditions read columns; driftwatch evidence lists them"
        no(f"functions are not allowed: {spelling}", help_text)


def _check_names(text: str, tokens: list[Token], columns: Collection[str]) -> None:
    """Refuse the names that are no columns, each with the nearest one that is."""
    wrong = []
    for token in tokens:
        if token.token_type is TokenType.VAR and token.text not in columns:
            name = token.text.lower()
            words = [word for word in _WORDS if len(word) > 2]
            close = difflib.get_close_matches(name.upper(), words, n=1)
            close = close or difflib.get_close_matches(name, columns, n=1)
            if name.startswith("tpot"):  # another quantity than the names that are near
                close = ["itl_seconds_mean"]
            hint = f"did you mean {close[0]}?" if close else "driftwatch evidence lists the columns"
            place = (token.start, "unknown-column", token.text, hint, len(token.text))
            wrong.append(refusal(text, *place))
    if wrong:
        wrong[0].others = tuple(wrong[1:])
        raise wrong[0]
