"""Numbers of the command line: finite, and within bounds that keep a run in memory."""

from __future__ import annotations

import math
from typing import Any

import click


class Finite(click.FloatRange):
    """A number that is neither nan nor infinite, within its bounds.

    click's own range lets nan through everywhere, and inf where there is no upper bound.
    """

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Text to a number."""
        try:
            number = float(value)
        except (TypeError, ValueError):
            number = 0.0  # click's own message says what is no number
        if not math.isfinite(number):
            self.fail(f"{value} is no finite number", param, ctx)
        return super().convert(value, param, ctx)


TOKENS = Finite(min=1, max=1e7)
SECONDS = Finite(min=0, min_open=True, max=1e9)
RATE = Finite(min=0, min_open=True, max=1e6)
SEED = click.IntRange(0, 2**63 - 1)
COUNT = click.IntRange(1, 10_000_000)


class Numbers(click.ParamType[Any]):
    """Numbers within bounds, separated by commas, rising, once each."""

    name = "n,n,..."

    def __init__(self, kind: type[int] | type[float], low: float, high: float) -> None:
        self._kind, self._low, self._high = kind, low, high

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Text to a tuple."""
        if isinstance(value, tuple):
            return value
        try:
            numbers = tuple(sorted({self._kind(word) for word in str(value).split(",")}))
        except ValueError:
            whole = "whole numbers" if self._kind is int else "numbers"
            self.fail(f"{value!r} is no list of {whole}, e.g. 1,2,4,8", param, ctx)
        if not all(self._low <= one <= self._high for one in numbers):
            self.fail(f"each number is from {self._low:g} to {self._high:g}", param, ctx)
        return numbers
