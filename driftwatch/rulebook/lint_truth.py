"""Which truths a condition can take on rows that the columns' ranges allow.

A condition is walked as it is evaluated (three-valued, ``condition.py``); each walk splits a box
into the boxes in which the condition may have the wanted truth. Boxes are never too small, so what
is found to hold never, or always, does; the other way round nothing is claimed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import lru_cache

from sqlglot import exp

from driftwatch.condition import Condition
from driftwatch.evidence import BY_NAME, Column
from driftwatch.rulebook.lint_ranges import (
    ANY,
    Box,
    Interval,
    Texts,
    above,
    below,
    domain_of,
    negative,
    over,
    plus,
    times,
    widened,
    with_null,
    with_values,
)

MOST_BOXES = 64  # of one condition; beyond it a part is taken to have any truth
_Comparison = exp.EQ | exp.NEQ | exp.LT | exp.LTE | exp.GT | exp.GTE
_ARITHMETIC = (exp.Add, exp.Sub, exp.Mul, exp.Div, exp.Neg)
_OPPOSITE: Mapping[type[exp.Expr], type[exp.Expr]] = {
    exp.EQ: exp.NEQ, exp.NEQ: exp.EQ, exp.LT: exp.GTE, exp.GTE: exp.LT, exp.GT: exp.LTE,
    exp.LTE: exp.GT,
}  # fmt: skip


def rows_of(columns: Collection[str], schema: Mapping[str, Column] = BY_NAME) -> Box:
    """Every row of these columns."""
    return {name: domain_of(schema[name]) for name in columns}


def boxes_where(condition: Condition, truth: bool, rows: Sequence[Box]) -> list[Box]:
    """Boxes that hold every row of ``rows`` in which the condition has the truth.

    ``rows``: with all of the condition's columns. Empty = there is no such row.
    """
    walk = _Walk(condition.false_when_unknown)
    predicate = condition.predicate
    boxes = [box for row in rows for box in walk.boxes(predicate, truth, row)]
    if not walk.relates:
        return boxes
    # what a later part tells of a column may rule out what an earlier part reads of it
    return [box for box in boxes if walk.boxes(predicate, truth, box)]


@lru_cache(maxsize=8192)
def boxes_of(condition: Condition, truth: bool) -> tuple[Box, ...]:
    """The same of every row that the columns' ranges allow."""
    return tuple(boxes_where(condition, truth, [rows_of(condition.columns)]))


def boxes_where_all(conditions: Iterable[Condition | None], rows: Sequence[Box]) -> list[Box]:
    """Boxes that hold every row in which all of the conditions are true; None is no condition."""
    some = [condition for condition in conditions if condition is not None]
    boxes = list(rows)
    for condition in (*some, *some[:-1]):  # a later one may rule out what an earlier one allows
        boxes = boxes_where(condition, True, boxes)
    return boxes


def can_be(condition: Condition, truth: bool, part: exp.Expr, rows: Box) -> bool:
    """Whether a part of the condition can have the truth on one of the rows."""
    return bool(_Walk(condition.false_when_unknown).boxes(part, truth, rows))


def can_be_unknown(condition: Condition, rows: Sequence[Box]) -> bool:
    """Whether the condition may be NULL on a row."""
    walk = _Walk(condition.false_when_unknown)
    return any(walk.may_be_unknown(condition.predicate, row) for row in rows)


class _Walk:
    def __init__(self, lenient: frozenset[str]) -> None:
        self.lenient = lenient
        self.relates = False  # whether a comparison was met that is not of a column with a literal

    def boxes(self, node: exp.Expr, truth: bool, box: Box) -> list[Box]:
        """Boxes inside ``box`` in which the node may have the truth."""
        match node:
            case exp.Paren():
                return self.boxes(node.this, truth, box)
            case exp.And() | exp.Or():
                return self._joined(node, truth, box)
            case exp.Not(this=exp.Between() | exp.In()):
                return self._settled(node, truth, box, self._range(node.this, not truth, box))
            case exp.Not():
                return self.boxes(node.this, not truth, box)
            case exp.Is():
                return self._null_test(node, truth, box)
            case exp.Between() | exp.In():
                return self._settled(node, truth, box, self._range(node, truth, box))
            case _ if isinstance(node, _Comparison):
                kind = type(node) if truth else _OPPOSITE[type(node)]
                boxes = self._compared(kind, node.this, node.expression, box)
                return self._settled(node, truth, box, boxes)
            case exp.Column():
                one = with_values(box, node.name, Texts(frozenset((truth,))))
                return self._settled(node, truth, box, [] if one is None else [one])
            case exp.Boolean():
                return [box] if node.this is truth else []
        return [box]

    def _joined(self, node: exp.Expr, truth: bool, box: Box) -> list[Box]:
        """AND and OR: both parts in turn, or either."""
        if isinstance(node, exp.And) is truth:
            first = self.boxes(node.this, truth, box)
            both = [b for one in first for b in self.boxes(node.expression, truth, one)]
            return both if len(both) <= MOST_BOXES else first
        either = [
            *self.boxes(node.this, truth, box),
            *self.boxes(node.expression, truth, box),
        ]
        return either if len(either) <= MOST_BOXES else [box]

    def _settled(self, node: exp.Expr, truth: bool, box: Box, boxes: list[Box]) -> list[Box]:
        """And, where a lenient column is read, the rows in which it is unknown: they are false."""
        if truth or not self.lenient:
            return boxes
        names = {column.name for column in node.find_all(exp.Column)}
        if names.isdisjoint(self.lenient):
            return boxes
        if node.find(*_ARITHMETIC) is not None:
            return [box]  # a division by 0 is unknown too
        unknown = (with_null(box, name) for name in sorted(names))
        return [*boxes, *(one for one in unknown if one is not None)]

    def _null_test(self, node: exp.Expr, truth: bool, box: Box) -> list[Box]:
        inside = node.this.unnest()
        if not isinstance(inside, exp.Column):
            return [box]
        if truth:
            one = with_null(box, inside.name)
        else:
            one = with_values(box, inside.name, box[inside.name].values)
        return [] if one is None else [one]

    def _range(self, node: exp.Expr, truth: bool, box: Box) -> list[Box]:
        """BETWEEN as two comparisons, IN as one for each literal."""
        subject = node.this
        if isinstance(node, exp.Between):
            parts = [(exp.GTE, node.args["low"]), (exp.LTE, node.args["high"])]
        else:
            parts = [(exp.EQ, item) for item in node.expressions]
        if isinstance(node, exp.Between) is truth:  # all of them
            boxes = [box]
            for kind, other in parts:
                wanted = kind if truth else _OPPOSITE[kind]
                boxes = [b for one in boxes for b in self._compared(wanted, subject, other, one)]
        else:
            boxes = []
            for kind, other in parts:
                wanted = kind if truth else _OPPOSITE[kind]
                boxes += self._compared(wanted, subject, other, box)
        return boxes if len(boxes) <= MOST_BOXES else [box]

    def may_be_unknown(self, node: exp.Expr, box: Box) -> bool:
        """Whether the node may be NULL on some row of the box."""
        match node:
            case exp.Paren():
                return self.may_be_unknown(node.this, box)
            case exp.Not(this=exp.Between() | exp.In()):
                pass
            case exp.Not():
                return self.may_be_unknown(node.this, box)
            case exp.And() | exp.Or():
                ends = isinstance(node, exp.Or)  # the truth that ends it whatever the other part is
                parts = (node.this, node.expression)
                if any(self._always(part, ends, box) for part in parts):
                    return False
                return any(self.may_be_unknown(part, box) for part in parts)
            case exp.Is():
                return False
        names = {column.name for column in node.find_all(exp.Column)}
        if not names.isdisjoint(self.lenient):
            return False
        if node.find(*_ARITHMETIC) is not None:
            return True
        return any(box[name].may_be_null for name in names)

    def _always(self, node: exp.Expr, truth: bool, box: Box) -> bool:
        return not self.may_be_unknown(node, box) and not self.boxes(node, not truth, box)

    def _compared(
        self, kind: type[exp.Expr], lower: exp.Expr, upper: exp.Expr, box: Box
    ) -> list[Box]:
        """Boxes in which a comparison is true."""
        lower, upper = lower.unnest(), upper.unnest()
        for first, second in ((lower, upper), (upper, lower)):
            text = _text(second)
            if isinstance(first, exp.Column) and text is not None:
                if kind not in (exp.EQ, exp.NEQ):
                    return [box]
                value = frozenset((text,))
                texts = Texts(value) if kind is exp.EQ else Texts(None, value)
                one = with_values(box, first.name, texts)
                return [] if one is None else [one]
        if not (_is_number(lower, box) and _is_number(upper, box)):
            return [box]
        simple = (exp.Column, exp.Literal)
        self.relates |= type(lower) not in simple or type(upper) not in simple
        self.relates |= type(lower) is type(upper) is exp.Column
        kinds = (exp.LT, exp.GT) if kind is exp.NEQ else (kind,)
        narrowed = (_narrowed(one, lower, upper, box) for one in kinds)
        return [one for one in narrowed if one is not None]


def _narrowed(kind: type[exp.Expr], lower: exp.Expr, upper: exp.Expr, box: Box) -> Box | None:
    """The box with what an order between two numbers tells of their columns."""
    first, second = _value(lower, box), _value(upper, box)
    if first.is_empty or second.is_empty:
        return None
    if kind in (exp.GT, exp.GTE):
        kind = exp.LT if kind is exp.GT else exp.LTE
        lower, upper, first, second = upper, lower, second, first
    match kind:
        case exp.EQ:
            first = second = first.meet(second)
        case exp.LT:
            first, second = first.meet(below(second.high)), second.meet(above(first.low))
        case _:
            first = first.meet(Interval(high=second.high))
            second = second.meet(Interval(low=first.low))
    narrowed = _with(lower, first, box)
    return None if narrowed is None else _with(upper, second, narrowed)


def _value(node: exp.Expr, box: Box) -> Interval:
    """The numbers that an expression may be."""
    match node:
        case exp.Paren():
            return _value(node.this, box)
        case exp.Literal():
            number = float(node.this)
            return Interval(number, number)
        case exp.Neg():
            return negative(_value(node.this, box))
        case exp.Column():
            values = box[node.name].values
            return values if isinstance(values, Interval) else ANY
        case exp.Add() | exp.Sub() | exp.Mul() | exp.Div():
            first, second = _value(node.this, box), _value(node.expression, box)
            if first.is_empty or second.is_empty:
                return Interval(1.0, 0.0)
            return _FORWARD[type(node)](first, second)
    return ANY


def _with(node: exp.Expr, values: Interval, box: Box) -> Box | None:
    """The box where the expression has one of the values; None where it cannot."""
    if values.is_empty:
        return None
    match node:
        case exp.Paren():
            return _with(node.this, values, box)
        case exp.Neg():
            return _with(node.this, negative(values), box)
        case exp.Column():
            return with_values(box, node.name, values)
        case exp.Add() | exp.Sub() | exp.Mul() | exp.Div():
            first, second = _value(node.this, box), _value(node.expression, box)
            wide = widened(values)
            back = _BACKWARD[type(node)]
            of_first, of_second = (widened(one) for one in back(wide, first, second))
            inner = _with(node.this, first.meet(of_first), box)
            return None if inner is None else _with(node.expression, second.meet(of_second), inner)
    return box


_Operation = Callable[[Interval, Interval], Interval]
_FORWARD: Mapping[type[exp.Expr], _Operation] = {
    exp.Add: plus,
    exp.Sub: lambda a, b: plus(a, negative(b)),
    exp.Mul: times,
    exp.Div: over,
}
# the result, a, b → what a and b may have been
_BACKWARD: Mapping[
    type[exp.Expr], Callable[[Interval, Interval, Interval], tuple[Interval, Interval]]
] = {
    exp.Add: lambda c, a, b: (plus(c, negative(b)), plus(c, negative(a))),
    exp.Sub: lambda c, a, b: (plus(c, b), plus(a, negative(c))),
    exp.Mul: lambda c, a, b: (over(c, b), over(c, a)),
    exp.Div: lambda c, a, b: (times(c, b), ANY),
}


def _text(node: exp.Expr) -> str | bool | None:
    match node:
        case exp.Literal(is_string=True):
            return str(node.this)
        case exp.Boolean():
            return bool(node.this)
    return None


def _is_number(node: exp.Expr, box: Box) -> bool:
    """Whether an operand is a number; its parts were checked when the condition was parsed."""
    match node:
        case exp.Column():
            return isinstance(box[node.name].values, Interval)
        case exp.Literal():
            return not node.is_string
        case exp.Paren():
            return _is_number(node.this, box)
    return isinstance(node, _ARITHMETIC)
