"""PASS, FAIL or INCONCLUSIVE: what the comparison says of what was promised.

The null is: the same distribution at matched traffic. A promise is kept where the figure it is
about improved for certain; it failed where the interval leaves out what was promised and holds "no
better", or where something that was no price got worse for certain.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from driftwatch.verify.compare import FEWEST_MINUTES, FEWEST_REQUESTS, Comparison
from driftwatch.verify.figures import FIGURES, IN_TARGET, SHARES, WORDS
from driftwatch.verify.matching import LOAD_BIN
from driftwatch.verify.verification import Effect, Kind, Verdict

# A share of requests in target that falls by more hurts.
HARM_SHARE = 0.02
# A time or a rate that gets worse by more hurts.
HARM_RATIO = 0.05
# What is served at full load moves by less with the mix of the hour.
OVERLOADED_RATIO = 0.10
# A forecast of the time between tokens may be off by so much (the gate of its own calibration).
PRICE_RATIO = 0.10

# names in a forecast (attributes of driftwatch.recommend.advice.Candidate) → figures
FORECAST_NAMES = {
    "in_target_ratio": IN_TARGET,
    "ttft_seconds": "ttft_seconds_mean",
    "itl_seconds": "itl_seconds_mean",
    "generation_tokens_per_second": "generation_tokens_per_second",
    "running_requests": "running_requests",
}
# What a promise may be about, the first one that was forecast to become better speaks.
_PROMISES = (IN_TARGET, "ttft_seconds_mean", "generation_tokens_per_second", "itl_seconds_mean")


@dataclass(frozen=True, slots=True)
class Judgement:
    """A verdict with its reason."""

    verdict: Verdict
    reason: str
    primary: str | None = None  # the figure that decided; None without one


def promised(values: Mapping[str, Any] | None) -> dict[str, float]:
    """Figure → what a forecast (names of :data:`FORECAST_NAMES`) says of it."""
    return {
        figure: float(values[name])
        for name, figure in FORECAST_NAMES.items()
        if values is not None and isinstance(values.get(name), int | float)
    }


def judge(comparison: Comparison, kind: Kind, forecast: Mapping[str, Any] | None) -> Judgement:
    """The verdict of a comparison.

    ``forecast``: what was promised; None = nobody advised it.
    """
    if not comparison.enough:
        return Judgement("INCONCLUSIVE", _too_little(comparison))
    primary = _primary(comparison, forecast)
    if primary is None:
        return Judgement("INCONCLUSIVE", "no latency of requests is known on both sides")
    if comparison.overloaded:
        return _overloaded(comparison)
    harm = None if comparison.load == "more" else _harm(comparison, forecast)
    if harm is not None:
        return Judgement("FAIL", harm, primary.name)
    low, high = _towards_good(primary)
    certain = abs(primary.after - primary.before) >= _margin(primary)
    if comparison.load != "less" and low > 0 and (forecast is not None or certain):
        text = f"{WORDS[primary.name]} improved{_inside(comparison, forecast)}"
        return Judgement("PASS", text, primary.name)
    if comparison.load != "same":
        return Judgement("INCONCLUSIVE", _load_differs(comparison), primary.name)
    if forecast is not None:
        if (reason := load_not_met(comparison, forecast)) is not None:
            return Judgement("INCONCLUSIVE", reason, primary.name)
        return _unkept(primary, forecast, high)
    if kind == "release" and low > -_margin(primary):
        return Judgement(
            "PASS", f"{WORDS[primary.name]} no worse{_inside(comparison)}", primary.name
        )
    return _untold(comparison, primary, kind)


def load_not_met(comparison: Comparison, forecast: Mapping[str, Any] | None) -> str | None:
    """Why a forecast is not compared: it was made for another load than the one that was met.

    ``forecast``: with ``offered_requests_per_second``; without one nobody knows its load. Returns
    one line; None where the loads are within a bin of each other, or one is not known.
    """
    made_for, carried = (forecast or {}).get("offered_requests_per_second"), comparison.load_after
    if not made_for or not carried or max(carried / made_for, made_for / carried) <= LOAD_BIN:
        return None
    return (
        f"the forecast is for {made_for:.3g} requests/s, the matched minutes after carried "
        f"{carried:.3g}: not compared"
    )


def _untold(comparison: Comparison, primary: Effect, kind: Kind) -> Judgement:
    """Nobody advised it, and neither a gain nor a harm is certain."""
    low, high = _towards_good(primary)
    if low <= 0 <= high:
        text = f"no difference of {WORDS[primary.name]} is shown{_smallest(primary)}"
    else:
        small = max(abs(low), abs(high)) < _margin(primary)
        least = f"{100 * HARM_RATIO:.0f} %"
        if primary.name in SHARES:
            least = f"{100 * HARM_SHARE:.0f} points"
        bound = f"{'less than' if small else 'not known to be more than'} {least}"
        text = f"{WORDS[primary.name]} {_moved(primary)}: {bound}"
    return Judgement("INCONCLUSIVE", text + _inside(comparison), primary.name)


def _overloaded(comparison: Comparison) -> Judgement:
    """Where requests wait before and after, only what is served at full load compares."""
    served = comparison.effect("generation_tokens_per_second")
    one, other = comparison.saturated
    wait = f"requests wait in {100 * one:.0f} % of the minutes before and {100 * other:.0f} % after"
    if served is None:
        return Judgement("INCONCLUSIVE", f"{wait}: times depend on the backlog")
    moved, certain = OVERLOADED_RATIO * served.before, HARM_RATIO * served.before
    if served.low > certain and served.after - served.before >= moved:
        return Judgement("PASS", f"{wait}; more is served at full load", served.name)
    if served.high < -certain and served.before - served.after >= moved:
        return Judgement("FAIL", f"{wait}; less is served at full load", served.name)
    text = (
        f"{wait}: times depend on how long the backlog grew, and no change of what is served shows"
    )
    return Judgement("INCONCLUSIVE", text, served.name)


def _inside(comparison: Comparison, forecast: Mapping[str, Any] | None = None) -> str:
    """What takes longer for certain, where that decided nothing and was no price; else nothing."""
    if comparison.load == "more":
        return ""
    e2e, itl = comparison.effect("e2e_seconds_mean"), comparison.effect("itl_seconds_mean")
    if e2e is not None and e2e.low > HARM_RATIO * e2e.before:
        low, high = (100 * limit / e2e.before for limit in (e2e.low, e2e.high))
        return f"; inside the targets a request takes {low:.0f}…{high:.0f} % longer"
    priced = "itl_seconds_mean" in promised(forecast)
    if itl is not None and not priced and itl.low > HARM_RATIO * itl.before:
        return f"; {WORDS[itl.name]} {_moved(itl)}"
    return ""


def _moved(effect: Effect) -> str:
    """By how much a figure moved that did for certain, in words."""
    low, high = sorted((abs(effect.low), abs(effect.high)))
    way = "higher" if effect.low > 0 else "lower"
    if effect.name in SHARES or not effect.before:
        return f"{100 * low:.0f}…{100 * high:.0f} points {way}"
    low, high = (100 * limit / abs(effect.before) for limit in (low, high))
    return f"{low:.0f}…{high:.0f} % {way}"


def _smallest(primary: Effect) -> str:
    """Which difference does not show, in words."""
    half = (primary.high - primary.low) / 2
    if primary.name in SHARES:
        return f": less than {100 * half:.0f} points does not show"
    if not primary.before:
        return ""
    return f": less than {100 * half / abs(primary.before):.0f} % does not show"


def _unkept(primary: Effect, forecast: Mapping[str, Any], high: float) -> Judgement:
    gain = _promised_gain(primary, forecast)
    if gain is not None and high < gain:
        return Judgement(
            "FAIL", f"{WORDS[primary.name]} did not improve as was promised", primary.name
        )
    text = f"the interval of {WORDS[primary.name]} holds both no change and the promise"
    return Judgement("INCONCLUSIVE", text + _smallest(primary), primary.name)


def _primary(comparison: Comparison, forecast: Mapping[str, Any] | None) -> Effect | None:
    """The figure that decides: promised first, else requests in target, else a request's time."""
    promises, today = promised(forecast), promised((forecast or {}).get("today"))
    for name in _PROMISES:
        effect = comparison.effect(name)
        if effect is None or name not in promises:
            continue
        base = today.get(name, effect.before)
        if (promises[name] - base) * _sign(name) > _margin_of(name, base):
            return effect
    for name in (IN_TARGET, "e2e_seconds_mean", "ttft_seconds_mean", "itl_seconds_mean"):
        if (effect := comparison.effect(name)) is not None:
            return effect
    return None


def _promised_gain(primary: Effect, forecast: Mapping[str, Any]) -> float | None:
    """How far the promise would have moved the figure, towards good; None without a promise."""
    promises, today = promised(forecast), promised(forecast.get("today"))
    if primary.name not in promises:
        # capacity was promised: requests need not wait any more; a tenth of that would show
        return 0.1 * abs(primary.before) if forecast else None
    promise, base = promises[primary.name], today.get(primary.name, primary.before)
    if primary.name in SHARES or base <= 0:
        gain = promise - base
    else:
        gain = primary.before * (promise / base - 1)
    return gain * _sign(primary.name)


def _harm(comparison: Comparison, forecast: Mapping[str, Any] | None) -> str | None:
    """What became worse for certain, in words; None where nothing did."""
    shares = [e for name in SHARES[1:] if (e := comparison.effect(name)) is not None]
    for effect in shares:
        if effect.high < -HARM_SHARE:
            return f"{WORDS[effect.name]} fell"
    # with targets, a longer time inside them is no harm
    e2e = comparison.effect("e2e_seconds_mean")
    if not shares and e2e is not None and e2e.low > HARM_RATIO * e2e.before:
        return f"{WORDS[e2e.name]} rose"
    served = comparison.effect("generation_tokens_per_second")
    if (
        served is not None
        and served.high < -HARM_RATIO * served.before
        and comparison.load == "same"
    ):
        return f"{WORDS[served.name]} fell at the same demand"
    return _beyond_price(comparison, forecast)


def _beyond_price(comparison: Comparison, forecast: Mapping[str, Any] | None) -> str | None:
    """The time between tokens rose by more than was forecast, for certain."""
    name = "itl_seconds_mean"
    effect, price = comparison.effect(name), promised(forecast).get(name)
    if effect is None or price is None or comparison.load != "same":
        return None
    base = promised((forecast or {}).get("today")).get(name, effect.before)
    allowed = max(1.0, price / base) * (1 + PRICE_RATIO) if base > 0 else 1 + PRICE_RATIO
    if effect.before + effect.low > allowed * effect.before:
        return f"{WORDS[effect.name]} rose by more than its price (×{allowed:.2f})"
    return None


def _towards_good(effect: Effect) -> tuple[float, float]:
    """Limits of the effect, positive = better."""
    if _sign(effect.name) > 0:
        return effect.low, effect.high
    return -effect.high, -effect.low


def _margin(effect: Effect) -> float:
    return _margin_of(effect.name, effect.before)


def _margin_of(name: str, base: float) -> float:
    return HARM_SHARE if name in SHARES else HARM_RATIO * abs(base)


def _sign(name: str) -> float:
    return 1.0 if FIGURES[name].better == "higher" else -1.0


def _too_little(comparison: Comparison) -> str:
    one, other = comparison.matched.minutes
    text = f"{one} minutes before and {other} after carry the same load and lengths"
    if min(one, other) >= FEWEST_MINUTES:
        return f"{text}, with {comparison.requests:.0f} requests ({FEWEST_REQUESTS} are needed)"
    return f"{text} ({FEWEST_MINUTES} are needed)"


def _load_differs(comparison: Comparison) -> str:
    one, other = comparison.load_before or 0.0, comparison.load_after or 0.0
    return (
        f"demand cannot be matched: {one:.3g} requests/s were offered before, {other:.3g} after; "
        "what differs may be the demand's"
    )
