"""Whether a condition can still be true where some of its columns are never known."""

from __future__ import annotations

from collections.abc import Set
from typing import Literal

from sqlglot import exp
from sqlglot.dialects.dialect import Dialect

from driftwatch.condition import Condition
from driftwatch.condition_text import read_tokens
from driftwatch.evidence import BY_NAME

_Truth = Literal["true", "false", "unknown"]
_Truths = frozenset[_Truth]
_OPEN: _Truths = frozenset(("true", "false"))
_NEGATED: dict[_Truth, _Truth] = {"true": "false", "false": "true", "unknown": "unknown"}


def can_be_true(condition: Condition, never_known: Set[str]) -> bool:
    """Whether some values of the other columns make it true.

    Every comparison is looked at by itself: of ``a > 2 AND a < 1`` each side can be true, and so
    it counts as one that can.

    Args:
        condition: a checked one.
        never_known: columns that are NULL in every row.
    """
    if not condition.columns & never_known:
        return True
    tokens = read_tokens(condition.text, BY_NAME)
    (root,) = Dialect.get_or_raise(None).parser().parse(tokens, condition.text)
    assert root is not None  # noqa: S101 - the condition was checked
    return "true" in _truths(root, never_known, condition.false_when_unknown)


def _truths(node: exp.Expr, dark: Set[str], lenient: Set[str]) -> _Truths:
    """Which of true, false and unknown the node can be; never too few of them."""
    match node:
        case exp.Paren():
            return _truths(node.this, dark, lenient)
        case exp.Not(this=exp.Between() | exp.In()):
            pass  # a comparison, as a condition reads it
        case exp.Not():
            return frozenset(_NEGATED[truth] for truth in _truths(node.this, dark, lenient))
        case exp.And() | exp.Or():
            # in order of strength: the stronger of both sides is what they are together
            order: tuple[_Truth, ...] = ("false", "unknown", "true")
            if isinstance(node, exp.Or):
                order = ("true", "unknown", "false")
            left = _truths(node.this, dark, lenient)
            right = _truths(node.expression, dark, lenient)
            return frozenset(min(a, b, key=order.index) for a in left for b in right)
        case exp.Is():
            return frozenset(("true",)) if _reads(node, dark) else _OPEN
        case exp.Boolean():
            return frozenset(("true" if node.this else "false",))
    if not _reads(node, dark):
        return _OPEN
    return frozenset(("false",)) if _reads(node, lenient) else frozenset(("unknown",))


def _reads(node: exp.Expr, names: Set[str]) -> bool:
    return any(column.name in names for column in node.find_all(exp.Column))
