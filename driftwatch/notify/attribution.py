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

_COLUMN = "throughput_factor_{}_ratio"
_WORDS: Mapping[str, str] = {
    "batch": "batch",
    "load": "load a step",
    "speed": "speed",
    "first_tokens": "first tokens",
    "gpus": "GPUs",
}
# the factors multiply to the measured whole up to measurement; more than that is said
_REST = 0.02


@dataclass(frozen=True, slots=True)
class Attribution:
    """A change of throughput, taken apart.

    Attributes:
        unit: tokens/s/GPU, or tokens/s of the target where GPUs are not counted.
        before: of the reference, in that unit; None where it is not remembered.
        now: of the window.
        ratio: now over before; the product of the factors where one of both is unknown.
        factors: word → ratio, those that are known; they multiply to the whole.
        unknown: word → why.
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
    told = {name: _number(now.get(_COLUMN.format(name))) for name in _WORDS}
    why = {name: _reason(_COLUMN.format(name), reasons) for name in _WORDS}
    itl = _ratio(before, now, "itl_seconds_mean")
    if not told["batch"]:
        told["batch"] = _ratio(now, before, "effective_batch_size")
    if not told["batch"]:
        return why["batch"]
    factors = {_WORDS["batch"]: told["batch"]}
    unknown: dict[str, str] = {}
    load, speed, gpus = told["load"], told["speed"], told["gpus"]
    if load and speed:
        factors |= {_WORDS["load"]: load, _WORDS["speed"]: speed}
    else:
        if itl is None:
            return why["load"]
        factors["time per token"] = itl
        unknown["load and speed"] = why["speed"]
    per_gpu = bool(gpus) and _ratio(now, before, "tokens_per_second_per_gpu") is not None
    column = "tokens_per_second_per_gpu" if per_gpu else "generation_tokens_per_second"
    measured = _ratio(now, before, column)
    first = told["first_tokens"]
    if first:
        factors[_WORDS["first_tokens"]] = first
    elif measured is not None:  # the rest of the identity
        factors[_WORDS["first_tokens"]] = measured / prod(factors.values())
    if per_gpu and gpus and round(gpus, 3) != 1:
        factors[_WORDS["gpus"]] = gpus
    product = prod(factors.values())
    if measured is not None and abs(measured / product - 1) > _REST:
        factors["rest"] = measured / product
    return Attribution(
        "tokens/s/GPU" if per_gpu else "tokens/s",
        before.get(column),
        now.get(column),
        product if measured is None else measured,
        factors,
        unknown,
    )


def attribution_text(now: Values, before: Values, reasons: Mapping[str, str]) -> str:
    """``tokens/s/GPU 5,280 → 2,990 (-43 %) = batch -29 % · load a step -20 % · speed +0 %``."""
    found = attribution(now, before, reasons)
    if isinstance(found, str):
        return f"unknown: {found}"
    numbers = ""
    if found.before is not None and found.now is not None:
        numbers = f" {figure(found.before)} → {figure(found.now)}"
    parts = " · ".join(f"{word} {change(ratio)}" for word, ratio in found.factors.items())
    missing = "".join(f"; {word} unknown: {why}" for word, why in found.unknown.items())
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
    return "speed kept" + ("" if ratio is None else f" ({figure(ratio)} of expected)")


def _reason(column: str, reasons: Mapping[str, str]) -> str:
    """Why a column has no value, without how to mend it."""
    why = reasons.get(column) or BY_NAME[column].disabled_by or "not on the page"
    return clean(why).split(" (")[0]


def _number(found: Any) -> float | None:
    return float(found) if isinstance(found, int | float) else None


def _ratio(above: Values, below: Values, column: str) -> float | None:
    one, other = above.get(column), below.get(column)
    return None if not one or not other else float(one) / float(other)
