"""What a change brings and costs, in words with numbers, and what would show it wrong."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from driftwatch.recommend.advice import Candidate
from driftwatch.recommend.candidates import FP8_KV, PREFIX_HIT_RATIO, REPLICAS, Case
from driftwatch.recommend.replicas import replicas_for
from driftwatch.recommend.words import (
    add_replicas,
    aims,
    capacity_gain,
    digits,
    milliseconds,
    percent,
    rate,
    share_in_target,
)

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
        other = "" if elsewhere is None else f", {elsewhere.text}"
        shares = f"{percent(before)} → {percent(after)}"
        has_target = case.ground.judged.slo is not None
        text = (
            f"requests in target {shares}"
            if has_target
            else f"{shares} of requests start within 1 s"
        )
        lines.append(f"forecast: {text}{other}")
    if (words := capacity_gain(case.today, then)) is not None:
        lines.append(words)
    return tuple(lines)


def price_of(case: Case, then: Candidate) -> tuple[str, ...]:
    """The time between tokens, and the restart."""
    today, slo = case.today, case.ground.judged.slo
    if today.itl_p99_seconds is None or then.itl_p99_seconds is None:
        return ("restart",)
    before, after = (milliseconds(one.itl_p99_seconds or 0.0) for one in (today, then))
    text = f"inter-token latency p99 {before.removesuffix(' ms')} → {after}"
    if slo is not None and slo.tpot_seconds is not None and then.tpot_p95_seconds is not None:
        tpot, target = milliseconds(then.tpot_p95_seconds), milliseconds(slo.tpot_seconds)
        text += f" (TPOT p95 becomes {tpot}, its target is {target})"
    return text, "restart"


def not_cured_by(case: Case, then: Candidate) -> tuple[str, ...]:
    """What stays lost: against the baseline's throughput and capacity."""
    lines = []
    now, was = case.today.capacity_requests_per_second, case.reference_capacity
    limit, share = then.capacity_requests_per_second, then.in_target_ratio
    before, after = case.reference_tokens_per_second, then.generation_tokens_per_second
    if limit and was and was > limit * _WORTH_SAYING:
        more = "more replicas"
        if case.replicas:
            more = f"{replicas_for(case.replicas * was, limit)} replicas instead of {case.replicas}"
        lines.append(
            f"a replica served {rate(was)} at the baseline's lengths; to serve as much at these "
            f"takes {more}"
        )
    elif (
        before
        and after
        and after < before / _WORTH_SAYING
        and not (now and was and was > now * _WORTH_SAYING)
    ):
        lines.append(
            f"tokens/s {digits(before)} → {digits(after)} per replica, and not by settings: is the "
            "engine as fast as before?"
        )
    if share is not None and share < case.share:
        lines.append(f"{percent(1 - share)} of the requests still miss a target")
    return tuple(lines)


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
        within = "start within 1 s" if slo is None else "are in target"
        wrong = f"fewer than {percent((share + now) / 2)} of requests {within}"
        upto = times * case.offered
    elif slo is None:
        # the capacity of a full server: nobody promised how long one waits that near to it
        wrong = f"more than {percent(miss)} of requests queue longer than 1 s"
        upto = case.offered
    else:
        wrong = f"more than {percent(miss)} of requests miss {aims(slo, ' or ')}"
    return f"{wrong} at up to {rate(upto)} per replica"


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
    limit, slo = case.today.capacity_requests_per_second, case.ground.judged.slo
    for one in sorted(what_ifs, key=_turn):
        share, then = one.in_target_ratio, one.capacity_requests_per_second
        serves_more = then and limit and then > limit * _WORTH_SAYING
        gain = f"capacity {digits(limit or 0.0)} → {rate(then or 0.0)} per replica"
        if REPLICAS in one.knobs:
            n = round(one.knobs[REPLICAS])
            more = n - (case.replicas or 1)
            if more > 0 and share is not None:
                add = add_replicas(more, case.replicas)
                lines.append(f"{add}: forecast {share_in_target(share, slo)}")
        elif PREFIX_HIT_RATIO in one.knobs and serves_more:
            cached = percent(one.knobs[PREFIX_HIT_RATIO])
            lines.append(f"with {cached} of the prompt tokens cached: {gain}")
        elif FP8_KV in one.knobs and serves_more:
            lines.append(f"with an fp8 KV cache: {gain}")
        elif (
            "max_num_queued_tokens" in one.knobs
            and share is not None
            and share > (case.today.in_target_ratio or 0.0) + _SHED_GAIN
        ):
            lines.append(
                f"--max-num-queued-tokens {one.knobs['max_num_queued_tokens']:.0f}: "
                f"forecast {share_in_target(share, slo)}, the rest turned away at once"
            )
    return tuple(lines)
