"""Closed loop at rising concurrency: what each level gave, and where latency starts to degrade.

At a fixed concurrency N Little's law ties throughput X and mean latency R together, N = X · R: what
more concurrency does not bring in throughput it costs in latency. The share that becomes throughput
is the elasticity d ln X / d ln N: 1 while every further user is served as fast as before, 0 once
the server is saturated.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from driftwatch.lab.batchers import continuous
from driftwatch.lab.figures import Figures, Served, figures
from driftwatch.simulate.configuration import SchedulerConfiguration
from driftwatch.simulate.requests import Requests
from driftwatch.simulate.step_time import StepTime

GAIN = 0.5  # below it a step of concurrency costs more latency than it brings throughput
DEFINITION = (
    "latency starts to degrade at the first level from which more than half of the added users "
    "turns into latency instead of throughput: d ln(requests/s) / d ln(users) "
    f"below {GAIN:g}, and at the next level where there is one"
)
# requests of a level, in rounds of each user: 2 to warm up, at least 1,100 and one round to drain,
# so that a p99 has its hundred
_ROUNDS, _WARM_UP, _FEWEST = 12, 2, 1_100


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
    count = max(_ROUNDS * concurrency, _FEWEST + (_WARM_UP + 1) * concurrency)
    sent = mix.at(np.zeros(count))
    return measure(concurrency, continuous(sent, step_time, configuration, concurrency=concurrency))


def measure(concurrency: int, served: Served) -> Level:
    """The loop is full from the end of the warm-up to the last request that is sent."""
    ends = np.sort(served.end_seconds[np.isfinite(served.end_seconds)])
    warm = ends[min(_WARM_UP * concurrency, len(ends)) - 1] if len(ends) else 0.0
    inside = figures(served, float(warm), float(served.arrival_seconds.max()))
    return Level(concurrency, inside, int((~served.finished).sum()))


def find_degradation(levels: Sequence[Level]) -> Degradation:
    """Where latency starts to degrade, by :data:`DEFINITION`; levels in rising order.

    A level that served nothing ends the search: what comes after is not judged, and where nothing
    degrades before it there is no verdict.
    """
    served = [one for one in levels if one.figures.requests]
    unserved = [one for one in levels if not one.figures.requests]
    judged = [one for one in served if not unserved or one.concurrency < unserved[0].concurrency]
    unknown = (
        f"; {unserved[0].concurrency} users: no request finished in the steady part"
        if unserved
        else ""
    )
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
