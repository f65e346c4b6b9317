"""What a change brings and costs, in words with numbers, and what would show it wrong."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from driftwatch.recommend.advice import Candidate
from driftwatch.recommend.candidates import FP8_KV, PREFIX_HIT_RATIO, REPLICAS, Case
from driftwatch.recommend.words import aims, capacity_gain, digits, milliseconds, percent, rate

# Attributes of a candidate that a verification holds a forecast against, base units.
FORECAST = (
    "in_target_ratio",
    "ttft_seconds",
    "itl_seconds",
    "itl_p99_seconds",
    "capacity_requests_per_second",
    "generation_tokens_per_second",
    "running_requests",
    "kv_cache_peak_ratio",
    "preemptions",
)
_SAFE = 0.9  # of the capacity: up to there a forecast TTFT holds
_WORTH_SAYING = 1.05  # times the capacity
_SHED_GAIN = 0.05  # of the share in target


class Elsewhere(NamedTuple):
    """What a change brings at a demand other than the observed one."""

    demand: float
    now: float
    then: float

    @property
    def text(self) -> str:
        """In words."""
        return f"{percent(self.now)} → {percent(self.then)} at {self.demand:.2g} times this demand"


def effect_of(case: Case, then: Candidate, elsewhere: Elsewhere | None = None) -> tuple[str, ...]:
    """In target and capacity, from → to.

    Today's is a forecast too: a queue that grows leaves fewer in target than the last minutes had.
    """
    lines = []
    before, after = case.today.in_target_ratio, then.in_target_ratio
    if before is not None and after is not None:
        shares = f"{percent(before)} → {percent(after)}"
        other = "" if elsewhere is None else f", {elsewhere.text}"
        lines.append(f"forecast if this demand lasts: in target {shares}{other}")
    if (words := capacity_gain(case.today, then)) is not None:
        lines.append(words)
    return tuple(lines)


def price_of(case: Case, then: Candidate) -> tuple[str, ...]:
    """ITL p99, KV blocks, the restart."""
    lines, today, slo = [], case.today, case.ground.judged.slo
    if today.itl_p99_seconds is not None and then.itl_p99_seconds is not None:
        text = f"ITL p99 {digits(1000 * today.itl_p99_seconds)} → "
        text += milliseconds(then.itl_p99_seconds)
        if slo is not None and slo.tpot_seconds is not None and then.tpot_p95_seconds is not None:
            text += (
                f" (TPOT p95 {digits(1000 * then.tpot_p95_seconds)}, target "
                f"{1000 * slo.tpot_seconds:g})"
            )
        lines.append(text)
    if today.kv_blocks is None:
        lines.append("KV blocks unknown")
    elif case.ground.blocks.unknown is None and then.kv_blocks is not None:
        lines.append(f"KV blocks {today.kv_blocks:,} → {then.kv_blocks:,}")
    else:
        lacking = " and ".join(case.ground.blocks.lacking)
        lines.append(f"KV blocks {today.kv_blocks:,}, not corrected: {lacking} unknown")
    return (*lines, "restart")


def not_cured_by(case: Case, then: Candidate, what_ifs: Sequence[Candidate]) -> tuple[str, ...]:
    """What stays lost: against the reference's throughput and capacity."""
    lines = []
    before, after = case.reference_tokens_per_second, then.generation_tokens_per_second
    if before and after and after < before / _WORTH_SAYING:
        lines.append(f"tokens/s {digits(before)} → {digits(after)} each: {_why_fewer(case)}")
    for one in what_ifs:
        if PREFIX_HIT_RATIO in one.knobs and one.capacity_requests_per_second:
            ratio = one.knobs[PREFIX_HIT_RATIO]
            lines.append(
                f"with {percent(ratio)} of the prompt tokens cached: "
                f"{rate(one.capacity_requests_per_second)} (today's settings)"
            )
    limit, was = then.capacity_requests_per_second, case.reference_capacity
    if limit and was and was > limit * _WORTH_SAYING:
        have = case.replicas
        needs = f" needs {math.ceil(have * was / limit)} replicas" if have else " is out of reach"
        lines.append(f"the reference's {rate(was)}{needs}")
    share = then.in_target_ratio
    if share is not None and share < case.share:
        lines.append(f"{percent(1 - share)} of the requests still miss a target")
    return tuple(lines)


def _why_fewer(case: Case) -> str:
    """Longer work only where the reference's lengths would be served faster by today's step-time
    model.
    """
    now, was = case.today.capacity_requests_per_second, case.reference_capacity
    if now and was and was > now * _WORTH_SAYING:
        return "longer work, not settings"
    return "not by settings; is the engine as fast as before?"


def wrong_if(case: Case, then: Candidate, elsewhere: Elsewhere | None = None) -> str:
    """What would falsify it, at which demand."""
    limit = then.capacity_requests_per_second
    upto = case.offered if limit is None else min(max(case.offered, _SAFE * limit), limit)
    miss, slo, share = 1 - case.share, case.ground.judged.slo, then.in_target_ratio
    if share is None:
        share = case.share if slo is None else 0.0
    if share < case.share:
        # its own forecast must not falsify it
        times, now, share = elsewhere or (1.0, case.today.in_target_ratio or 0.0, share)
        within = "wait at most 1 s" if slo is None else "are in target"
        half = percent((share + now) / 2)
        return f"then under {half} {within} at ≤ {rate(times * case.offered)} each"
    if slo is None:
        # the capacity of a full server: nobody promised how long one waits that near to it
        return (
            f"then over {percent(miss)} still wait longer than 1 s at ≤ {rate(case.offered)} each"
        )
    return f"then over {percent(miss)} still miss {aims(slo)} at ≤ {rate(upto)} each"


def forecast_of(case: Case, then: Candidate) -> dict[str, Any]:
    """The numbers behind the words, by a candidate's attributes; today's beside them."""

    def numbers(one: Candidate) -> dict[str, float]:
        return {name: v for name in FORECAST if (v := getattr(one, name)) is not None}

    return {
        **numbers(then),
        "knobs": dict(then.knobs),
        "today": numbers(case.today),
        "offered_requests_per_second": case.offered,
    }


def _turn(one: Candidate) -> int:
    """The place among what helps instead: line 1 of a page says the first."""
    first = (REPLICAS, PREFIX_HIT_RATIO, FP8_KV)
    return next((place for place, name in enumerate(first) if name in one.knobs), len(first))


def instead_of(case: Case, what_ifs: Sequence[Candidate]) -> tuple[str, ...]:
    """Replicas first, then what makes the same replicas do more, then what to turn away."""
    lines = []
    limit = case.today.capacity_requests_per_second
    for one in sorted(what_ifs, key=_turn):
        share, then = one.in_target_ratio, one.capacity_requests_per_second
        if REPLICAS in one.knobs:
            more = round(one.knobs[REPLICAS]) - (case.replicas or 1)
            if more > 0 and share is not None:
                beside = "" if case.replicas else " for each"
                plural = "s" if more > 1 else ""
                lines.append(
                    f"+{more} replica{plural}{beside}: forecast {percent(share)} in target"
                )
        elif PREFIX_HIT_RATIO in one.knobs and then and limit and then > limit * _WORTH_SAYING:
            ratio = one.knobs[PREFIX_HIT_RATIO]
            lines.append(f"{percent(ratio)} of the prompt tokens cached: {rate(then)} each")
        elif FP8_KV in one.knobs and then and limit and then > limit * _WORTH_SAYING:
            lines.append(f"fp8 KV cache: {rate(then)} each")
        elif (
            "max_num_queued_tokens" in one.knobs
            and share is not None
            and share > (case.today.in_target_ratio or 0.0) + _SHED_GAIN
        ):
            lines.append(
                f"--max-num-queued-tokens {one.knobs['max_num_queued_tokens']:.0f}: "
                f"forecast {percent(share)} in target, the rest turned away at once"
            )
    return tuple(lines)
