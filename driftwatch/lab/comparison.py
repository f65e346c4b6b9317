"""Ways of batching over loads: what each measures, where its knee is, which is best when."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from driftwatch.lab.batchers import (
    DYNAMIC,
    NOT_DEFINED,
    STATIC,
    Floats,
    Integers,
    Served,
    Settings,
    serve,
    step_seconds,
)
from driftwatch.simulate.requests import Requests, make_requests
from driftwatch.simulate.step_time import StepTime

MOST_TOKENS = 1_000_000  # a batch keeps a time for each token of its longest member
NEAR = 0.05  # closer than this, two p99 are the same
WARM_UP, DRAIN = 0.2, 0.1
DEFINITION = (
    "steady part: the first fifth and the last tenth of the time over which requests arrive are "
    "left out. Throughput counts requests that finish in it, latency those that arrive in it and "
    "finish."
)
_BEHIND = 0.05
_NEEDED = {0.5: 1, 0.99: 100, 0.999: 1000}


@dataclass(frozen=True, slots=True, eq=False)
class Mix:
    """Lengths in their order, cycled where more are needed."""

    prompt_tokens: Integers  # of each request
    generation_tokens: Integers  # of each request
    seed: int = 0  # of the arrivals

    def at_rate(self, requests_per_second: float, count: int) -> Requests:
        """``count`` requests with Poisson arrivals: of another rate, the gaps alone differ."""
        gaps = np.random.default_rng((self.seed, 1)).exponential(size=count)
        return self.at(np.cumsum(gaps) / requests_per_second)

    def at(self, arrival_seconds: Floats) -> Requests:
        """The mix at sorted times.

        Raises ValueError: generations above `MOST_TOKENS`.
        """
        if (longest := int(self.generation_tokens.max())) > MOST_TOKENS:
            raise ValueError(f"a generation of {longest:,} tokens; at most {MOST_TOKENS:,}")
        count = len(arrival_seconds)
        prompts, generations = (
            np.resize(lengths, count) for lengths in (self.prompt_tokens, self.generation_tokens)
        )
        return make_requests(arrival_seconds, prompts, generations)


def lognormal_lengths(
    mean_tokens: float, cv: float, count: int, seed: tuple[int, ...] | np.random.Generator
) -> Integers:
    """Log-normal lengths in tokens, whole and at least 1, with this mean and sd / mean.

    Rounded to whole tokens: a mean of a few tokens is met less exactly.
    """
    spread = np.log1p(cv * cv)
    lengths = np.random.default_rng(seed).lognormal(
        np.log(mean_tokens) - spread / 2, np.sqrt(spread), count
    )
    return np.maximum(1, np.rint(lengths)).astype(np.int64)


@dataclass(frozen=True, slots=True)
class Latency:
    """Seconds over requests; None where too few back a quantile (``reason`` says so)."""

    count: int
    p50: float | None
    p99: float | None
    p999: float | None
    max: float | None
    mean: float | None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Steady:
    """The steady part of one run."""

    seconds: float  # how long it is
    offered_requests_per_second: float  # arrivals in it
    throughput_requests_per_second: float  # requests that finish in it
    throughput_generation_tokens_per_second: float  # their tokens
    goodput_requests_per_second: float  # of those, the ones within the limit on end-to-end time
    keeps_up: bool  # of the arrivals at most 5 % and one batch are missing among the finished
    e2e: Latency  # arrival to last token, of those that finish
    ttft: Latency  # arrival to first token, of those that finish
    rejected_requests: int  # of those that arrived in it


@dataclass(frozen=True, slots=True)
class Point:
    """One policy under one rate."""

    policy: str
    requests_per_second: float
    steady: Steady
    batch_efficiency_ratio: float | None  # Σ generated / Σ (batch × longest); None with the reason
    prompt_padding_waste_ratio: float | None  # of the prompt tokens computed; None with the reason
    mean_batch_size: float | None  # requests a batch; None with the reason
    batch_reason: str  # why those of batches are missing


@dataclass(frozen=True, slots=True)
class Knee:
    """Where a policy stops being in target."""

    # the largest load tried at which it keeps up and its p99 is within the limit; None: there is
    # none
    holds_at: float | None
    fails_at: float | None  # the next load tried above it; None where it held to the end
    reason: str  # what fails there, or everywhere


def measure(
    policy: str,
    settings: Settings,
    mix: Mix,
    step_time: StepTime,
    rate: float,
    *,
    seconds: float,
    limit_seconds: float,
) -> Point:
    """One policy under one rate, for so long or 2,000 requests.

    Raises ValueError, ImpossibleConfiguration: as `serve`.
    """
    requests = mix.at_rate(rate, max(2000, round(rate * seconds)))
    served = serve(policy, requests, step_time, settings)
    leave_together = settings.batch_size if policy in (STATIC, DYNAMIC) else 1
    return Point(
        policy,
        rate,
        steady(served, leave_together, limit_seconds),
        served.batch_efficiency_ratio,
        served.prompt_padding_waste_ratio,
        float(np.mean([one.size for one in served.batches])) if served.batches else None,
        "" if served.batches else NOT_DEFINED,
    )


def steady(served: Served, leave_together: int, limit_seconds: float) -> Steady:
    """Measure a run served to its end; requests arrive at more than one time.

    ``leave_together``: so many may be missing at the end of the steady part; ``limit_seconds``:
    end-to-end time that counts as good.
    """
    arrival, end = served.arrival_seconds, served.end_seconds
    span = float(arrival.max() - arrival.min())
    since, until = float(arrival.min()) + WARM_UP * span, float(arrival.max()) - DRAIN * span
    seconds, e2e = until - since, end - arrival
    arrived = (arrival >= since) & (arrival < until)
    good = (end >= since) & (end < until) & served.finished
    tokens = float(served.generated_tokens[good].sum())
    counted = arrived & served.finished
    grown = int(arrived.sum()) - int(good.sum())
    return Steady(
        seconds=seconds,
        offered_requests_per_second=float(arrived.sum()) / seconds,
        throughput_requests_per_second=float(good.sum()) / seconds,
        throughput_generation_tokens_per_second=tokens / seconds,
        goodput_requests_per_second=float((good & (e2e <= limit_seconds)).sum()) / seconds,
        keeps_up=bool(grown <= _BEHIND * arrived.sum() + leave_together),
        e2e=latency(e2e[counted]),
        ttft=latency((served.first_token_seconds - arrival)[counted]),
        rejected_requests=int((arrived & ~served.finished).sum()),
    )


def latency(seconds: Floats) -> Latency:
    """Quantiles, largest and mean; a quantile q needs at least 1 / (1 − q) requests."""
    count = len(seconds)
    if not count:
        return Latency(0, None, None, None, None, None, "no request finished")
    p50, p99, p999 = (
        float(np.quantile(seconds, q)) if count >= need else None for q, need in _NEEDED.items()
    )
    lacking = [f"p{100 * q:g} needs {n:,}" for q, n in _NEEDED.items() if count < n]
    reason = f"{count:,} requests: {', '.join(lacking)}" if lacking else ""
    return Latency(count, p50, p99, p999, float(seconds.max()), float(seconds.mean()), reason)


def capacity(policy: str, settings: Settings, mix: Mix, step_time: StepTime) -> float | None:
    """Requests per second while there is always more to do; None where all end at one time.

    All requests wait from the start, ten times as many as there are seats (2,000 to 50,000), so
    that seats are filled again and again. Between the ends of the first tenth and of nine tenths.
    """
    seats = max(settings.configuration.max_num_seqs, settings.batch_size)
    requests = mix.at(np.zeros(min(max(2000, 10 * seats), 50_000)))
    served = serve(policy, requests, step_time, settings)
    return saturated_rate(np.sort(served.end_seconds[served.finished]))


def saturated_rate(ends: Floats) -> float | None:
    """Of sorted ends: those a second between the first tenth and nine tenths."""
    if len(ends) < 2:
        return None
    first, last = ends[len(ends) // 10], ends[(9 * len(ends)) // 10 - 1]
    if last <= first:
        return None
    return float(((ends > first) & (ends <= last)).sum() / (last - first))


def alone_seconds(requests: Requests, step_time: StepTime) -> Floats:
    """Each request's end-to-end time on an empty server, its prompt in one step."""
    prompt = requests.prompt_tokens.astype(np.float64)
    more = requests.generation_tokens.astype(np.float64) - 1
    first = step_seconds(step_time, prompt, 0, 0, prompt * (prompt + 1) / 2)
    one = float(step_seconds(step_time, 0, 1, 0))
    context = more * prompt + more * (more + 1) / 2
    return np.asarray(first + more * one + step_time.c3_seconds_per_kv_token * context)


def ladder(top_requests_per_second: float) -> tuple[float, ...]:
    """Eight rates up to a little above the capacity given, two digits each."""
    shares = (0.02, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.05)
    return tuple(dict.fromkeys(float(f"{top_requests_per_second * s:.2g}") for s in shares))


def knee(points: Sequence[Point], limit_seconds: float) -> Knee:
    """The largest rate at which a policy keeps up with p99 within the limit.

    ``points``: of one policy, rising. The first rate that fails above one that holds ends it.
    """
    holds, reason = None, ""
    for one in points:
        wrong = failure(one, limit_seconds)
        if not wrong:
            holds = one.requests_per_second
        elif holds is not None:
            return Knee(holds, one.requests_per_second, wrong)
        else:
            reason = reason or wrong
    return Knee(holds, None, "" if holds is not None else reason)


def failure(one: Point, limit_seconds: float) -> str:
    """Why a point is out of target; empty where it is within."""
    if not one.steady.keeps_up:
        return "does not keep up"
    if (p99 := one.steady.e2e.p99) is None:
        return f"p99 unknown: {one.steady.e2e.reason}"
    return "p99 above the limit" if p99 > limit_seconds else ""


def best(points: Sequence[Point]) -> Iterator[tuple[float, tuple[str, ...]]]:
    """For each rate the policies with the lowest p99, or within 5 % of it; empty: none keeps up."""
    for rate in sorted({one.requests_per_second for one in points}):
        here = {
            one.policy: one.steady.e2e.p99
            for one in points
            if one.requests_per_second == rate and one.steady.keeps_up and one.steady.e2e.p99
        }
        lowest = min(here.values(), default=0.0)
        yield rate, tuple(name for name, p99 in here.items() if p99 <= lowest * (1 + NEAR))
