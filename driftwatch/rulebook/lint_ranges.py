"""Boxes: what evidence rows may look like, one domain a column.

A box stands for every row whose values lie in its domains; it never stands for fewer rows than it
is meant to. Floats are compared as Polars compares them, so an open end is the next float.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from driftwatch.evidence import Column

Value = float | bool | str


@dataclass(frozen=True, slots=True)
class Interval:
    """Numbers from ``low`` to ``high``, both ends included; empty where low > high."""

    low: float = -math.inf
    high: float = math.inf

    @property
    def is_empty(self) -> bool:
        """No number lies in it."""
        return self.low > self.high

    def meet(self, other: Interval) -> Interval:
        """The numbers of both."""
        return Interval(max(self.low, other.low), min(self.high, other.high))


ANY = Interval()


@dataclass(frozen=True, slots=True)
class Texts:
    """Texts or truth values: those of ``only`` (None = any) that are not in ``without``."""

    only: frozenset[Value] | None = None
    without: frozenset[Value] = frozenset()

    @property
    def is_empty(self) -> bool:
        """No value is left."""
        return self.only is not None and not self.only - self.without

    def meet(self, other: Texts) -> Texts:
        """The values of both."""
        if self.only is None or other.only is None:
            only = self.only if other.only is None else other.only
        else:
            only = self.only & other.only
        return Texts(only, self.without | other.without)

    def join(self, other: Texts) -> Texts:
        """The values of either."""
        if self.only is not None and other.only is not None:
            return Texts((self.only - self.without) | (other.only - other.without))
        return Texts(None, self.without & other.without)


@dataclass(frozen=True, slots=True)
class Domain:
    """What a column may hold."""

    values: Interval | Texts
    may_be_null: bool = True

    @property
    def is_empty(self) -> bool:
        """Neither a value nor NULL."""
        return self.values.is_empty and not self.may_be_null

    def around(self, other: Domain) -> Domain:
        """The smallest domain that holds both."""
        may_be_null = self.may_be_null or other.may_be_null
        if self.values.is_empty or other.values.is_empty:
            return Domain(other.values if self.values.is_empty else self.values, may_be_null)
        values: Interval | Texts = Texts()
        if isinstance(self.values, Interval) and isinstance(other.values, Interval):
            ends = (self.values, other.values)
            values = Interval(min(e.low for e in ends), max(e.high for e in ends))
        elif isinstance(self.values, Texts) and isinstance(other.values, Texts):
            values = self.values.join(other.values)
        return Domain(values, may_be_null)


Box = Mapping[str, Domain]


def domain_of(column: Column) -> Domain:
    """Everything that a column may hold."""
    match column.dtype:
        case "float":
            low = -math.inf if column.low is None else column.low
            high = math.inf if column.high is None else column.high
            return Domain(Interval(low, high))
        case "bool":
            return Domain(Texts(frozenset((True, False))))
    return Domain(Texts(frozenset(column.words) if column.words else None))


def with_values(box: Box, name: str, values: Interval | Texts) -> Box | None:
    """The rows in which the column has one of the values; None where there are none."""
    domain = box[name]
    narrowed = (
        domain.values.meet(values)  # type: ignore[arg-type]
        if type(domain.values) is type(values)
        else domain.values
    )
    if narrowed.is_empty:
        return None
    return {**box, name: Domain(narrowed, may_be_null=False)}


def with_null(box: Box, name: str) -> Box | None:
    """The rows in which the column is NULL; None where there are none."""
    domain = box[name]
    if not domain.may_be_null:
        return None
    nothing: Interval | Texts = (
        Interval(1.0, 0.0) if isinstance(domain.values, Interval) else Texts(frozenset())
    )
    return {**box, name: replace(domain, values=nothing)}


def below(number: float) -> Interval:
    """The floats under a number."""
    return Interval(-math.inf, math.nextafter(number, -math.inf))


def above(number: float) -> Interval:
    """The floats over a number."""
    return Interval(math.nextafter(number, math.inf), math.inf)


def negative(a: Interval) -> Interval:
    """-a."""
    return Interval(-a.high, -a.low)


def plus(a: Interval, b: Interval) -> Interval:
    """a + b; an overflow is an end of it."""
    return Interval(_number(a.low + b.low, -math.inf), _number(a.high + b.high, math.inf))


def times(a: Interval, b: Interval) -> Interval:
    """a * b; no float is infinite, so 0 * inf is 0."""
    ends = [_number(x * y, 0.0) for x in (a.low, a.high) for y in (b.low, b.high)]
    return Interval(min(ends), max(ends))


def over(a: Interval, b: Interval) -> Interval:
    """a / b; everything where b may be 0."""
    if b.low <= 0.0 <= b.high:
        return ANY
    ends = [
        _number(x / y, 0.0 if math.isinf(y) else math.copysign(math.inf, x))
        for x in (a.low, a.high)
        for y in (b.low, b.high)
    ]
    if any(math.isinf(y) for y in (b.low, b.high)) and math.inf in (-a.low, a.high):
        return ANY
    return Interval(min(ends), max(ends))


def widened(a: Interval) -> Interval:
    """With the floats that may round into it."""
    return Interval(math.nextafter(a.low, -math.inf), math.nextafter(a.high, math.inf))


def _number(value: float, instead: float) -> float:
    return instead if math.isnan(value) else value
