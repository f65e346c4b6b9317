"""What a change of throughput is made of, and the smallest change that would be noticed. Pure.

The factors multiply to the whole (docs/, "Attribution of throughput"): tokens/s/GPU = effective
batch / mean ITL x (1 + first tokens per later token) / GPUs, and the ITL is that of the step-time
model over the speed at equal load.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

from driftwatch.evidence import BY_NAME
from driftwatch.notify.numbers import change, clean, figure, percent, times

Values = Mapping[str, Any]

_COLUMN = "throughput_factor_{}_ratio"
# factor of the evidence → what explain calls it
_WORDS: Mapping[str, str] = {
    "batch": "batch",
    "load": "load a step",
    "speed": "speed",
    "first_tokens": "first tokens",
    "gpus": "GPUs",
}
_DETECTABLE: Mapping[str, str] = {
    "prompts": "prompt_tokens_smallest_detectable_ratio",
    "generations": "generation_tokens_smallest_detectable_ratio",
    "speed": "speed_smallest_detectable_loss_ratio",
}


@dataclass(frozen=True, slots=True)
class Attribution:
    """A change of throughput, taken apart."""

    unit: str  # tokens/s/GPU, or tokens/s of the target where GPUs are not counted
    before: float | None  # of the baseline, in that unit; None where it is not remembered
    now: float | None  # of the window
    ratio: float  # now over before; the product of the factors where one of both is unknown
    factors: Mapping[str, float]  # word → ratio; they multiply to the whole
    unknown: Mapping[str, str]  # word → why it is not among them


def attribution(now: Values, before: Values, reasons: Mapping[str, str]) -> Attribution | str:
    """The factors of a window's throughput against its baseline's, or why there are none.

    Args:
        now: evidence column → value.
        before: column → value of the baseline.
        reasons: column → why it is unknown.
    """
    batch = _ratio(now, before, "effective_batch_size")
    per_token = _ratio(before, now, "itl_seconds_mean")
    whole = _ratio(now, before, "generation_tokens_per_second")
    judged = {word: now.get(_COLUMN.format(name)) for name, word in _WORDS.items()}
    speed = now.get("speed_at_equal_load_ratio")
    factors: dict[str, float] = {}
    if batch and per_token and whole:
        # of this very window; the detector's factors are those of the last 10 min
        factors["batch"] = batch
        parts = {"load a step": per_token / speed, "speed": speed} if speed else {}
        factors |= parts or {"tokens/s a request": per_token}
        factors["first tokens"] = whole / (batch * per_token)
    elif all(judged[word] for word in ("batch", "load a step", "speed", "first tokens")):
        factors = {word: float(f) for word, f in judged.items() if f and word != "GPUs"}
        whole = prod(factors.values())
    else:
        return reason_of(_COLUMN.format("batch"), reasons)
    if now.get("spec_decode_acceptance_ratio") is not None:
        # an output brings accepted tokens besides, and they are what moves there
        factors["tokens an output"] = factors.pop("first tokens")
    unit, column = "tokens/s", "generation_tokens_per_second"
    gpus = _ratio(before, now, "gpu_count")
    if gpus and _ratio(now, before, "tokens_per_second_per_gpu"):
        unit, column, whole = "tokens/s/GPU", "tokens_per_second_per_gpu", whole * gpus
        if round(gpus, 3) != 1:
            factors["GPUs"] = gpus
    unknown = {}
    if "speed" not in factors:
        unknown["load and speed"] = reason_of("slower_at_equal_load", reasons)
    return Attribution(unit, before.get(column), now.get(column), whole, factors, unknown)


def attribution_text(now: Values, before: Values, reasons: Mapping[str, str]) -> str:
    """``5,280 → 2,990 tokens/s/GPU (-43 %): batch -29 %, load a step -20 %, speed +0 %``."""
    comparison = attribution(now, before, reasons)
    if isinstance(comparison, str):
        return f"not compared: {comparison}"
    numbers = comparison.unit
    if comparison.before is not None and comparison.now is not None:
        numbers = f"{figure(comparison.before)} → {figure(comparison.now)} {comparison.unit}"
    parts = ", ".join(f"{word} {change(ratio)}" for word, ratio in comparison.factors.items())
    return f"{numbers} ({change(comparison.ratio)}): {parts}"


def speed_text(now: Values, reasons: Mapping[str, str]) -> str:
    """``100 % of what is expected at this load``, ``19 % slower at equal load``, or why unknown."""
    slower, ratio = now.get("slower_at_equal_load"), now.get("speed_at_equal_load_ratio")
    if slower is None:
        return f"not judged: {reason_of('slower_at_equal_load', reasons)}"
    if slower and ratio is not None and ratio < 1:
        return f"{percent(1 - ratio)} slower at equal load"
    demand = now.get("speed_at_equal_demand_ratio")
    if slower and demand is not None and demand < 1:
        return f"at least {percent(1 - demand)} slower at equal demand"
    if slower:
        return "slower at equal load"
    return "as expected" if ratio is None else f"{percent(ratio)} of what is expected at this load"


def detectable_text(now: Values, reasons: Mapping[str, str]) -> str:
    """The smallest changes that would be noticed: ``prompts ×1.3, speed -12 %``.

    Where that is not known, why: silence is then no sign of health.
    """
    detectable: list[str] = []
    unknown: dict[str, list[str]] = {}
    for word, column in _DETECTABLE.items():
        least = now.get(column)
        if least is None:
            unknown.setdefault(reason_of(column, reasons), []).append(word)
        else:
            detectable.append(f"{word} {f'-{percent(least)}' if word == 'speed' else times(least)}")
    parts = [", ".join(detectable)] if detectable else []
    parts += [f"{' and '.join(words)} unknown ({why})" for why, words in unknown.items()]
    return "; ".join(parts)


def reason_of(column: str, reasons: Mapping[str, str]) -> str:
    """Why a column has no value, without how to mend it."""
    why = reasons.get(column) or BY_NAME[column].disabled_by or "not on the page"
    return clean(why).split(" (")[0]


def _ratio(above: Values, below: Values, column: str) -> float | None:
    one, other = above.get(column), below.get(column)
    return None if not one or not other else float(one) / float(other)
