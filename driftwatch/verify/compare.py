"""Two stretches of minutes at matched traffic: every figure on both sides, with its interval."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import polars as pl

from driftwatch.arrays import Integers
from driftwatch.model import Slo
from driftwatch.verify.figures import FIGURES, IN_TARGET, SHARES, log_densities, parts
from driftwatch.verify.interval import Both, Level, Side, both_of, difference
from driftwatch.verify.matching import LENGTHS, Matched, matched, traffic_of
from driftwatch.verify.verification import Effect

# As many as a recommendation asks for of its own window.
FEWEST_MINUTES = 10
FEWEST_REQUESTS = 100
# Requests waited in so many of the minutes, before and after.
OVERLOADED_SHARE = 0.2
# Which load the later stretch carries beside the earlier one.
Load = Literal["same", "more", "less"]

_DECILES = np.arange(1, 10) / 10


@dataclass(frozen=True, slots=True, eq=False)
class Comparison:
    """What came of matching."""

    # of every figure known on both sides, in the order of
    # :data:`driftwatch.verify.figures.FIGURES`; empty where too little matched
    effects: tuple[Effect, ...]
    matched: Matched
    # "same" where offered load was matched. Where it cannot be, lengths alone were, and the later
    # stretch carries more or less at every decile: what is better under more load, or worse under
    # less, is so all the more at the same.
    load: Load
    load_before: float | None  # offered requests/s, mean of the matched minutes; None without one
    load_after: float | None
    requests: float  # served in the matched minutes of the side that has fewer
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
    fewest_minutes: int = FEWEST_MINUTES,
) -> Comparison:
    """Compare two stretches at matched traffic.

    ``before``: from :func:`driftwatch.verify.matching.comparable`, by end; ``after``: the same, of
    the changed or of the other server; ``slo``: latency targets; None = no shares of requests in
    target; ``forecast``: figure → what was promised.
    """
    matched, load = _matched(before, after, fewest_minutes)
    by_figure: dict[str, Both] = {}
    sufficient = enough(matched, fewest_minutes)
    if sufficient:
        by_figure = _both(matched, slo, confidence)
    effects = []
    for name, figure in FIGURES.items():
        if (both := by_figure.get(name)) is not None:
            limits = difference(both.before, both.after)
            promise = (forecast or {}).get(name)
            values = both.before.value, both.after.value
            effects.append(Effect(name, *values, *limits, promise, figure.unit))
    served = [float(side["ttft_seconds_count"].sum()) for side in (matched.before, matched.after)]
    one, other = (_load(side, matched) for side in ("before", "after"))
    return Comparison(
        tuple(effects),
        matched,
        load,
        one,
        other,
        min(served),
        sufficient,
        (_waited(before), _waited(after)),
    )


def enough(matched: Matched, fewest_minutes: int = FEWEST_MINUTES) -> bool:
    """Minutes and requests on both sides suffice for an interval."""
    return all(
        len(side) >= fewest_minutes and side["ttft_seconds_count"].sum() >= FEWEST_REQUESTS
        for side in (matched.before, matched.after)
    )


def _matched(before: pl.DataFrame, after: pl.DataFrame, fewest: int) -> tuple[Matched, Load]:
    """Matched on load and lengths; where that leaves too little, on lengths with ordered load."""
    if min(_waited(before), _waited(after)) >= OVERLOADED_SHARE:
        return matched(before.filter("saturated"), after.filter("saturated"), LENGTHS), "same"
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


def _waited(minutes: pl.DataFrame) -> float:
    """Share of the minutes in which requests waited."""
    return int(minutes["saturated"].sum()) / max(1, len(minutes))


def _load(side: Literal["before", "after"], matched: Matched) -> float | None:
    frame, cell = (
        (matched.before, matched.before_cell)
        if side == "before"
        else (matched.after, matched.after_cell)
    )
    if frame.is_empty():
        return None
    share = matched.weights[cell] / np.bincount(cell, minlength=len(matched.weights))[cell]
    return float(np.average(frame["requests_per_second"].to_numpy(), weights=share))


def _both(matched: Matched, slo: Slo | None, confidence: float) -> dict[str, Both]:
    """Figure → both sides, of every one that both know."""
    figures = parts(matched.before, slo), parts(matched.after, slo)
    minutes = _minutes_of(matched)
    # of both sides, whichever has more requests close to the target
    dense = [log_densities(side, slo) for side in (matched.before, matched.after)]
    traffic = [traffic_of(side, matched.by) for side in (matched.before, matched.after)]
    by_figure: dict[str, Both] = {}
    for name in FIGURES:
        if name not in figures[0] or name not in figures[1]:
            continue
        speed = max(one.get(name, 0.0) for one in dense) if name in SHARES else 1.0
        if FIGURES[name].unit.endswith("/s") and "requests_per_second" in matched.by:
            speed = 0.0  # at equal demand as much is served, whatever the speed
        one, other = figures[0][name], figures[1][name]
        both = both_of(
            Side(one, minutes[0], matched.before_cell, matched.weights, traffic[0]),
            Side(other, minutes[1], matched.after_cell, matched.weights, traffic[1]),
            *(name, confidence, speed),
        )
        if both is not None:
            by_figure[name] = both
    _add_in_target(by_figure)
    _bound_wait(by_figure)
    return by_figure


def _bound_wait(by_figure: dict[str, Both]) -> None:
    """A wait is a part of the time to first token, and is no longer than it."""
    part, whole = by_figure.get("batch_assembly_wait_seconds"), by_figure.get("ttft_seconds_mean")
    if part is not None and whole is not None:
        one, other = (
            Level(*(min(x, y) for x, y in zip(inner, outer, strict=True)))
            for inner, outer in ((part.before, whole.before), (part.after, whole.after))
        )
        by_figure["batch_assembly_wait_seconds"] = replace(part, before=one, after=other)


def _minutes_of(matched: Matched) -> tuple[Integers, Integers]:
    """Whole minutes of both sides since the first of them."""
    ends = [side["end"].dt.epoch("s").to_numpy() // 60 for side in (matched.before, matched.after)]
    first = min(int(one.min()) for one in ends)
    one, other = ((end - first).astype(np.int64) for end in ends)
    return one, other


def _add_in_target(by_figure: dict[str, Both]) -> None:
    """Requests that meet every target: at most as many as meet the one that fewest meet."""
    shares = [
        by_figure[n] for n in ("ttft_in_target_ratio", "tpot_in_target_ratio") if n in by_figure
    ]
    if shares:
        one = min(shares, key=lambda both: both.before.value)
        other = min(shares, key=lambda both: both.after.value)
        by_figure[IN_TARGET] = Both(one.before, other.after)
