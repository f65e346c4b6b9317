"""Ways of batching over loads: what each measures, and where its knee is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from driftwatch.arrays import Floats
from driftwatch.lab.batchers import Settings, batch_seconds, serve
from driftwatch.lab.figures import Figures, Served, figures
from driftwatch.simulate.requests import Requests
from driftwatch.simulate.step_time import StepTime

DEFINITION = (
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
    served = serve(
        policy, mix.at(np.zeros(min(max(2000, 10 * seats), 50_000))), step_time, settings
    )
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
