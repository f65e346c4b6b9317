"""A way of batching under rising load: what each load gave, and where it stops being good.

An open loop sends at a rate and measures every policy; a closed loop keeps so many users busy. At a
fixed concurrency N Little's law ties throughput X and mean latency R together, N = X · R: what more
concurrency does not bring in throughput it costs in latency. The share that becomes throughput is
the elasticity d ln X / d ln N: 1 while every further user is served as fast as before, 0 once the
server is saturated.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from driftwatch.arrays import Floats
from driftwatch.lab.batchers import Served, Settings, batch_seconds, continuous, serve
from driftwatch.simulate.configuration import SchedulerConfiguration
from driftwatch.simulate.requests import Requests
from driftwatch.simulate.step_time import StepTime


@dataclass(frozen=True, slots=True)
class Figures:
    """Requests that finished in a steady part; None: too few for it (p50 needs 2, p99 100)."""

    requests: int
    seconds: float  # of the steady part
    requests_per_second: float = 0.0
    generation_tokens_per_second: float = 0.0
    ttft_seconds_p50: float | None = None
    ttft_seconds_p99: float | None = None
    itl_seconds_mean: float | None = None  # over tokens, not over requests
    e2e_seconds_mean: float | None = None
    e2e_seconds_p50: float | None = None
    e2e_seconds_p99: float | None = None


def figures(served: Served, since: float, until: float) -> Figures:
    """The figures of what finished after ``since`` and until ``until``, in seconds of the run."""
    end, seconds = served.end_seconds, max(0.0, until - since)
    inside = served.finished & (end > since) & (end <= until)
    count = int(inside.sum())
    if not count or not seconds:
        return Figures(count, seconds)
    arrival, tokens = served.arrival_seconds[inside], served.generated_tokens[inside]
    ttft, e2e = served.first_token_seconds[inside] - arrival, end[inside] - arrival
    later = tokens[tokens > 1] - 1
    itl = (e2e - ttft)[tokens > 1].sum() / later.sum() if len(later) else None
    return Figures(
        requests=count,
        seconds=seconds,
        requests_per_second=count / seconds,
        generation_tokens_per_second=float(tokens.sum()) / seconds,
        ttft_seconds_p50=_quantile(ttft, 0.5, 2),
        ttft_seconds_p99=_quantile(ttft, 0.99, 100),
        itl_seconds_mean=None if itl is None else float(itl),
        e2e_seconds_mean=float(e2e.mean()),
        e2e_seconds_p50=_quantile(e2e, 0.5, 2),
        e2e_seconds_p99=_quantile(e2e, 0.99, 100),
    )


def _quantile(values: Floats, q: float, needed: int) -> float | None:
    return float(np.quantile(values, q)) if len(values) >= needed else None


# --- policies at rising rates

STEADY_PART = (
    "steady part: the first fifth and the last tenth of the time over which requests arrive are "
    "left out. What finishes in it counts."
)
_WARM_UP, _DRAIN, _BEHIND = 0.2, 0.1, 0.05


@dataclass(frozen=True, slots=True)
class Point:
    """One policy under one rate, over its steady part."""

    policy: str
    requests_per_second: float  # that arrive
    keeps_up: bool  # of the arrivals at most 5 % and one batch are missing among the finished
    figures: Figures
    rejected_requests: int
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
    arrival = served.arrival_seconds
    span = float(arrival.max() - arrival.min())
    since, until = float(arrival.min()) + _WARM_UP * span, float(arrival.max()) - _DRAIN * span
    arrived = int(((arrival > since) & (arrival <= until)).sum())
    found = figures(served, since, until)
    return Point(
        policy,
        rate,
        arrived - found.requests <= _BEHIND * arrived + leave_together,
        found,
        int((~served.finished).sum()),
        served.batch_efficiency_ratio,
        served.prompt_padding_waste_ratio,
    )


def capacity(policy: str, settings: Settings, mix: Requests, step_time: StepTime) -> float | None:
    """Requests per second while there is always more to do; None where all end at one time.

    All wait from the start, ten times as many as there are seats (2,000 to 50,000). Between the
    ends of the first tenth and of nine tenths.
    """
    seats = max(settings.configuration.max_num_seqs, settings.batch_size)
    sent = mix.at(np.zeros(min(max(2000, 10 * seats), 50_000)))
    served = serve(policy, sent, step_time, settings)
    ends = np.sort(served.end_seconds[served.finished])
    if len(ends) < 2:
        return None
    first, last = ends[len(ends) // 10], ends[(9 * len(ends)) // 10 - 1]
    return figures(served, float(first), float(last)).requests_per_second or None


def alone_seconds(requests: Requests, step_time: StepTime) -> Floats:
    """Each request's end-to-end time on an empty server, its prompt in one step."""
    lengths = zip(requests.prompt_tokens.tolist(), requests.generation_tokens.tolist(), strict=True)
    return np.array([batch_seconds(step_time, 1, *one) for one in lengths])


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
        p99, wrong = one.figures.e2e_seconds_p99, ""
        if not one.keeps_up:
            wrong = "does not keep up"
        elif p99 is None:
            wrong = f"p99 unknown: {one.figures.requests} requests, it needs 100"
        elif p99 > limit_seconds:
            wrong = "p99 above the limit"
        if not wrong:
            holds = one.requests_per_second
        elif holds is not None:
            return Knee(holds, one.requests_per_second, wrong)
        reason = reason or wrong
    return Knee(holds, None, "" if holds is not None else reason)


# --- vLLM's scheduler with more and more users

GAIN = 0.5  # below it a step of concurrency costs more latency than it brings throughput
DEGRADES = (
    "latency starts to degrade at the first level from which more than half of the added users "
    "turns into latency instead of throughput: d ln(requests/s) / d ln(users) "
    f"below {GAIN:g}, and at the next level where there is one"
)
# requests of a level, in rounds of each user: 2 to warm up, at least 1,100 and one round to drain,
# so that a p99 has its hundred
_ROUNDS, _WARM_UP_ROUNDS, _FEWEST = 12, 2, 1_100


@dataclass(frozen=True, slots=True)
class Level:
    """What one concurrency gave."""

    concurrency: int
    figures: Figures
    failed_requests: int = 0


@dataclass(frozen=True, slots=True)
class Degradation:
    """Where latency starts to degrade."""

    holds_to: int | None  # the last concurrency before it; None = no verdict
    degrades_at: int | None  # the first at which it does; None = not reached, or not known
    confirmed: bool = False  # the step after it says the same
    reason: str | None = None  # why ``degrades_at`` is None


def level(
    mix: Requests, configuration: SchedulerConfiguration, step_time: StepTime, concurrency: int
) -> Level:
    """Simulate one level with the lengths of the mix, over and over.

    Raises ImpossibleConfiguration: vLLM would refuse the settings, or a request never fits.
    """
    count = max(_ROUNDS * concurrency, _FEWEST + (_WARM_UP_ROUNDS + 1) * concurrency)
    sent = mix.at(np.zeros(count))
    return measure(concurrency, continuous(sent, step_time, configuration, concurrency=concurrency))


def measure(concurrency: int, served: Served) -> Level:
    """The loop is full from the end of the warm-up to the last request that is sent."""
    ends = np.sort(served.end_seconds[np.isfinite(served.end_seconds)])
    warm = ends[min(_WARM_UP_ROUNDS * concurrency, len(ends)) - 1] if len(ends) else 0.0
    inside = figures(served, float(warm), float(served.arrival_seconds.max()))
    return Level(concurrency, inside, int((~served.finished).sum()))


def find_degradation(levels: Sequence[Level]) -> Degradation:
    """Where latency starts to degrade, by :data:`DEGRADES`; levels in rising order.

    A level that served nothing ends the search: what comes after is not judged, and where nothing
    degrades before it there is no verdict.
    """
    first = next((n for n, one in enumerate(levels) if not one.figures.requests), len(levels))
    judged, unknown = levels[:first], ""
    if first < len(levels):
        users = levels[first].concurrency
        unknown = f"; {users} users: no request finished in the steady part"
    if len(judged) < 2:
        return Degradation(None, None, reason=f"two levels that were served are needed{unknown}")
    gains = gains_of(judged)
    for at in range(1, len(judged)):
        after = gains[at + 1] if at + 1 < len(judged) else 0.0
        if gains[at] < GAIN and after < GAIN:
            here, before = judged[at].concurrency, judged[at - 1].concurrency
            return Degradation(before, here, at + 1 < len(judged))
    top = judged[-1].concurrency
    why = f"throughput still rises at {top}{unknown}"
    return Degradation(None if unknown else top, None, reason=why)


def gains_of(levels: Sequence[Level]) -> list[float]:
    """Elasticity of each level against the one before it; 1 of the first."""
    users = np.array([one.concurrency for one in levels], dtype=np.float64)
    rates = np.array([one.figures.requests_per_second for one in levels])
    return [1.0, *(np.diff(np.log(rates)) / np.diff(np.log(users))).tolist()]
