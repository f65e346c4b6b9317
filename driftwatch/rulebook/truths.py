"""Whether conditions can be true, or false, in the same minute.

Every value that their comparisons tell apart is tried, unknown among them: 20, what is below and
what is above it for ``waiting_requests > 20``. So it does not matter how a condition is spelled.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable
from functools import lru_cache, reduce
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
from sqlglot import exp

from driftwatch.condition import Condition
from driftwatch.evidence import BY_NAME

# More combinations of values than this are not tried: 1 MB an array, some 50 arrays a condition.
MOST_COMBINATIONS = 1 << 20

Masks = tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]]  # where true, where false
# a comparison with a constant: name, operator (Is: whether it is NULL), constant
Leaf = Callable[[str, type[exp.Expr], Any], Masks]

_COMPARE: dict[type[exp.Expr], Callable[[Any, Any], bool]] = {
    exp.GT: operator.gt, exp.GTE: operator.ge, exp.LT: operator.lt, exp.LTE: operator.le,
    exp.EQ: operator.eq, exp.NEQ: operator.ne,
}  # fmt: skip
_SWAPPED: dict[type[exp.Expr], type[exp.Expr]] = {
    exp.GT: exp.LT, exp.GTE: exp.LTE, exp.LT: exp.GT, exp.LTE: exp.GTE,
}  # fmt: skip
_NAME = re.compile(r"\w+")
_NOWHERE: Masks = np.array(False), np.array(False)


@lru_cache(maxsize=4096)  # many targets lack the same
def can_be_true(condition: Condition, never_known: frozenset[str]) -> bool:
    """Whether some values of the other columns make it true; ``never_known``: NULL in every row."""
    dark = condition.columns & never_known
    return not dark or possible((condition.predicate, True), never_known=dark)


def possible(*wanted: tuple[exp.Expr, bool], never_known: frozenset[str] = frozenset()) -> bool:
    """Whether one row can give each of these checked predicates its truth.

    Columns are taken as independent of each other, arithmetic as a column of its own; so are two
    columns that are compared. True where there are too many combinations to try.
    """
    constants: dict[str, set[Any]] = {}

    def note(name: str, kind: type[exp.Expr], constant: Any) -> Masks:
        if never_known.isdisjoint(_NAME.findall(name)):
            constants.setdefault(name, set()).update(() if kind is exp.Is else (constant,))
        return _NOWHERE

    for predicate, _ in wanted:
        _masks(predicate, note)
    values = {name: _values(name, some) for name, some in constants.items()}
    if math.prod(len(some) + 1 for some in values.values()) > MOST_COMBINATIONS:
        return True
    axes = {name: np.arange(len(values)) == axis for axis, name in enumerate(values)}

    def held(name: str, kind: type[exp.Expr], constant: Any) -> Masks:
        if name not in axes:
            return np.array(kind is exp.Is), np.array(False)
        shape = np.where(axes[name], -1, 1).tolist()
        known = np.array([*(True for _ in values[name]), False]).reshape(shape)
        if kind is exp.Is:
            return ~known, known
        meets = [_COMPARE[kind](value, constant) for value in values[name]]
        true = np.array([*meets, False]).reshape(shape)
        return true, known & ~true

    masks = [_masks(predicate, held)[0 if truth else 1] for predicate, truth in wanted]
    return bool(np.any(reduce(np.logical_and, masks)))


def _values(name: str, constants: set[Any]) -> list[Any]:
    """One value of each kind that comparisons with the constants tell apart."""
    column = BY_NAME.get(name)
    if column is not None and column.dtype == "bool":
        return [True, False]
    if any(isinstance(one, str) for one in constants):
        return list(column.words) if column and column.words else [*constants, "\0"]
    low = -math.inf if column is None or column.low is None else column.low
    high = math.inf if column is None or column.high is None else column.high
    ends = {end for end in (low, high) if math.isfinite(end)}
    marks = sorted(ends | {one for one in constants if low <= one <= high}) or [0.0]
    between = [(below + above) / 2 for below, above in pairwise(marks)]
    outside = math.nextafter(marks[0], low), math.nextafter(marks[-1], high)
    return [*marks, *between, *outside]


def _masks(node: exp.Expr, leaf: Leaf) -> Masks:
    """Where a predicate is true and where it is false; elsewhere it is unknown."""
    match node:
        case exp.Paren():
            return _masks(node.this, leaf)
        case exp.Boolean():
            return np.array(bool(node.this)), np.array(not node.this)
        case exp.Not():
            true, false = _masks(node.this, leaf)
            return false, true
        case exp.And() | exp.Or():
            (true, false), (also, nor) = _masks(node.this, leaf), _masks(node.expression, leaf)
            if isinstance(node, exp.And):
                return true & also, false | nor
            return true | also, false & nor
        case exp.Is() if _is_truth(node.this):
            true, false = _masks(node.this, leaf)
            return ~(true | false), true | false
        case exp.Between():
            ends = ((exp.GTE, node.args["low"]), (exp.LTE, node.args["high"]))
            parts = [
                _masks(kind(this=node.this.copy(), expression=n.copy()), leaf) for kind, n in ends
            ]
            return parts[0][0] & parts[1][0], parts[0][1] | parts[1][1]
        case exp.In():
            items = node.expressions
            parts = [
                _masks(exp.EQ(this=node.this.copy(), expression=i.copy()), leaf) for i in items
            ]
            return (
                reduce(np.logical_or, (true for true, _ in parts)),
                reduce(np.logical_and, (false for _, false in parts)),
            )
        case exp.EQ() | exp.NEQ() if _is_truth(node.this):
            (true, false), (also, nor) = _masks(node.this, leaf), _masks(node.expression, leaf)
            same, other = true & also | false & nor, true & nor | false & also
            return (same, other) if isinstance(node, exp.EQ) else (other, same)
        case exp.Column():
            return leaf(node.name, exp.EQ, True)
        case exp.Is():
            return leaf(node.this.unnest().sql(), exp.Is, None)
    return leaf(*_compared(node))


def _is_truth(node: exp.Expr) -> bool:
    node = node.unnest()
    if isinstance(node, exp.Column):
        return BY_NAME[node.name].dtype == "bool"
    return isinstance(node, exp.Boolean | exp.Not | exp.Connector | exp.Predicate)


def _compared(node: exp.Expr) -> tuple[str, type[exp.Expr], Any]:
    """A comparison as what is compared, how, and with which constant: ``a > b`` as a - b and 0."""
    kind: type[exp.Expr] = type(node)
    first, second = node.this.unnest(), node.expression.unnest()
    if constant_of(first) is not None or (
        constant_of(second) is None and first.sql() > second.sql()
    ):
        kind, first, second = _SWAPPED.get(kind, kind), second, first
    constant = constant_of(second)
    if constant is None:
        return f"{first.sql()} - {second.sql()}", kind, 0.0
    return first.sql(), kind, constant


def constant_of(node: exp.Expr) -> float | str | None:
    """A literal's value, also of a negative one; None: it is none."""
    match node:
        case exp.Paren():
            return constant_of(node.this)
        case exp.Neg():
            number = constant_of(node.this)
            return -number if isinstance(number, float) else None
        case exp.Literal():
            return str(node.this) if node.is_string else float(node.this)
    return None
