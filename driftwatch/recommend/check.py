"""Whether the simulation of today's settings gives what was observed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from driftwatch.errors import ImpossibleConfiguration, NoVerdict
from driftwatch.recommend.forecast import Draw, figures
from driftwatch.recommend.window import Window

TOLERANCE = 0.10  # of ITL and running requests, beyond what the draws differ by: the check fails
# … and the answer is not the simulation's. Between the two it is, as its interval is wide there: a
# limit of 10 % refused 31 of 120 working cases, 2 points of gain with them, and no harm (decision
# 90).
REFUSED = 0.30
# what is compared → how people call it
FIGURES = {"itl_seconds": "ITL", "running_requests": "running requests"}
_DRAWS = 4  # at today's demand


@dataclass(frozen=True, slots=True)
class Compared:
    """One figure: observed, and the lowest and the highest that the draws give."""

    observed: float
    low: float
    high: float

    @property
    def off_ratio(self) -> float:
        """By how much the nearest draw is off; 0 where the draws enclose it."""
        if self.low <= self.observed <= self.high:
            return 0.0
        nearest = self.low if self.observed < self.low else self.high
        return nearest / self.observed - 1.0

    @property
    def passed(self) -> bool:
        """Within :data:`TOLERANCE`."""
        return abs(self.off_ratio) <= TOLERANCE


@dataclass(frozen=True, slots=True)
class ModelCheck:
    """``itl_seconds`` and ``running_requests``, as far as they were observed."""

    compared: Mapping[str, Compared]

    @property
    def refused(self) -> bool:
        """Some figure is farther off than :data:`REFUSED`."""
        return any(abs(one.off_ratio) > REFUSED for one in self.compared.values())

    @property
    def failed(self) -> dict[str, Compared]:
        """The figures that are off."""
        return {name: one for name, one in self.compared.items() if not one.passed}


def model_check(draws: Sequence[Draw], window: Window) -> ModelCheck:
    """Today's settings in some draws of today's demand, beside the window."""
    seen = {
        "itl_seconds": window.ratio("itl_seconds_sum", "itl_seconds_count"),
        "running_requests": window.mean("running_requests"),
    }
    simulated = []
    for draw in [one for one in draws if one.demand == 1.0][:_DRAWS]:
        try:
            simulated.append(figures(draw, draw.configuration))
        except (ImpossibleConfiguration, NoVerdict):
            continue
    compared = {}
    for name, value in seen.items():
        values = [v for one in simulated if (v := getattr(one, name)) is not None]
        if value and values:
            compared[name] = Compared(value, min(values), max(values))
    return ModelCheck(compared)
