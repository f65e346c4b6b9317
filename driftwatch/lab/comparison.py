"""Ways of batching over loads: what each measures, and where its knee is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from driftwatch.lab.batchers import Floats, Integers, Served, Settings, serve, step_seconds
from driftwatch.simulate.requests import Requests
from driftwatch.simulate.step_time import StepTime

DEFINITION = (
    "steady part: the first fifth and the last tenth of the time over which requests arrive are "
    "left out. Throughput counts requests that finish in it, latency those that arrive in it and "
    "finish."
)
_WARM_UP, _DRAIN, _BEHIND = 0.2, 0.1, 0.05
_NEEDED = 100  # requests behind a p99


def at_rate(mix: Requests, requests_per_second: float, count: int, seed: int) -> Requests:
    """``count`` requests with Poisson arrivals: of another rate, the gaps alone differ."""
    gaps = np.random.default_rng((seed, 1)).exponential(size=count)
    return mix.at(np.cumsum(gaps) / requests_per_second)


def lognormal_lengths(
    mean_tokens: float, cv: float, count: int, seed: tuple[int, ...] | np.random.Generator
) -> Integers:
    """Log-normal lengths in tokens, whole and at least 1, with this mean and sd / mean."""
    spread = np.log1p(cv * cv)
    lengths = np.random.default_rng(seed).lognormal(
        np.log(mean_tokens) - spread / 2, np.sqrt(spread), count
    )
    return np.maximum(1, np.rint(lengths)).astype(np.int64)


@dataclass(frozen=True, slots=True)
class Latency:
    """Seconds over requests; p99 is None where fewer than 100 back it, all where there is none."""

    count: int
    p50: float | None = None
    p99: float | None = None
    mean: float | None = None


@dataclass(frozen=True, slots=True)
class Point:
    """One policy under one rate, over its steady part."""

    policy: str
    requests_per_second: float  # that arrive
    seconds: float  # of the steady part
    throughput_requests_per_second: float  # requests that finish in it
    throughput_generation_tokens_per_second: float  # their tokens
    keeps_up: bool  # of the arrivals at most 5 % and one batch are missing among the finished
    e2e: Latency  # arrival to last token, of those that finish
    ttft: Latency  # arrival to first token, of those that finish
    rejected_requests: int  # of those that arrived in it
    batch_efficiency_ratio: float | None  # None: no request waits for the longest of its batch
    prompt_padding_waste_ratio: float | None  # None: the same


@dataclass(frozen=True, slots=True)
class Knee:
    """Where a policy stops being in target."""

    holds_at: float | None  # the largest load tried that it bears; None: there is none
    fails_at: float | None  # the next load tried above it; None where it held to the end
    reason: str  # what fails there, or everywhere


def steady(policy: str, rate: float, served: Served, leave_together: int) -> Point:
    """Measure a run served to its end; ``leave_together``: so many may be missing at its end."""
    arrival, end = served.arrival_seconds, served.end_seconds
    span = float(arrival.max() - arrival.min())
    since, until = float(arrival.min()) + _WARM_UP * span, float(arrival.max()) - _DRAIN * span
    seconds = until - since
    arrived = (arrival >= since) & (arrival < until)
    done = (end >= since) & (end < until) & served.finished
    counted = arrived & served.finished
    missing = int(arrived.sum()) - int(done.sum())
    return Point(
        policy,
        rate,
        seconds,
        throughput_requests_per_second=float(done.sum()) / seconds,
        throughput_generation_tokens_per_second=float(served.generated_tokens[done].sum())
        / seconds,
        keeps_up=bool(missing <= _BEHIND * arrived.sum() + leave_together),
        e2e=latency((end - arrival)[counted]),
        ttft=latency((served.first_token_seconds - arrival)[counted]),
        rejected_requests=int((arrived & ~served.finished).sum()),
        batch_efficiency_ratio=served.batch_efficiency_ratio,
        prompt_padding_waste_ratio=served.prompt_padding_waste_ratio,
    )


def latency(seconds: Floats) -> Latency:
    """Median, p99 and mean."""
    if not (count := len(seconds)):
        return Latency(0)
    p99 = float(np.quantile(seconds, 0.99)) if count >= _NEEDED else None
    return Latency(count, float(np.quantile(seconds, 0.5)), p99, float(seconds.mean()))


def capacity(policy: str, settings: Settings, mix: Requests, step_time: StepTime) -> float | None:
    """Requests per second while there is always more to do; None where all end at one time.

    All wait from the start, ten times as many as there are seats (2,000 to 50,000). Between the
    ends of the first tenth and of nine tenths.
    """
    seats = max(settings.configuration.max_num_seqs, settings.batch_size)
    requests = mix.at(np.zeros(min(max(2000, 10 * seats), 50_000)))
    served = serve(policy, requests, step_time, settings)
    ends = np.sort(served.end_seconds[served.finished])
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
        wrong = "" if one.keeps_up else "does not keep up"
        if not wrong and one.e2e.p99 is None:
            wrong = f"p99 unknown: {one.e2e.count} requests, it needs {_NEEDED}"
        if not wrong and (one.e2e.p99 or 0) > limit_seconds:
            wrong = "p99 above the limit"
        if not wrong:
            holds = one.requests_per_second
        elif holds is not None:
            return Knee(holds, one.requests_per_second, wrong)
        reason = reason or wrong
    return Knee(holds, None, "" if holds is not None else reason)
