"""PASS, FAIL or INCONCLUSIVE on a change: its minutes before and after, matched and compared.

PASS: the promised figure improved for certain. FAIL: the interval excludes the promise, or a
figure that was not the price got worse for certain.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import datetime
from typing import Any

import polars as pl

from driftwatch.model import Slo
from driftwatch.verify.effects import effects_of
from driftwatch.verify.figures import E2E, FIGURES, IN_TARGET, ITL, TOKENS, TTFT, WORDS, parts
from driftwatch.verify.matching import ALIKE, LENGTHS, matched
from driftwatch.verify.verification import Effect, Verdict, Verification

# Matched minutes that a verdict takes. A day after a change the minutes before it are deleted.
FEWEST_MINUTES, MOST_MINUTES = 10, 1440
# Harm: the share in target falls by more, or a time or a rate gets worse by more.
HARM_SHARE, HARM_RATIO = 0.02, 0.05
SLOWER = "slower, still in target"  # of a release; a setting may have its price
# A forecast of the time between tokens may be off by so much (the gate of its calibration).
PRICE_RATIO = 0.10

# The verdict is on the first figure with a promised gain, else on the first measured one.
_PROMISES, _UNPROMISED = (IN_TARGET, TTFT, TOKENS, ITL), (IN_TARGET, E2E, TTFT, ITL, TOKENS)

Values = Mapping[str, float]


def verified(
    opened: Verification,
    before: pl.DataFrame,
    after: pl.DataFrame,
    at: datetime,
    *,
    slo: Slo | None = None,
    confidence: float = 0.95,
) -> Verification:
    """Judge a verification by these minutes; its verdict is never "open".

    ``before``, ``after``: from :func:`driftwatch.verify.matching.comparable`; ``slo``: latency
    targets; None = those that the forecast was made for.
    """
    forecast, notes = opened.forecast, []
    made_for_slo = (forecast or {}).get("slo") or {}
    promised_for = (made_for_slo.get("ttft_seconds"), made_for_slo.get("tpot_seconds"))
    if slo is None and made_for_slo:
        slo = Slo(*promised_for)
    elif forecast and slo is not None and (slo.ttft_seconds, slo.tpot_seconds) != promised_for:
        forecast = {**forecast, "in_target_ratio": None}  # the share is of other targets
    if (several := len(opened.change.what)) > 1:
        notes.append(f"{several} things changed at once: the verdict is on all of them together")
    pairs = matched(before.filter(~pl.col("backlogged")), after)
    full = matched(before.filter("saturated"), after.filter("saturated"), LENGTHS)
    full_load = min(pairs.minutes) < FEWEST_MINUTES <= min(full.minutes)
    if full_load:  # times show how long a backlog grew; tokens/s show the capacity
        pairs, forecast = full, None
        notes.append("requests waited before and after: only tokens/s at full load are compared")
    load = float(pairs.after["requests_per_second"].sum()) / max(1, len(pairs.after))
    made_for = (forecast or {}).get("offered_requests_per_second") or load
    if load and max(load / made_for, made_for / load) > ALIKE["requests_per_second"]:
        forecast = None
        notes.append(f"the forecast is for {made_for:.3g} requests/s, and {load:.3g} arrived")
    effects: dict[str, tuple[Effect, float]] = {}
    if min(pairs.minutes) >= FEWEST_MINUTES:
        effects = effects_of(pairs, slo, promised(forecast), confidence)
        effects = {n: one for n, one in effects.items() if n == TOKENS or not full_load}
        notes.append(
            f"{load:.3g} requests/s arrived in the minutes compared; limits of a difference are "
            f"{100 * confidence:.0f} % intervals, with the engine's usual variation in them"
        )
    still = _still_missed(pairs.after, slo)
    primary, verdict, reason, more = _judge(effects, opened.change.kind, forecast, pairs.minutes)
    if reason == SLOWER and still is not None:
        reason = f"{WORDS[primary or E2E]} rose"
    return opened.model_copy(
        update={
            "closed_at": at,
            "verdict": verdict,
            "reason": reason,
            "effects": tuple(effects[n][0] for n in sorted(effects, key=lambda n: n != primary)),
            "still_missed_ratio": still,
            "matched_minutes": pairs.minutes,
            "more_minutes": more,
            "notes": tuple(notes),
        }
    )


def _still_missed(after: pl.DataFrame, slo: Slo | None) -> float | None:
    """The share of requests that missed a target; None = no more than allowed, or unknown."""
    kept = parts(after, slo).get(IN_TARGET) if len(after) else None
    if kept is None or slo is None:
        return None
    share = float(kept[0].sum() / kept[1].sum())
    return 1 - share if share < slo.share else None


def promised(values: Mapping[str, Any] | None) -> dict[str, float]:
    """Figure → its value in a forecast; empty without one."""
    known = {name: (values or {}).get(one.forecast) for name, one in FIGURES.items()}
    return {name: float(one) for name, one in known.items() if isinstance(one, int | float)}


def _judge(
    found: Mapping[str, tuple[Effect, float]],
    kind: str,
    forecast: Mapping[str, Any] | None,
    minutes: tuple[int, int],
) -> tuple[str | None, Verdict, str, int | None]:
    """The deciding figure, the verdict, its reason, and how many more minutes would settle it."""
    if not found:
        text = f"{minutes[0]} min before and {minutes[1]} min after have the same load and lengths"
        return None, "INCONCLUSIVE", f"{text}; a verdict needs {FEWEST_MINUTES} of each", None
    promises, today = promised(forecast), promised((forecast or {}).get("today"))
    effects = {name: effect for name, (effect, _) in found.items()}
    name = _primary(effects, promises, today)
    effect, words, margin = effects[name], WORDS[name], _margin(effects[name])
    gain, low, high = improvement(effect)
    goal = None if forecast is None else _goal(effect, promises, today)
    if (harm := _harm(effects, promises, today)) is not None:
        return name, "FAIL", harm, None
    if low > 0 and (goal is not None or gain >= margin):
        return name, "PASS", f"{words} improved", None
    if goal is not None and high < goal:
        return name, "FAIL", f"{words} did not improve as promised", None
    slower = (n for n in (ITL, E2E) if n in effects and _is_worse(effects[n]))
    if kind == "release" and IN_TARGET in effects and (worse := next(slower, None)) is not None:
        return worse, "FAIL", SLOWER, None
    if kind == "release" and low > -margin:
        return name, "PASS", f"{words} no worse", None
    # to settle it, the interval must exclude 0 or the promise, or be as narrow as the margin
    if goal is None:
        shrink, aim = 2 * margin / (high - low), f"show a difference of {_size(margin, effect)}"
    else:
        shrink, aim = max(gain / (gain - low), (goal - gain) / (high - gain)), "settle it"
    # the minutes before fix a part of the variance; the rest falls as 1 / minutes
    fixed, more = found[name][1], None
    if fixed < shrink**2 < 1:
        more = math.ceil(minutes[1] * ((1 - fixed) / (shrink**2 - fixed) - 1))
        more = more if minutes[1] + more <= MOST_MINUTES else None
    least = _size((high - low) / 2, effect)
    text = f"{words}: a difference below {least} would not show"
    if least.startswith("0 "):
        text = f"{words} did not change"
    if shrink < 1:
        wait = f"at least {more} more minutes of such load would"
        text = f"{text}; {'a day of such load would not' if more is None else wait} {aim}"
    return name, "INCONCLUSIVE", text, more


def _primary(effects: Mapping[str, Effect], promises: Values, today: Values) -> str:
    for name in (name for name in _PROMISES if name in effects and name in promises):
        if _goal(effects[name], promises, today) > _margin(effects[name]):
            return name
    return next((name for name in _UNPROMISED if name in effects), next(iter(effects)))


def _goal(effect: Effect, promises: Values, today: Values) -> float:
    """The promised improvement of the figure."""
    if effect.name not in promises:  # only capacity was promised: expect a visible gain
        return 2 * HARM_RATIO * effect.before
    promise, base = promises[effect.name], today.get(effect.name, effect.before)
    relative = effect.name != IN_TARGET and base > 0
    gain = effect.before * (promise / base - 1) if relative else promise - base
    return gain if FIGURES[effect.name].better == "higher" else -gain


def _harm(effects: Mapping[str, Effect], promises: Values, today: Values) -> str | None:
    """What certainly got worse beyond the forecast price, in words; None = nothing."""
    # where latency targets are set, a longer time within them is no harm
    for name in (IN_TARGET if IN_TARGET in effects else E2E, TOKENS):
        if name in effects and _is_worse(effects[name]):
            return f"{WORDS[name]} {'fell' if FIGURES[name].better == 'higher' else 'rose'}"
    if ITL in effects and ITL in promises:
        itl = effects[ITL]
        allowed = max(1.0, promises[ITL] / today.get(ITL, itl.before)) * (1 + PRICE_RATIO)
        if itl.before + itl.low > allowed * itl.before:
            return f"{WORDS[ITL]} rose by more than the forecast cost (×{allowed:.2f})"
    return None


def _is_worse(effect: Effect) -> bool:
    """For certain, by more than a little."""
    return improvement(effect)[2] < -_margin(effect)


def _margin(effect: Effect) -> float:
    return HARM_SHARE if effect.name == IN_TARGET else HARM_RATIO * effect.before


def _size(value: float, effect: Effect) -> str:
    is_share = effect.name == IN_TARGET
    return f"{100 * value:.0f} points" if is_share else f"{100 * value / effect.before:.0f} %"


def improvement(effect: Effect) -> tuple[float, float, float]:
    """The difference and its limits, positive = better."""
    moved = effect.after - effect.before
    if FIGURES[effect.name].better == "higher":
        return moved, effect.low, effect.high
    return -moved, -effect.high, -effect.low
