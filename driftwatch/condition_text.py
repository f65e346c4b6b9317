"""The text of a condition → tokens that may go to a parser, or one error with its position.

The grammar of a predicate, seen as a row of tokens, is almost regular: operands and operators
alternate. So everything a condition may not contain (functions, sub-selects, aliases, a second
statement, something left over at the end) is refused here, before sqlglot's parser, which is
lenient (``a > 1 garbage`` parses as an alias), sees it.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Collection
from typing import NoReturn

from sqlglot import Token, TokenType
from sqlglot.dialects.dialect import Dialect
from sqlglot.errors import SqlglotError

from driftwatch.errors import ConditionError

MAX_CHARACTERS = 512
MAX_TERMS = 64  # columns and literals
MAX_DEPTH = 16  # parentheses plus NOTs or signs in a row: far below Python's recursion limit

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
SQL = Dialect.get_or_raise(None)
_NUMBER = re.compile(r"\d+(\.\d*)?([eE][+-]?\d+)?")

_OPERANDS = {
    TokenType.NUMBER,
    TokenType.STRING,
    TokenType.TRUE,
    TokenType.FALSE,
    TokenType.VAR,
}
_PREFIXES = {TokenType.NOT, TokenType.DASH, TokenType.PLUS}
_OPERATORS = {
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
    TokenType.BETWEEN,
}
_OTHERS = {
    TokenType.L_PAREN,
    TokenType.R_PAREN,
    TokenType.COMMA,
    TokenType.NOT,
    TokenType.IS,
    TokenType.IN,
    TokenType.NULL,
}
_TOKEN_TYPES = _OPERANDS | _OPERATORS | _OTHERS
_ENDS_OF_RANGE = {TokenType.AND, TokenType.OR, TokenType.R_PAREN}
# sqlglot reads more spellings than these as the same token ("!" for NOT, "==" for "=").
_SPELLINGS = frozenset(("(", ")", ",", "+", "-", "*", "/", "=", "<>", "!=", "<", "<=", ">", ">="))
_WORDS = frozenset(("AND", "OR", "NOT", "IS", "IN", "BETWEEN", "NULL", "TRUE", "FALSE"))
_FREE_TEXT = {TokenType.NUMBER, TokenType.STRING, TokenType.VAR}


def refusal(
    text: str, offset: int, code: str, message: str, help_text: str | None = None, length: int = 1
) -> ConditionError:
    """What is wrong at a character offset of the text (its end is a place too)."""
    line = text.count("\n", 0, offset) + 1
    column = offset - (text.rfind("\n", 0, offset) + 1) + 1
    return ConditionError(
        message, code=code, line=line, column=column, length=length, help_text=help_text
    )


def refuse(
    text: str, offset: int, code: str, message: str, help_text: str | None = None, length: int = 1
) -> NoReturn:
    """Raise it."""
    raise refusal(text, offset, code, message, help_text, length)


def read_tokens(text: str, columns: Collection[str]) -> list[Token]:
    """Tokens of the text, each allowed where it stands; every name is a known column.

    Raises:
        ConditionError: ``empty``, ``too-long``, ``too-many-terms``, ``too-deep``, ``syntax``,
            ``not-allowed``, ``unknown-column`` or ``number``.
    """
    if len(text) > MAX_CHARACTERS:
        refuse(
            text,
            0,
            "too-long",
            f"the condition has {len(text):,} characters, at most {MAX_CHARACTERS} are allowed",
            _SMALLER,
        )
    try:
        tokens = SQL.tokenize(text)
    except SqlglotError:
        quote = max(text.rfind(mark) for mark in "'\"")
        refuse(text, max(quote, 0), "syntax", "this text is not closed", "add the closing quote")
    if not tokens:
        refuse(text, 0, "empty", "the condition is empty", ALLOWED)
    # A column may carry a name that is a keyword elsewhere in SQL.
    tokens = [_as_column(token) if token.text in columns else token for token in tokens]
    terms = 0
    for index, token in enumerate(tokens):
        following = tokens[index + 1].token_type if index + 1 < len(tokens) else None
        _check_alone(text, token, following, columns)
        terms += token.token_type in _OPERANDS
        if terms > MAX_TERMS:
            message = f"more than {MAX_TERMS} columns and literals"
            refuse(text, token.start, "too-many-terms", message, _SMALLER)
    _check_order(text, tokens)
    _check_ranges(text, tokens)
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


def _check_alone(
    text: str, token: Token, following: TokenType | None, columns: Collection[str]
) -> None:
    """Refuse a token that may stand nowhere in a condition."""
    kind, start = token.token_type, token.start
    spelling = text[start : token.end + 1]

    def no(code: str, message: str, help_text: str | None = ALLOWED) -> NoReturn:
        refuse(text, start, code, message, help_text, len(spelling))

    if token.comments:
        offset = min(text.find(mark) for mark in ("--", "/*") if mark in text)
        refuse(
            text,
            offset,
            "not-allowed",
            "comments are not allowed inside a condition",
            "write it in the YAML file, after a #",
            2,
        )
    if kind is TokenType.IDENTIFIER:
        no(
            "not-allowed",
            "quoted names are not allowed",
            "columns are written plainly, text in single quotes: 'kv_cache'",
        )
    if kind not in _TOKEN_TYPES or not (
        kind in _FREE_TEXT or spelling.upper() in _SPELLINGS | _WORDS
    ):
        help_text = _INSTEAD.get(spelling.lower(), ALLOWED)
        no("not-allowed", f"{spelling} is not allowed in a condition", help_text)
    if kind is TokenType.NUMBER and not (
        _NUMBER.fullmatch(spelling) and math.isfinite(float(spelling))
    ):
        no("number", f"{spelling} is not a number", None)
    if kind is TokenType.VAR and following is TokenType.L_PAREN and spelling not in columns:
        no(
            "not-allowed",
            f"functions are not allowed: {spelling}",
            "conditions read columns; driftwatch evidence lists them",
        )


def _check_order(text: str, tokens: list[Token]) -> None:
    """Refuse a token where it stands: operands and operators alternate, parentheses match."""
    wants_operand = True
    lists: list[bool] = []  # open parentheses: is it the list of an IN?
    signs = 0
    index = 0
    while index < len(tokens):
        token = tokens[index]
        kind, spelling = token.token_type, text[token.start : token.end + 1]

        def no(message: str, code: str = "syntax", help_text: str = ALLOWED) -> NoReturn:
            refuse(text, token.start, code, message, help_text, len(spelling))  # noqa: B023

        if kind is TokenType.NULL:
            no("NULL can only be asked for", "not-allowed", "write IS NULL or IS NOT NULL")
        if wants_operand:
            if kind in _OPERANDS:
                wants_operand, signs = False, 0
            elif kind is TokenType.L_PAREN:
                lists.append(index > 0 and tokens[index - 1].token_type is TokenType.IN)
            elif kind in _PREFIXES:
                signs += 1
            elif kind is TokenType.STAR:
                no("* stands for no column here", "not-allowed")
            else:
                no(f"something is missing before {spelling}")
            if len(lists) + signs > MAX_DEPTH:
                no(f"nested more than {MAX_DEPTH} deep", "too-deep", _SMALLER)
        elif kind is TokenType.IS:
            index += _null_test(tokens, index)
            if tokens[index] is token:
                no("IS is only for NULL", "not-allowed", "write IS NULL, IS NOT NULL, or =")
        elif kind is TokenType.R_PAREN:
            if not lists:
                no("this parenthesis closes nothing")
            lists.pop()
        elif kind in (TokenType.NOT, TokenType.IN):
            index += kind is TokenType.NOT
            kinds = [t.token_type for t in tokens[index : index + 2]]
            if kinds[:1] == [TokenType.IN] and kinds != [TokenType.IN, TokenType.L_PAREN]:
                no("IN wants a list of literals in parentheses")
            if kinds[:1] not in ([TokenType.IN], [TokenType.BETWEEN]):
                no(f"{spelling} does not fit here", help_text="NOT stands before a comparison")
            wants_operand = True
        elif kind is TokenType.COMMA:
            if not (lists and lists[-1]):
                no("a comma stands only in the list of an IN")
            wants_operand = True
        elif kind in _OPERATORS:
            wants_operand = True
        else:
            no(f"{spelling} is left over", help_text="join comparisons with AND or OR")
        index += 1
    end = len(text.rstrip())
    if wants_operand:
        refuse(text, end, "syntax", "something is missing at the end", ALLOWED)
    if lists:
        refuse(text, end, "syntax", "a parenthesis is not closed", "add )")


def _check_ranges(text: str, tokens: list[Token]) -> None:
    """Refuse a BETWEEN without its AND."""
    ranges: list[tuple[int, Token]] = []  # each BETWEEN whose AND is to come, and its depth
    depth = 0
    for token in tokens:
        kind = token.token_type
        if ranges and ranges[-1][0] == depth and kind in _ENDS_OF_RANGE:
            if kind is not TokenType.AND:
                break
            ranges.pop()
        depth += (kind is TokenType.L_PAREN) - (kind is TokenType.R_PAREN)
        if kind is TokenType.BETWEEN:
            ranges.append((depth, token))
    if ranges:
        help_text = "write x BETWEEN 1 AND 2"
        start = ranges[-1][1].start
        refuse(text, start, "syntax", "BETWEEN wants two bounds", help_text, len("BETWEEN"))


def _null_test(tokens: list[Token], index: int) -> int:
    """How many tokens after IS belong to IS [NOT] NULL; 0 where it is something else."""
    kinds = [token.token_type for token in tokens[index + 1 : index + 3]]
    if kinds[:1] == [TokenType.NULL]:
        return 1
    return 2 if kinds == [TokenType.NOT, TokenType.NULL] else 0


def _check_names(text: str, tokens: list[Token], columns: Collection[str]) -> None:
    """Refuse the names that are no columns, each with the nearest one that is."""
    wrong = []
    for token in tokens:
        if token.token_type is TokenType.VAR and token.text not in columns:
            close = difflib.get_close_matches(token.text.lower(), columns, n=1)
            hint = f"did you mean {close[0]}?" if close else "driftwatch evidence lists the columns"
            place = (token.start, "unknown-column", token.text, hint, len(token.text))
            wrong.append(refusal(text, *place))
    if wrong:
        wrong[0].others = tuple(wrong[1:])
        raise wrong[0]
