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
