"""The factors of a change of throughput. Pure.

Their product is the change (docs/, "Attribution of throughput"): tokens/s/GPU = effective batch /
mean ITL x (1 + first tokens per later token) / GPUs; ITL = step-time model / speed at equal load.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import log
from typing import Any

from driftwatch.evidence import BY_NAME
from driftwatch.notify.columns import evidence_text
from driftwatch.numbers import change, clean, figure

Values = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Attribution:
    """A change of throughput and its factors."""

    unit: str  # tokens/s/GPU; tokens/s of the target where the GPU count is unknown
    before: float  # of the baseline, in that unit
    now: float  # of the window
    ratio: float  # now / before
    factors: Mapping[str, float]  # word → ratio; the product is ``ratio``
    unknown: Mapping[str, str]  # word of a missing factor → why it is unknown


def attribution(now: Values, before: Values, reasons: Mapping[str, str]) -> Attribution | str:
    """The factors of a window's throughput against its baseline's, or why there are none.

    ``now``, ``before``: evidence column → value; ``reasons``: column → why it is unknown.
    """
    unit, column = "tokens/s", "generation_tokens_per_second"
    batch = _ratio(now, before, "effective_batch_size")
    per_token, whole = _ratio(before, now, "itl_seconds_mean"), _ratio(now, before, column)
    if not (batch and per_token and whole):
        return _why_none(now, before, reasons)
    # no factor from a speed that is not judged
    is_judged = "slower_at_equal_load" not in reasons
    speed = now.get("speed_at_equal_load_ratio") if is_judged else None
    parts = {"load a step": per_token / speed, "speed": speed} if speed else {}
    factors = {"batch": batch, **(parts or {"tokens/s a request": per_token})}
    # with speculative decoding the accepted tokens per output move this factor
    drafts = now.get("spec_decode_acceptance_ratio") is not None
    factors["tokens an output" if drafts else "first tokens"] = whole / (batch * per_token)
    gpus = _ratio(before, now, "gpu_count")
    if gpus and _ratio(now, before, "tokens_per_second_per_gpu"):
        unit, column, whole = "tokens/s/GPU", "tokens_per_second_per_gpu", whole * gpus
        if round(gpus, 3) != 1:
            factors["GPUs"] = gpus
    why = {} if speed else {"load and speed": reason_of("slower_at_equal_load", reasons)}
    return Attribution(unit, before[column], now[column], whole, factors, why)


# factor → words of its loss and of its gain, and its column
_LOSSES: Mapping[str, tuple[str, str, str | None]] = {
    "batch": ("smaller batches", "larger batches", "effective_batch_size"),
    "load a step": ("more work a step", "less work a step", "itl_seconds_mean"),
    "speed": ("slower engine", "faster engine", None),
    "first tokens": ("fewer first tokens", "more first tokens", None),
    "tokens an output": ("fewer tokens an output", "more tokens an output", "tokens_per_output"),
    "tokens/s a request": ("slower tokens", "faster tokens", "itl_seconds_mean"),
    "GPUs": ("more GPUs", "fewer GPUs", "gpu_count"),
}
_LEAST_PART = 0.005  # of the baseline's throughput; smaller parts are not printed


def throughput_table(now: Values, before: Values, reasons: Mapping[str, str]) -> list[str]:
    """Where the throughput went: parts that add up, the largest first; else why not.

    A factor f of a ratio r is ln f / ln r of the difference (logarithmic mean Divisia index: Ang,
    Energy Policy 32, 2004).
    """
    whole = attribution(now, before, reasons)
    if isinstance(whole, str):
        return [f"Where the throughput went: not compared, {whole}"]
    was = whole.before
    numbers = f"{figure(was)} → {figure(whole.now)} {whole.unit}"
    lines = [f"Where the throughput went   {numbers}"]
    moved = log(whole.ratio)
    scale = was * (whole.ratio - 1) / moved if abs(moved) > 1e-9 else was
    parts = {word: scale * log(factor) for word, factor in whole.factors.items()}
    for word, part in sorted(parts.items(), key=lambda one: -abs(one[1])):
        if abs(part) < _LEAST_PART * was:
            continue
        loss, gain, column = _LOSSES[word]
        sign = "-" if part < 0 else "+"
        detail = "" if column is None else _from_to(column, now, before)
        if word == "speed":
            detail = f"speed at equal load {change(whole.factors[word])}"
        text = f" {loss if part < 0 else gain:<23}{sign + figure(abs(part)):>8}  {detail}"
        lines.append(text.rstrip())
    return lines


def _from_to(column: str, now: Values, before: Values) -> str:
    if now.get(column) is None:
        return ""
    return evidence_text(column, now[column], before=before.get(column))


def reason_of(column: str, reasons: Mapping[str, str]) -> str:
    """Why a column has no value, without the remedy."""
    why = reasons.get(column) or BY_NAME[column].disabled_by or "not on the page"
    return clean(why).split(" (")[0]


def _why_none(now: Values, before: Values, reasons: Mapping[str, str]) -> str:
    needed = ("generation_tokens_per_second", "effective_batch_size", "itl_seconds_mean")
    for name in needed if before else ():
        if not now.get(name) or not before.get(name):
            return f"the baseline has no {name}" if now.get(name) else reason_of(name, reasons)
    return "no baseline"


def _ratio(above: Values, below: Values, column: str) -> float | None:
    one, other = above.get(column), below.get(column)
    return None if not one or not other else float(one) / float(other)
