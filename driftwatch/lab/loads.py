"""A batching policy at rising rates: the figures of each rate, and where it stops keeping up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from driftwatch.arrays import Floats
from driftwatch.lab.batchers import BATCH_SIZE, DYNAMIC, STATIC, Served, serve
from driftwatch.simulate.configuration import SchedulerConfiguration
from driftwatch.simulate.requests import Requests
from driftwatch.simulate.step_time import StepTime


@dataclass(frozen=True, slots=True)
class Figures:
    """Requests that finished in a steady part; None: too few requests (p50 needs 2, p99 100)."""

    requests: int
    requests_per_second: float = 0.0
    ttft_seconds_p99: float | None = None
    e2e_seconds_p50: float | None = None
    e2e_seconds_p99: float | None = None


def figures(served: Served, since: float, until: float) -> Figures:
    """The figures of requests that finished in (since, until], in seconds of the run."""
    end, seconds = served.end_seconds, max(0.0, until - since)
    inside = served.finished & (end > since) & (end <= until)
    count = int(inside.sum())
    if not count or not seconds:
        return Figures(count)
    arrival = served.arrival_seconds[inside]
    e2e = end[inside] - arrival
    return Figures(
        count,
        count / seconds,
        _quantile(served.first_token_seconds[inside] - arrival, 0.99, 100),
        _quantile(e2e, 0.5, 2),
        _quantile(e2e, 0.99, 100),
    )


def _quantile(values: Floats, q: float, needed: int) -> float | None:
    return float(np.quantile(values, q)) if len(values) >= needed else None


STEADY_PART = (
    "steady part: the time over which requests arrive, without its first fifth and last tenth. "
    "Requests that finish in it count."
)
_WARM_UP, _DRAIN, _BEHIND = 0.2, 0.1, 0.05


@dataclass(frozen=True, slots=True)
class Point:
    """One policy under one rate, over its steady part."""

    policy: str
    requests_per_second: float  # arriving ones
    keeps_up: bool  # all arrivals but 5 % and one batch have finished
    figures: Figures
    rejected_requests: int
    batch_efficiency_ratio: float | None  # None: no request waits for the longest of its batch
    prompt_padding_waste_ratio: float | None  # None: the same


def steady(policy: str, rate: float, served: Served) -> Point:
    """Measure a run that was served to its end; one batch of replies may be missing."""
    arrival = served.arrival_seconds
    span = float(arrival.max() - arrival.min())
    since, until = float(arrival.min()) + _WARM_UP * span, float(arrival.max()) - _DRAIN * span
    arrived = int(((arrival > since) & (arrival <= until)).sum())
    found, together = figures(served, since, until), 1
    if policy in (STATIC, DYNAMIC):
        together = BATCH_SIZE
    return Point(
        policy,
        rate,
        arrived - found.requests <= _BEHIND * arrived + together,
        found,
        int((~served.finished).sum()),
        served.batch_efficiency_ratio,
        served.prompt_padding_waste_ratio,
    )


def capacity(
    policy: str, configuration: SchedulerConfiguration, mix: Requests, step_time: StepTime
) -> float | None:
    """Requests per second while requests always wait; None where all end at one time.

    All requests arrive at the start, ten times as many as there are seats (2,000 to 50,000). The
    rate is taken between the ends of the first tenth and of nine tenths.
    """
    seats = max(configuration.max_num_seqs, BATCH_SIZE)
    sent = mix.at(np.zeros(min(max(2000, 10 * seats), 50_000)))
    served = serve(policy, sent, step_time, configuration)
    ends = np.sort(served.end_seconds[served.finished])
    if len(ends) < 2:
        return None
    first, last = ends[len(ends) // 10], ends[(9 * len(ends)) // 10 - 1]
    return figures(served, float(first), float(last)).requests_per_second or None


def ladder(top_requests_per_second: float) -> tuple[float, ...]:
    """Eight rates up to a little above the capacity given, two digits each."""
    shares = (0.02, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.05)
    return tuple(dict.fromkeys(float(f"{top_requests_per_second * s:.2g}") for s in shares))


def knee(points: Sequence[Point], limit_seconds: float) -> float | None:
    """The largest rate in requests/s at which a policy keeps up with p99 within the limit; None =
    at no rate.

    ``points``: of one policy, at rising rates. The search ends at the first rate that fails above
    one that holds.
    """
    holds = None
    for one in points:
        p99 = one.figures.e2e_seconds_p99
        if one.keeps_up and p99 is not None and p99 <= limit_seconds:
            holds = one.requests_per_second
        elif holds is not None:
            break
    return holds
