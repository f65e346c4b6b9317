"""Conditions against a plain Python evaluator of three-valued logic, row by row."""

from __future__ import annotations

import math
from typing import Any

import polars as pl
import pytest
from condition_cases import Tree, rows, truths, write
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from driftwatch.condition import Condition, parse_condition
from driftwatch.condition_text import MAX_CHARACTERS
from driftwatch.errors import ConditionError
from driftwatch.evidence import Column

KNOWN = {
    name: Column(name, kind, "1", name)
    for name, kind in (
        ("x", "float"),
        ("y", "float"),
        ("z", "float"),
        ("flag", "bool"),
        ("word", "string"),
    )
}


def reads(tree: Any) -> set[str]:
    match tree:
        case ("column", name):
            return {name}
        case ("word =" | "word <>" | "word in", *_):
            return {"word"}
        case ("flag" | "flag is null",):
            return {"flag"}
        case tuple():
            return set().union(*(reads(part) for part in tree[1:]), set())
    return set()


def finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def number(tree: Tree, row: dict[str, Any]) -> float | None:
    match tree:
        case ("column", name):
            return finite(row[name])
        case ("number", text):
            return float(text)
        case ("negative", inner):
            value = number(inner, row)
            return None if value is None else -value
    sign, left, right = tree[0], number(tree[1], row), number(tree[2], row)
    if left is None or right is None or (sign == "/" and right == 0):
        return None
    operations = {"+": left + right, "-": left - right, "*": left * right}
    return finite(left / right if sign == "/" else operations[sign])


def invert(value: bool | None) -> bool | None:
    return None if value is None else not value


def both(left: bool | None, right: bool | None) -> bool | None:
    if left is False or right is False:
        return False
    return None if left is None or right is None else True


def either(left: bool | None, right: bool | None) -> bool | None:
    return invert(both(invert(left), invert(right)))


def compare(sign: str, left: Any, right: Any) -> bool | None:
    if left is None or right is None:
        return None
    return {
        "=": left == right,
        "<>": left != right,
        "!=": left != right,
        "<": left < right,
        "<=": left <= right,
        ">": left > right,
        ">=": left >= right,
    }[sign]


def truth(tree: Tree, row: dict[str, Any], lenient: frozenset[str]) -> bool | None:
    match tree:
        case ("not", inner):
            return invert(truth(inner, row, lenient))
        case ("and", left, right):
            return both(truth(left, row, lenient), truth(right, row, lenient))
        case ("or", left, right):
            return either(truth(left, row, lenient), truth(right, row, lenient))
        case ("is null", subject):
            return number(subject, row) is None
        case ("is not null", subject):
            return number(subject, row) is not None
        case ("flag is null",):
            return row["flag"] is None
    value = atom(tree, row)
    return False if value is None and reads(tree) & lenient else value


def atom(tree: Tree, row: dict[str, Any]) -> bool | None:
    match tree:
        case ("true",):
            return True
        case ("false",):
            return False
        case ("flag",):
            return row["flag"]
        case ("between" | "not between" as word, subject, low, high):
            value = number(subject, row)
            inside = both(
                compare(">=", value, number(low, row)), compare("<=", value, number(high, row))
            )
            return inside if word == "between" else invert(inside)
        case ("in" | "not in" as word, subject, items):
            value = number(subject, row)
            found = None if value is None else value in [float(item) for item in items]
            return found if word == "in" else invert(found)
        case ("word in", items):
            return None if row["word"] is None else row["word"] in items
        case ("word =", text):
            return compare("=", row["word"], text)
        case ("word <>", text):
            return compare("<>", row["word"], text)
    return compare(tree[0], number(tree[1], row), number(tree[2], row))


SCHEMA = {
    "x": pl.Float64,
    "y": pl.Float64,
    "z": pl.Float64,
    "flag": pl.Boolean,
    "word": pl.String,
}


def answers(condition: Condition, frame: pl.DataFrame) -> list[bool | None]:
    answer = frame.select(condition.expression.alias("answer"))["answer"]
    assert answer.dtype == pl.Boolean
    return answer.to_list()


@settings(
    max_examples=300,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
@given(
    tree=truths,
    rows=st.lists(rows, min_size=1, max_size=6),
    lenient=st.frozensets(st.sampled_from(sorted(KNOWN))),
)
def test_a_condition_is_what_sql_says(
    tree: Tree, rows: list[dict[str, Any]], lenient: frozenset[str]
) -> None:
    text = write(tree)
    assume(len(text) <= MAX_CHARACTERS)
    condition = parse_condition(text, columns=KNOWN, false_when_unknown=lenient)
    assert condition.columns == reads(tree)
    frame = pl.DataFrame(rows, schema=SCHEMA, strict=False)
    assert answers(condition, frame) == [truth(tree, row, lenient) for row in rows]


PIECES = (
    "x flag word ( ) , ; AND OR NOT IS NULL IN BETWEEN = < > + - * / 1 2.5 'a' \" -- /* */ "
    "SELECT FROM CASE END AS :: || [ ] { } % ! @ # $ é"
)
PIECES_AND_A_BREAK = [*PIECES.split(), "\n"]


@settings(max_examples=300, deadline=None)
@given(
    st.one_of(
        st.text(max_size=80),
        st.lists(
            st.sampled_from(PIECES_AND_A_BREAK),
            max_size=14,
        ).map(" ".join),
    )
)
def test_any_text_is_a_condition_or_a_condition_error(text: str) -> None:
    try:
        condition = parse_condition(text, columns=KNOWN)
    except ConditionError as error:
        lines = text.split("\n")
        assert 1 <= error.line <= len(lines)
        assert 1 <= error.column <= len(lines[error.line - 1]) + 1
    else:
        frame = pl.DataFrame([dict.fromkeys(KNOWN)], schema=SCHEMA)
        assert len(answers(condition, frame)) == 1


NULLS = pl.DataFrame([dict.fromkeys(KNOWN)], schema=SCHEMA)
ROWS = pl.DataFrame(
    {
        "x": [1.0, 3.0, None],
        "y": [2.0, 2.0, 2.0],
        "z": [None, math.nan, math.inf],
        "flag": [True, False, None],
        "word": ["kv", "a", None],
    },
    schema=SCHEMA,
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("y > 1 OR y > 1 AND x > 2", [True, True, True]),  # AND binds tighter
        ("NOT x > 1 AND flag", [True, False, None]),  # NOT binds tighter than AND
        ("NOT x = 1", [False, True, None]),
        ("x + y * 2 = 5", [True, False, None]),
        ("x - y - 1 = -2", [True, False, None]),
        ("-x + y > 0", [True, False, None]),
        ("8 / y / 2 = 2", [True, True, True]),  # from the left, and never whole-number division
        ("1 / y = 0.5", [True, True, True]),
        ("z > 0", [None, None, None]),
        ("z IS NULL", [True, True, True]),
        ("x / (y - 2) > 0", [None, None, None]),
        ("x / 0 IS NULL", [True, True, True]),
        ("x BETWEEN 1 AND 2 AND flag", [True, False, None]),
        ("x NOT BETWEEN 1 AND 2", [False, True, None]),
        ("x IN (1, -2, 3)", [True, True, None]),
        ("x NOT IN (1)", [False, True, None]),
        ("flag IN (TRUE)", [True, False, None]),
        ("flag = TRUE", [True, False, None]),
        ("flag IS NULL OR NOT flag", [False, True, True]),
        ("word = 'kv'", [True, False, None]),
        ("(x > 1) = flag", [False, False, None]),
        ("1 < 2", [True, True, True]),
        ("FALSE", [False, False, False]),
    ],
)
def test_meaning(text: str, expected: list[bool | None]) -> None:
    assert answers(parse_condition(text, columns=KNOWN), ROWS) == expected


def test_an_unknown_becomes_false_only_in_its_own_comparison() -> None:
    text = "x > 1 OR y > 1 AND z > 1"
    assert answers(parse_condition(text, columns=KNOWN), NULLS) == [None]
    lenient = parse_condition(text, columns=KNOWN, false_when_unknown=["x"])
    assert answers(lenient, NULLS) == [None]  # the rest is still unknown
    lenient = parse_condition(text, columns=KNOWN, false_when_unknown=["x", "z"])
    assert answers(lenient, NULLS) == [False]
    for text in ("x NOT BETWEEN 1 AND 2", "x NOT IN (1)", "flag"):
        assert answers(parse_condition(text, columns=KNOWN), NULLS) == [None]
        condition = parse_condition(text, columns=KNOWN, false_when_unknown=["x", "flag"])
        assert answers(condition, NULLS) == [False]


def test_strict_and_lenient_are_different_conditions() -> None:
    strict = parse_condition("x > 1", columns=KNOWN)
    assert strict == parse_condition("x > 1", columns=KNOWN)
    assert strict != parse_condition("x > 1", columns=KNOWN, false_when_unknown=["x"])
    assert len({strict, parse_condition("x > 1", columns=KNOWN)}) == 1


def test_columns_without_a_type_or_of_whole_numbers() -> None:
    frame = pl.DataFrame({"x": [None, None], "y": [1, 2], "flag": [None, None]})
    condition = parse_condition("x > 1 OR flag OR y / 2 = 0.5", columns=KNOWN)
    assert answers(condition, frame) == [True, None]


@pytest.mark.parametrize("text", ["0 + 0 = x", "0 = -(x)", "x = 1 / 0", "1 / 0 IS NULL OR x > 1"])
def test_constants_inside_do_not_shorten_the_answer(text: str) -> None:
    frame = pl.DataFrame({"x": [None, None]}, schema={"x": pl.Float64})
    expected = [True, True] if "OR" in text else [None, None]
    assert answers(parse_condition(text, columns=KNOWN), frame) == expected


def test_a_constant_is_as_long_as_the_frame() -> None:
    condition = parse_condition("TRUE", columns=KNOWN)
    assert answers(condition, ROWS) == [True] * 3
    assert answers(condition, ROWS.clear()) == []
