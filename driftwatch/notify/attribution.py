"""What a change of throughput is made of, and the signals in plain words. Pure.

The factors multiply to the whole (evidence.md, "Attribution of throughput"): tokens/s/GPU =
effective batch / mean ITL x (1 + first tokens per later token) / GPUs, and the ITL is that of the
load model over the speed at equal load. What is unknown is named with its reason.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

from driftwatch.evidence import BY_NAME
from driftwatch.notify.numbers import (
    bare_seconds,
    change,
    clean,
    figure,
    is_as_before,
    percent,
    seconds,
    times,
)

Values = Mapping[str, Any]

# equal load is measured to 5 % (detection.md, R1)
_KEPT = 0.95
_COLUMN = "throughput_factor_{}_ratio"
_WORDS: Mapping[str, str] = {
    "batch": "batch",
    "load": "load a step",
    "speed": "speed",
    "first_tokens": "first tokens",
    "gpus": "GPUs",
}


# its factor is 1 / ITL: it falls where the time rises
_SAID: Mapping[str, str] = {"time per token": "tokens/s a request"}


@dataclass(frozen=True, slots=True)
class Attribution:
    """A change of throughput, taken apart.

    Attributes:
        unit: tokens/s/GPU, or tokens/s of the target where GPUs are not counted.
        before: of the reference, in that unit; None where it is not remembered.
        now: of the window.
        ratio: now over before; the product of the factors where one of both is unknown.
        factors: word → ratio; they multiply to the whole.
        unknown: word → why it is not among them.
    """

    unit: str
    before: float | None
    now: float | None
    ratio: float
    factors: Mapping[str, float]
    unknown: Mapping[str, str]


def attribution(now: Values, before: Values, reasons: Mapping[str, str]) -> Attribution | str:
    """The factors of a window's throughput against its reference's, or why there are none.

    Args:
        now: evidence column → value.
        before: column → value of the reference.
        reasons: column → why it is unknown.
    """
    batch, per_token, whole = (
        _ratio(*pair, column)
        for pair, column in (
            ((now, before), "effective_batch_size"),
            ((before, now), "itl_seconds_mean"),
            ((now, before), "generation_tokens_per_second"),
        )
    )
    told = {name: _number(now.get(_COLUMN.format(name))) for name in _WORDS}
    factors: dict[str, float] = {}
    if batch and per_token and whole:
        # of this very window; the detector's factors are those of the last 10 min
        factors["batch"] = batch
        factors |= _load_and_speed(per_token, _number(now.get("speed_at_equal_load_ratio")))
        factors["first tokens"] = whole / (batch * per_token)
    elif told["batch"] and told["load"] and told["speed"] and told["first_tokens"]:
        factors = {_WORDS[n]: f for n, f in told.items() if f and n != "gpus"}
        whole = prod(factors.values())
    else:
        return _reason(_COLUMN.format("batch"), reasons)
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
        unknown["load and speed"] = _reason("slower_at_equal_load", reasons)
    return Attribution(unit, before.get(column), now.get(column), whole, factors, unknown)


def _load_and_speed(per_token: float, speed: float | None) -> dict[str, float]:
    """1 / ITL as what a step has to do and how fast it does it, where the speed is known."""
    if not speed:
        return {"time per token": per_token}
    return {"load a step": per_token / speed, "speed": speed}


def attribution_text(now: Values, before: Values, reasons: Mapping[str, str]) -> str:
    """``tokens/s/GPU 5,280 → 2,990 (-43 %) = batch -29 % · load a step -20 % · speed +0 %``."""
    found = attribution(now, before, reasons)
    if isinstance(found, str):
        return f"unknown: {found}"
    numbers = ""
    if found.before is not None and found.now is not None:
        numbers = f" {figure(found.before)} → {figure(found.now)}"
    parts = " · ".join(
        f"{_SAID.get(word, word)} {change(ratio)}" for word, ratio in found.factors.items()
    )
    missing = "".join(f"; {word} not told apart" for word in found.unknown)
    return f"{found.unit}{numbers} ({change(found.ratio)}) = {parts}{missing}"


def signals_text(now: Values, before: Values, reasons: Mapping[str, str]) -> str:
    """Requests a pass, tokens/s/GPU, wait and speed beside the lengths, in plain words.

    ``batch a pass 94.8 → 67.0, tokens/s/GPU 5,280 → 2,990, wait 0.01 → 1.66 s, speed kept``; what
    is neither known now nor before is left out, but for the speed, which says why.
    """
    parts: list[str] = []
    for column, word in (
        ("requests_per_forward_pass", "batch a pass"),
        ("tokens_per_second_per_gpu", "tokens/s/GPU"),
        ("generation_tokens_per_second", "tokens/s"),
    ):
        if now.get(column) is None or (word == "tokens/s" and "tokens/s/GPU" in " ".join(parts)):
            continue
        was, is_ = before.get(column), figure(now[column])
        parts.append(f"{word} {is_}" if was is None else f"{word} {figure(was)} → {is_}")
    wait = now.get("batch_assembly_wait_10m_seconds")
    if wait is None:
        wait = now.get("batch_assembly_wait_seconds")
    if wait is not None:
        was = before.get("batch_assembly_wait_seconds")
        both = seconds(wait, 3) if was is None else f"{bare_seconds(was)} → {bare_seconds(wait)} s"
        parts.append(f"wait {both}")
    parts.append(speed_text(now, reasons))
    return ", ".join(parts)


def lengths_text(now: Values) -> str:
    """``prompts ×2.34, generations as before``."""
    parts = []
    for stem in ("prompt", "generation"):
        ratio = now.get(f"{stem}_tokens_mean_ratio")
        if ratio is None:
            parts.append(f"{stem}s not compared")
        else:
            parts.append(f"{stem}s as before" if is_as_before(ratio) else f"{stem}s {times(ratio)}")
    return ", ".join(parts)


def speed_text(now: Values, reasons: Mapping[str, str]) -> str:
    """``speed kept (1.00 of expected)``, ``19 % slower at equal load``, or why it is unknown."""
    slower, ratio = now.get("slower_at_equal_load"), now.get("speed_at_equal_load_ratio")
    if slower and ratio is not None and ratio < 1:
        return f"{percent(1 - ratio)} slower at equal load"
    if slower:
        demand = now.get("speed_at_equal_demand_ratio")
        if demand is not None and demand < 1:
            return f"at least {percent(1 - demand)} slower at equal demand"
        return "slower at equal load"
    if slower is None:
        return f"speed unknown: {_reason('slower_at_equal_load', reasons)}"
    if ratio is None or ratio >= _KEPT:
        return "speed kept" + ("" if ratio is None else f" ({figure(ratio)} of expected)")
    least = now.get("speed_smallest_detectable_loss_ratio")
    bound = "not told as slower"
    if least is not None and 1 - ratio < least:
        told = percent(least)  # which may print as the loss itself does
        short = "just under" if told == percent(1 - ratio) else "less than"
        bound = f"{short} the {told} that would be told here"
    return f"speed {percent(1 - ratio)} below what is expected, {bound}"


def _reason(column: str, reasons: Mapping[str, str]) -> str:
    """Why a column has no value, without how to mend it."""
    why = reasons.get(column) or BY_NAME[column].disabled_by or "not on the page"
    return clean(why).split(" (")[0]


def _number(found: Any) -> float | None:
    return float(found) if isinstance(found, int | float) else None


def _ratio(above: Values, below: Values, column: str) -> float | None:
    one, other = above.get(column), below.get(column)
    return None if not one or not other else float(one) / float(other)
