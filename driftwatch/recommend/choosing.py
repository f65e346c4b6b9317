"""Which of the finalists is advised: the first that is worth a restart and that nothing forbids."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache

from driftwatch.recommend.advice import Candidate, Gate
from driftwatch.recommend.candidates import candidate, surely_below
from driftwatch.recommend.case import Case
from driftwatch.recommend.closed_form import capture_size_at_least
from driftwatch.recommend.information import gain_interval
from driftwatch.recommend.observed.traffic import Observed
from driftwatch.recommend.sweep import Gain, gain_of
from driftwatch.recommend.sweep_candidates import Knobs, refusal
from driftwatch.recommend.verdict import (
    HARM,
    MEAN_GAIN,
    NEARLY,
    broken_by,
    far_and_no_nearer,
    kept_at_more_demand,
    more_capacity,
    nearly_enough,
    worth_it,
)
from driftwatch.recommend.wording import change
from driftwatch.recommend.worlds import setting_of
from driftwatch.simulate.requests import Requests

_PARTS = (0.85, 0.7, 0.5, 0.3)  # of the way to a move that would break a target
_SEQUENCES = ("max_num_seqs", "max_num_active_seqs")


@dataclass(frozen=True, slots=True)
class Choice:
    """What is advised, or what kept the best of it from being advised.

    Attributes:
        then: the change; None = none.
        gain: what it brings; None = nothing is advised.
        gate: the interval of the best one's forecast, where it is too wide; else None.
        breaks: why a change that brings more is not advised: the target that it would break.
    """

    then: Candidate | None = None
    gain: Gain | None = None
    gate: Gate | None = None
    breaks: str | None = None


def chosen(
    case: Case, observed: Observed, judged: Requests, gains: Sequence[Gain], seed: int
) -> Choice:
    """The first that is worth a restart: by the share in target, else by the capacity.

    Args:
        case: today.
        observed: the traffic that is judged.
        judged: the same, going on.
        gains: of the finalists, best first.
        seed: of the draws that tell how closely the forecast is known.
    """
    near, ground = case.today.capacity_requests_per_second, case.ground
    breaks: str | None = None
    gate: Gate | None = None

    @cache
    def made(knobs: tuple[tuple[str, float], ...]) -> Candidate:
        return candidate(
            ground,
            dict(knobs),
            offered=case.offered,
            judged_requests=judged,
            near=near,
        )

    for gain in _with_nearer(case, gains):
        if not worth_it(ground, gain):
            continue
        then = made(tuple(gain.knobs.items()))
        if far_and_no_nearer(case.today, then, gain):
            continue
        if (target := broken_by(case, then, gain)) is not None:
            breaks = breaks or _breaks(case, gain, target)
            continue
        wide = _too_wide(case, observed, gain, seed)
        if wide is None:
            return Choice(then, gain)
        gate = gate or wide
    if case.margin:
        return Choice(gate=gate, breaks=breaks)
    for gain in gains[:2]:
        if case.met:
            asks = case.overloaded or kept_at_more_demand(ground, gain)
            wanted = asks and more_capacity(case.today, made(tuple(gain.knobs.items())))
        elif surely_below(ground, gain.knobs, judged, near, NEARLY * case.offered):
            continue  # nor would it be nearly enough in the worst world
        else:
            wanted = nearly_enough(case, made(tuple(gain.knobs.items())))
        if not wanted:
            continue
        then = made(tuple(gain.knobs.items()))
        if (target := broken_by(case, then, gain)) is None:
            # met today: what it brings is told at more demand
            more = (max(ground.demands),)
            wide = _too_wide(case, observed, gain, seed, more) if case.met else None
            if wide is None:
                return Choice(then, gain, breaks=breaks)
            gate = gate or wide
            continue
        breaks = breaks or _breaks(case, gain, target)
    return Choice(gate=gate, breaks=breaks)


def _with_nearer(case: Case, gains: Sequence[Gain]) -> Iterator[Gain]:
    """The finalists, then smaller moves of each one's knob, the largest of them first.

    They are looked at only where the larger move was forbidden: what is taken ends the search.
    """
    tried: list[Knobs] = [gain.knobs for gain in gains]
    yield from gains
    today = case.ground.worlds[0].configuration
    for gain in gains:
        if len(gain.knobs) != 1 or not worth_it(case.ground, gain):
            continue
        ((name, value),) = gain.knobs.items()
        for knobs in _smaller(name, setting_of(today, name) or 0.0, value):
            if knobs in tried or refusal(today, knobs):
                continue
            tried.append(knobs)
            if (found := gain_of(case.ground, knobs)) is not None:
                yield found


def _smaller(name: str, now: float, value: float) -> list[Knobs]:
    """Values between, a part of the way by factors, the farthest from today first."""
    if now <= 0:
        return []
    found: list[Knobs] = []
    for part in _PARTS:
        between = now * (value / now) ** part
        whole = capture_size_at_least(between) if name in _SEQUENCES else round(between)
        if min(now, value) < whole < max(now, value):
            found.append({name: float(whole)})
    return found


def _breaks(case: Case, gain: Gain, target: str) -> str:
    world = case.ground.worlds[0].configuration
    turned = change(gain.knobs, {name: setting_of(world, name) for name in gain.knobs})
    return f"{turned} would bring {round(100 * gain.mean):+d} points in target and break {target}"


def _too_wide(
    case: Case,
    observed: Observed,
    gain: Gain,
    seed: int,
    demands: Sequence[float] | None = None,
) -> Gate | None:
    """The gate on the forecast's interval, where the requests of the window leave it too wide."""
    if case.ground.objective == "latency":
        return None
    interval = gain_interval(case.ground, observed, gain.knobs, seed, demands)
    if interval is not None and interval.low >= -HARM and interval.mean >= MEAN_GAIN:
        return None
    ends = "an unknown number of"
    if interval is not None:
        ends = f"{round(100 * interval.low):+d} to {round(100 * interval.high):+d}"
    came = len(observed.requests) - observed.carried_requests
    return Gate(
        "forecast",
        False,
        f"in target {ends} points (80 % interval) by the {came:,} requests of this traffic "
        f"(gate {round(-100 * HARM):+d}, {round(100 * MEAN_GAIN):+d} on average)",
    )
