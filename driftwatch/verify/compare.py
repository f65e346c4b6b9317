"""Two stretches of minutes at matched traffic: every figure on both sides, with its interval."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

import numpy as np
import numpy.typing as npt
import polars as pl

from driftwatch.model import Slo
from driftwatch.verify.adjust import Adjusted, adjusted
from driftwatch.verify.figures import FIGURES, IN_TARGET, Parts, parts
from driftwatch.verify.interval import Level, Side, block_length, counts_of, difference, level
from driftwatch.verify.strata import LENGTHS, Matched, matched
from driftwatch.verify.verification import Effect

# As many as a recommendation asks for of its own window.
FEWEST_MINUTES = 10
FEWEST_REQUESTS = 100
# Requests waited in so many of the matched minutes, before and after.
OVERLOADED_SHARE = 0.2
# Which load the later stretch carries beside the earlier one.
Load = Literal["same", "more", "less"]

_BY_RESIDUALS = ("ttft_seconds_mean", "itl_seconds_mean", "e2e_seconds_mean")
_DECILES = np.arange(1, 10) / 10


@dataclass(frozen=True, slots=True, eq=False)
class Comparison:
    """What came of matching.

    Attributes:
        effects: of every figure known on both sides, in the order of
            :data:`driftwatch.verify.figures.FIGURES`; empty where too little matched.
        matched: minutes of both stretches in common cells.
        load: "same" where offered load was matched. Where it cannot be, lengths alone were, and
            the later stretch carries more or less at every decile: what is better under more load,
            or worse under less, is so all the more at the same.
        load_before: offered requests/s, mean of the matched minutes; None without one.
        load_after: the same.
        requests: served in the matched minutes of the side that has fewer.
        enough: it can carry a verdict.
        saturated: share of the matched minutes in which requests waited, before and after.
    """

    effects: tuple[Effect, ...]
    matched: Matched
    load: Load
    load_before: float | None
    load_after: float | None
    requests: float
    enough: bool
    saturated: tuple[float, float] = (0.0, 0.0)

    @property
    def overloaded(self) -> bool:
        """Requests waited in much of both stretches.

        Then times depend on how long the backlog had grown, which no minute's load tells.
        """
        return min(self.saturated) >= OVERLOADED_SHARE

    def effect(self, name: str) -> Effect | None:
        """One figure; None where it is not known on both sides."""
        return next((effect for effect in self.effects if effect.name == name), None)


def compare(
    before: pl.DataFrame,
    after: pl.DataFrame,
    *,
    slo: Slo | None = None,
    forecast: Mapping[str, float] | None = None,
    confidence: float = 0.95,
    seed: int = 0,
    fewest_minutes: int = FEWEST_MINUTES,
) -> Comparison:
    """Compare two stretches at matched traffic.

    Args:
        before: from :func:`driftwatch.verify.traffic.comparable`, by end.
        after: the same, of the changed or of the other server.
        slo: latency targets; None = no shares of requests in target.
        forecast: figure → what was promised.
        confidence: of the intervals.
        seed: of the resampling.
        fewest_minutes: that must match on either side.
    """
    found, load = _matched(before, after, fewest_minutes)
    effects: tuple[Effect, ...] = ()
    sufficient = enough(found, fewest_minutes)
    if sufficient:
        effects = _effects(found, slo, forecast or {}, confidence, seed)
    served = [float(side["ttft_seconds_count"].sum()) for side in (found.before, found.after)]
    one, other = (_load(side, found) for side in ("before", "after"))
    waited = [
        int(side["saturated"].sum()) / max(1, len(side)) for side in (found.before, found.after)
    ]
    return Comparison(
        effects, found, load, one, other, min(served), sufficient, (waited[0], waited[1])
    )


def enough(found: Matched, fewest_minutes: int = FEWEST_MINUTES) -> bool:
    """Minutes and requests on both sides suffice for an interval."""
    return all(
        len(side) >= fewest_minutes and side["ttft_seconds_count"].sum() >= FEWEST_REQUESTS
        for side in (found.before, found.after)
    )


def _matched(before: pl.DataFrame, after: pl.DataFrame, fewest: int) -> tuple[Matched, Load]:
    """Matched on load and lengths; where that leaves too little, on lengths with ordered load."""
    exact = matched(before, after)
    if enough(exact, fewest) or before.is_empty() or after.is_empty():
        return exact, "same"
    coarse = matched(before, after, LENGTHS)
    if not enough(coarse, fewest):
        return exact, "same"
    one, other = (
        np.quantile(side["requests_per_second"].to_numpy(), _DECILES)
        for side in (coarse.before, coarse.after)
    )
    if (other >= one).all():
        return coarse, "more"
    if (other <= one).all():
        return coarse, "less"
    return exact, "same"


def _load(side: Literal["before", "after"], found: Matched) -> float | None:
    frame, cell = (
        (found.before, found.before_cell) if side == "before" else (found.after, found.after_cell)
    )
    if frame.is_empty():
        return None
    share = found.weights[cell] / np.bincount(cell, minlength=len(found.weights))[cell]
    return float(np.average(frame["requests_per_second"].to_numpy(), weights=share))


def _effects(
    found: Matched,
    slo: Slo | None,
    forecast: Mapping[str, float],
    confidence: float,
    seed: int,
) -> tuple[Effect, ...]:
    moved = adjusted(found, parts(found.before, slo), parts(found.after, slo))
    sides = tuple(
        _side(frame, cell, found, known)
        for frame, cell, known in (
            (found.before, found.before_cell, moved[0]),
            (found.after, found.after_cell, moved[1]),
        )
    )
    counts = [
        counts_of(side, np.random.default_rng([seed, number])) for number, side in enumerate(sides)
    ]
    levels: dict[str, tuple[Level, Level]] = {}
    for figure in FIGURES.values():
        one, other = (
            level(side, figure, drawn, confidence)
            for side, drawn in zip(sides, counts, strict=True)
        )
        if one is not None and other is not None:
            levels[figure.name] = (one, other)
    _add_in_target(levels)
    return tuple(
        Effect(name, *_numbers(*levels[name]), forecast.get(name), figure.unit)
        for name, figure in FIGURES.items()
        if name in levels
    )


def _numbers(before: Level, after: Level) -> tuple[float, float, float, float]:
    low, high = difference(before, after)
    return before.value, after.value, low, high


def _add_in_target(levels: dict[str, tuple[Level, Level]]) -> None:
    """Requests that meet every target: at most as many as meet the one that fewest meet.

    The targets' histograms do not tell which requests missed both.
    """
    shares = [levels[n] for n in ("ttft_in_target_ratio", "tpot_in_target_ratio") if n in levels]
    if shares:
        levels[IN_TARGET] = (
            min((one for one, _ in shares), key=lambda found: found.value),
            min((other for _, other in shares), key=lambda found: found.value),
        )


def _side(
    frame: pl.DataFrame, cell: npt.NDArray[np.int64], found: Matched, known: Adjusted
) -> Side:
    ends = frame["end"]
    first, last = ends[0], ends[-1]
    seconds = (last - first).total_seconds() + 60.0 if isinstance(first, datetime) else 0.0
    block = _block(known.parts, cell)
    return Side(known.parts, cell, found.weights, seconds, block, known.speed, known.fitted)


def _block(known: Mapping[str, Parts], cell: npt.NDArray[np.int64]) -> int:
    """The longest block that a latency asks for, of what is left of it beside its cell's mean."""
    lengths = [block_length(np.zeros(len(cell)))]
    for name in _BY_RESIDUALS:
        one = known.get(name)
        if one is None:
            continue
        there = (one.denominator > 0) & (one.numerator > 0)
        if there.sum() < FEWEST_MINUTES:
            continue
        logs = np.log(one.numerator[there] / one.denominator[there])
        cells = cell[there]
        counted = np.bincount(cells)
        mean = np.bincount(cells, weights=logs) / np.maximum(counted, 1)
        lengths.append(block_length(logs - mean[cells]))
    return max(lengths)
