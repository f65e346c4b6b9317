"""From simulations to one change that is worth a restart, or to none with the reason."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache

from driftwatch.knobs import flag_of
from driftwatch.model import KnobMove, Provenance, Reason, Recommendation, Serving, Slo
from driftwatch.recommend.advice import Candidate, Gate
from driftwatch.recommend.candidates import Case, candidate
from driftwatch.recommend.ground import Ground
from driftwatch.recommend.horizon import gain_interval
from driftwatch.recommend.price import (
    Elsewhere,
    effect_of,
    forecast_of,
    instead_of,
    not_cured_by,
    price_of,
    wrong_if,
)
from driftwatch.recommend.scenarios import setting_of
from driftwatch.recommend.sweep import Gain, gain_of
from driftwatch.recommend.sweep_values import Knobs, capture_size_at_least, refusal
from driftwatch.recommend.traffic.observed import Observed
from driftwatch.recommend.words import aims, change, digits, percent, within
from driftwatch.simulate.requests import Requests

# the mean gain, and that by every model
MEAN_GAIN, EVERY_GAIN = 0.04, 0.02
HARM = 0.02  # points that no scenario, and no demand, may lose
# Far from the targets the server stays overloaded; a few points more are luck of its queue: only
# much more capacity is worth a restart, or a tenth of all requests more in target.
FAR_SHARE, FAR_CAPACITY_GAIN, FAR_GAIN = 0.3, 0.20, 0.10
MOST = 0.5  # of the requests in every target: a target that is met may be given up for it
NEARLY = 0.7  # of the demand: what an overloaded server must be able to serve after the change
CAPACITY_GAIN = 0.10  # of the capacity in every scenario, where the share is met already
SHARE_KEPT = 0.005


def worth_it(ground: Ground, gain: Gain) -> bool:
    """The share rises enough on average and by every fit, and nothing loses what counts as harm.

    A demand at which a change brings nothing is no reason against it, nor is an end of the interval
    of a step's time or an assumed setting in which it does: both are possible. That it harms in one
    of them is.
    """
    if ground.objective == "latency":
        return gain.least >= -SHARE_KEPT and gain.latency_ratio <= 1 - CAPACITY_GAIN
    enough = gain.mean >= MEAN_GAIN and gain.least_likely >= EVERY_GAIN
    return enough and min(gain.least, gain.least_demand) >= -HARM


def nearly_enough(case: Case, then: Candidate) -> bool:
    """An overloaded server that would serve a fifth more, and nearly all of the demand."""
    low = then.capacity_low_requests_per_second
    if low is None or low < NEARLY * case.offered:
        return False
    return more_capacity(case.today, then, FAR_CAPACITY_GAIN)


def more_capacity(today: Candidate, then: Candidate, gain: float = CAPACITY_GAIN) -> bool:
    """So much more in every scenario, and no smaller share in target at today's demand."""
    pairs = (
        (today.capacity_low_requests_per_second, then.capacity_low_requests_per_second),
        (today.capacity_high_requests_per_second, then.capacity_high_requests_per_second),
    )
    if any(not before or after is None for before, after in pairs):
        return False
    if then.in_target_low_ratio is None or today.in_target_low_ratio is None:
        return False
    keeps_share = then.in_target_low_ratio >= today.in_target_low_ratio - SHARE_KEPT
    return keeps_share and all(after >= before * (1 + gain) for before, after in pairs)  # type: ignore[operator]


def kept_at_more_demand(ground: Ground, gain: Gain) -> bool:
    """Where the targets are met: today's settings lose them at a little more demand, these do not.

    Else the capacity is a number that nobody meets, and no reason for a restart.
    """
    if ground.objective == "latency":
        return False
    then = gain_of(ground, gain.knobs, (max(ground.demands),))
    return then is not None and worth_it(ground, then)


def far_and_no_nearer(today: Candidate, then: Candidate, gain: Gain) -> bool:
    """Most requests miss the targets still, few more meet them, the capacity is about the same."""
    if gain.share >= FAR_SHARE or gain.mean >= FAR_GAIN:
        return False
    before, after = today.capacity_low_requests_per_second, then.capacity_low_requests_per_second
    return not before or after is None or after < before * (1 + FAR_CAPACITY_GAIN)


def broken_by(case: Case, then: Candidate, gain: Gain) -> str | None:
    """The target that is met today and that the change would break by its own forecast.

    A target is met where its share is, by the window's p95 if it was observed, else by the
    simulation. The change breaks it where fewer than the share meet it afterwards, and fewer than
    by today's simulation. Where most requests miss another target already, meeting this one serves
    few of them: it is given up for a change after which most requests meet every target.
    """
    slo = case.ground.judged.slo
    if slo is None:
        return None
    if gain.share - gain.mean < FAR_SHARE and gain.share >= MOST:
        return None
    alone = {"ttft": Slo(slo.ttft_seconds, None), "tpot": Slo(None, slo.tpot_seconds)}
    for name, of_one in alone.items():
        before = getattr(case.today, f"{name}_in_target_ratio")
        after = getattr(then, f"{name}_in_target_ratio")
        if before is None or after is None:
            continue
        is_met = case.met_in_window.get(name)
        is_met = before >= slo.share if is_met is None else is_met
        if is_met and after < slo.share and after < before - SHARE_KEPT:
            return aims(of_one)
    return None


def changed(case: Case, then: Candidate, gain: Gain) -> Recommendation:
    """The change, with what it brings, what it costs and what would show it wrong."""
    elsewhere = at_other_demand(gain)
    knob = next(iter(then.knobs))
    scenario = case.ground.scenarios[0].configuration
    now = getattr(scenario, knob)
    return Recommendation(
        "change",
        Reason("forecast", _reason(case, then, elsewhere)),
        knob=knob,
        from_value=None if now is None else float(now),
        from_provenance=_provenance(case.serving, knob),
        to_value=then.knobs[knob],
        also=tuple(
            KnobMove(name, setting_of(scenario, name), value, _provenance(case.serving, name))
            for name, value in then.knobs.items()
            if name != knob
        ),
        price=price_of(case, then),
        undo=undo_of(then, {name: getattr(scenario, name) for name in then.knobs}),
        wrong_if=wrong_if(case, then, elsewhere),
        effect=effect_of(case, then, elsewhere),
        not_cured=not_cured_by(case, then),
        forecast=forecast_of(case, then),
        basis="simulation",
    )


def no_knob(
    case: Case, what_ifs: Sequence[Candidate], gains: Sequence[Gain] = (), breaks: str | None = None
) -> Recommendation:
    """No knob helps, or none is sure to: what does."""
    limit = case.today.capacity_requests_per_second
    aim = aims(case.ground.judged.slo)
    if limit == 0.0:
        reason = Reason("no_knob_helps", f"even requests that are served alone miss {aim}")
    elif case.is_in_target:
        load = f"load {percent(case.utilization or 0.0)} of capacity"
        reason = Reason("not_worth_a_restart", f"{_suffices(case)}, {load}")
    elif breaks is not None:
        reason = Reason("not_worth_a_restart", breaks)
    else:
        reason = _none_helps(case, gains)
    return Recommendation(
        "none", reason, instead=instead_of(case, what_ifs), forecast=None, basis="simulation"
    )


def _none_helps(case: Case, gains: Sequence[Gain]) -> Reason:
    """Whether nothing moves the share, or something does and is not sure or not worth it."""
    best, slo = max(gains, key=lambda gain: gain.mean, default=None), case.ground.judged.slo
    if best is None or best.mean <= SHARE_KEPT:
        brings = "lets" if slo is None else "brings"
        return Reason(
            "no_knob_helps",
            f"no other max_num_seqs or max_num_batched_tokens {brings} more requests {within(slo)}",
        )
    scenario = case.ground.scenarios[0].configuration
    turned = change(best.knobs, {name: setting_of(scenario, name) for name in best.knobs})
    points = f"{round(100 * best.mean):+d} points"
    gained = "of requests that start within 1 s" if slo is None else within(slo)
    if best.mean < MEAN_GAIN:
        return Reason("not_worth_a_restart", f"at best {points} {gained} ({turned})")
    if worth_it(case.ground, best):
        return Reason(
            "not_worth_a_restart",
            f"{turned} brings {points}, and {percent(1 - best.share)} of requests still miss "
            f"{aims(slo)}",
        )
    if best.least_likely < EVERY_GAIN or best.least < -HARM:
        but = f"{round(100 * best.least):+d} by the least favourable step-time model"
    else:
        but = f"{round(100 * best.least_demand):+d} at the least favourable demand"
    return Reason("not_sure_to_help", f"{turned} brings {points} {gained} on average, but {but}")


def no_action(case: Case) -> Recommendation:
    """Inside the targets with margin: nothing is asked of anybody."""
    limit = case.today.capacity_requests_per_second
    load = f", load {percent(case.utilization)} of capacity" if case.utilization else ""
    room = f" ({digits(case.offered)} of {digits(limit)} req/s)" if limit else ""
    return Recommendation(
        "no_action",
        Reason("in_target", f"{_suffices(case)}{load}{room}"),
        basis="simulation",
    )


def _suffices(case: Case) -> str:
    # without a figure: that of a simulation would contradict the measured one in the same line
    return f"today's settings suffice by simulation ({aims(case.ground.judged.slo)})"


def undo_of(then: Candidate, before: dict[str, float | None]) -> str:
    """The arguments as they were."""
    return " ".join(
        f"{flag_of(name)} {before[name]:.0f}"
        if before[name] is not None
        else f"without {flag_of(name)}"
        for name in then.knobs
    )


def at_other_demand(gain: Gain) -> Elsewhere | None:
    """Where a change gains most, if at the observed demand it gains little."""

    def gained(demand: float) -> float:
        now, then = gain.at[demand]
        return then - now

    most = max(gain.at, key=gained)
    if gained(most) < MEAN_GAIN or gained(1.0) >= MEAN_GAIN:
        return None
    return Elsewhere(most, *gain.at[most])


def _reason(case: Case, then: Candidate, elsewhere: Elsewhere | None) -> str:
    now, after = case.today.in_target_ratio or 0.0, then.in_target_ratio or 0.0
    slo = case.ground.judged.slo
    if elsewhere is not None:
        return f"forecast: {elsewhere.text} {within(slo)}"
    if after - now >= MEAN_GAIN:
        return f"forecast: {percent(now)} → {percent(after)} of requests {within(slo)}"
    return f"more capacity{'' if slo is None else f' {within(slo)}'} at these lengths"


def _provenance(serving: Serving, knob: str) -> Provenance | None:
    setting = getattr(serving, knob, None)
    return None if setting is None else setting.provenance


_PARTS = (0.85, 0.7, 0.5, 0.3)  # of the way to a move that would break a target
_SEQUENCES = ("max_num_seqs", "max_num_active_seqs")


@dataclass(frozen=True, slots=True)
class Choice:
    """What is advised, or what kept the best of it from being advised."""

    then: Candidate | None = None  # the change; None = none
    gain: Gain | None = None  # what it brings; None = nothing is advised
    # the interval of the best one's forecast, where it is too wide; else None
    gate: Gate | None = None
    # why a change that brings more is not advised: the target that it would break
    breaks: str | None = None


def chosen(
    case: Case, observed: Observed, judged: Requests, gains: Sequence[Gain], seed: int
) -> Choice:
    """The first that is worth a restart: by the share in target, else by the capacity.

    ``seed``: of the draws that tell how closely the forecast is known.
    """
    near, ground = case.today.capacity_requests_per_second, case.ground
    breaks: str | None = None
    gate: Gate | None = None

    @cache
    def candidate_of(knobs: tuple[tuple[str, float], ...]) -> Candidate:
        return candidate(
            ground, dict(knobs), offered=case.offered, judged_requests=judged, near=near
        )

    for gain in _with_nearer(case, gains):
        if not worth_it(ground, gain):
            continue
        then = candidate_of(tuple(gain.knobs.items()))
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
        if case.is_in_target:
            asks = case.overloaded or kept_at_more_demand(ground, gain)
            wanted = asks and more_capacity(case.today, candidate_of(tuple(gain.knobs.items())))
        elif ground.is_below(gain.knobs, judged, near, NEARLY * case.offered):
            continue  # nor would it be nearly enough in the worst scenario
        else:
            wanted = nearly_enough(case, candidate_of(tuple(gain.knobs.items())))
        if not wanted:
            continue
        then = candidate_of(tuple(gain.knobs.items()))
        if (target := broken_by(case, then, gain)) is None:
            # met today: what it brings is told at more demand
            more = (max(ground.demands),)
            wide = _too_wide(case, observed, gain, seed, more) if case.is_in_target else None
            if wide is None:
                return Choice(then, gain, breaks=breaks)
            gate = gate or wide
            continue
        breaks = breaks or _breaks(case, gain, target)
    return Choice(gate=gate, breaks=breaks)


def _with_nearer(case: Case, gains: Sequence[Gain]) -> Iterator[Gain]:
    """The finalists, then smaller moves of each one's knob, the largest of them first."""
    tried: list[Knobs] = [gain.knobs for gain in gains]
    yield from gains
    today = case.ground.scenarios[0].configuration
    for gain in gains:
        if len(gain.knobs) != 1 or not worth_it(case.ground, gain):
            continue
        ((name, value),) = gain.knobs.items()
        for knobs in _smaller(name, setting_of(today, name) or 0.0, value):
            if knobs in tried or refusal(today, knobs):
                continue
            tried.append(knobs)
            if (nearer := gain_of(case.ground, knobs)) is not None:
                yield nearer


def _smaller(name: str, now: float, value: float) -> list[Knobs]:
    """Values between, a part of the way by factors, the farthest from today first."""
    if now <= 0:
        return []
    candidates: list[Knobs] = []
    for part in _PARTS:
        between = now * (value / now) ** part
        whole = capture_size_at_least(between) if name in _SEQUENCES else round(between)
        if min(now, value) < whole < max(now, value):
            candidates.append({name: float(whole)})
    return candidates


def _breaks(case: Case, gain: Gain, target: str) -> str:
    scenario = case.ground.scenarios[0].configuration
    turned = change(gain.knobs, {name: setting_of(scenario, name) for name in gain.knobs})
    return f"{turned} would bring {round(100 * gain.mean):+d} points in target and break {target}"


def _too_wide(
    case: Case, observed: Observed, gain: Gain, seed: int, demands: Sequence[float] | None = None
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
    arrived = len(observed.requests) - observed.carried_requests
    return Gate(
        "forecast",
        False,
        f"the forecast is too wide: in target {ends} points (80 % interval of {arrived:,} "
        f"requests, limit {round(-100 * HARM):+d}; {round(100 * MEAN_GAIN):+d} on average)",
    )
