"""Conditions over three numbers, a truth and a text, and rows for them: hypothesis strategies."""

from __future__ import annotations

import math
from typing import Any

from hypothesis import strategies as st

# An expression is (kind, parts...); text and value are made from it independently.
Tree = tuple[Any, ...]

_numbers = st.sampled_from(["0", "1", "2", "0.5", "3e0", "2.", "100"])
_leaf_number = st.one_of(
    st.sampled_from(["x", "y", "z"]).map(lambda n: ("column", n)),
    _numbers.map(lambda n: ("number", n)),
)
_number = st.recursive(
    _leaf_number,
    lambda inner: st.one_of(
        inner.map(lambda e: ("negative", e)),
        st.tuples(st.sampled_from(["+", "-", "*", "/"]), inner, inner),
    ),
    max_leaves=3,
)
_words = st.sampled_from(["kv", "it's", ""])
_atom = st.one_of(
    st.tuples(st.sampled_from(["=", "<>", "!=", "<", "<=", ">", ">="]), _number, _number),
    st.tuples(st.sampled_from(["between", "not between"]), _number, _number, _number),
    st.tuples(
        st.sampled_from(["in", "not in"]), _number, st.lists(_numbers, min_size=1, max_size=3)
    ),
    st.tuples(st.sampled_from(["is null", "is not null"]), _number),
    st.tuples(st.sampled_from(["word =", "word <>"]), _words),
    st.tuples(st.sampled_from(["word in"]), st.lists(_words, min_size=1, max_size=2)),
    st.just(("flag",)),
    st.just(("flag is null",)),
    st.sampled_from([("true",), ("false",)]),
)
truths = st.recursive(
    _atom,
    lambda inner: st.one_of(
        inner.map(lambda e: ("not", e)),
        st.tuples(st.sampled_from(["and", "or"]), inner, inner),
    ),
    max_leaves=6,
)
_floats = st.one_of(
    st.none(),
    st.sampled_from([math.nan, math.inf, -math.inf, 0.0, -0.0, 1.0, 2.0, 0.5, 3.0, 1e308, -1.5]),
)
rows = st.fixed_dictionaries(
    {
        "x": _floats,
        "y": _floats,
        "z": _floats,
        "flag": st.sampled_from([None, True, False]),
        "word": st.sampled_from([None, "kv", "it's", "", "other"]),
    }
)


def write(tree: Tree) -> str:
    match tree:
        case ("column", name) | ("number", name):
            return str(name)
        case ("negative", inner):
            return f"- ({write(inner)})"
        case ("between" | "not between" as word, subject, low, high):
            return f"({write(subject)}) {word} ({write(low)}) AND ({write(high)})"
        case ("in" | "not in" as word, subject, items):
            return f"({write(subject)}) {word} ({', '.join(items)})"
        case ("is null" | "is not null" as word, subject):
            return f"({write(subject)}) {word}"
        case ("word =" | "word <>" as word, text):
            return f"{word} {quoted(text)}"
        case ("word in", items):
            return f"word in ({', '.join(map(quoted, items))})"
        case (("flag" | "flag is null" | "true" | "false") as word,):
            return str(word)
        case ("not", inner):
            return f"NOT ({write(inner)})"
        case (word, left, right):
            return f"({write(left)}) {word} ({write(right)})"
    raise AssertionError(tree)


def quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
