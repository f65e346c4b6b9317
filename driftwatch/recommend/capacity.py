"""Capacity of one replica: the highest rate at which the share of requests in target is met.

The requests of the window are replayed with their arrivals drawn together or apart (the same
lengths in the same order, the same bursts), and the rate is found by bisection. Without targets it
is the rate of a saturated server, and without one for the time to first token no more than that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from driftwatch.model import Slo
from driftwatch.recommend.rate_search import Narrowing, narrowing
from driftwatch.simulate.configuration import SchedulerConfiguration
from driftwatch.simulate.planning_replay import capacity_per_second
from driftwatch.simulate.requests import Requests
from driftwatch.simulate.step_time import StepTime

FEWEST_REQUESTS = 20
MOST_REQUESTS = 3000  # of a replay: their share in target is known to a point


@dataclass(frozen=True, slots=True)
class Capacity:
    """Requests a second of one replica; None = too few requests.

    Attributes:
        mean: over the laws.
        low: of the slowest.
        high: of the fastest.
        none_meets: no law meets the share at any rate: a request alone misses the target.
        rates: by each law.
    """

    mean: float | None
    low: float | None
    high: float | None
    none_meets: bool = False
    rates: tuple[float, ...] = ()


def capacity(
    requests: Requests,
    configurations: Sequence[SchedulerConfiguration],
    laws: Sequence[StepTime],
    slo: Slo | None,
    *,
    near: float | None = None,
    ttft_overhead_seconds: Sequence[float] | None = None,
) -> Capacity:
    """Capacity by each law, under the configuration beside it.

    Args:
        requests: a stretch of the traffic, sorted by arrival.
        configurations: settings, one for each law.
        laws: step time.
        slo: targets; None = the rate of a saturated server.
        near: requests a second to start the search from; None = as observed.
        ttft_overhead_seconds: of every request outside the steps, one for each law; None = 0.

    Raises:
        ImpossibleConfiguration: vLLM would refuse the settings, or a request can never be served.
    """
    some = stretch(requests)
    if len(some) < FEWEST_REQUESTS:
        return Capacity(None, None, None)
    found: list[float] = []
    overheads = [0.0] * len(laws) if ttft_overhead_seconds is None else ttft_overhead_seconds
    for configuration, law, overhead in zip(configurations, laws, overheads, strict=True):
        rate = rate_within(some, configuration, law, slo, near=near, overhead=overhead).settled()
        if slo is None and not rate:
            continue
        found.append(rate)
        near = rate or near
    if not found:
        return Capacity(None, None, None)
    if max(found) == 0.0:
        return Capacity(0.0, 0.0, 0.0, none_meets=True, rates=tuple(found))
    return Capacity(sum(found) / len(found), min(found), max(found), rates=tuple(found))


def rate_within(
    requests: Requests,
    configuration: SchedulerConfiguration,
    law: StepTime,
    slo: Slo | None,
    *,
    near: float | None = None,
    overhead: float = 0.0,
) -> Narrowing:
    """Capacity of a :func:`stretch` by one law, to be narrowed; 0 where there is none.

    Raises:
        ImpossibleConfiguration: vLLM would refuse the settings, or a request can never be served.
    """
    if len(requests) < FEWEST_REQUESTS:
        return Narrowing.known(0.0)
    most = None
    if slo is None or slo.ttft_seconds is None:
        # a time per token holds while the queue grows for ever: what is served counts
        most = capacity_per_second(requests, configuration, law)
    if slo is None:
        return Narrowing.known(most or 0.0)
    found = narrowing(requests, configuration, law, slo, near, overhead)
    return found if most is None else Narrowing.known(min(found.settled(), most))


def stretch(requests: Requests, most: int = MOST_REQUESTS) -> Requests:
    """The last requests on a clock of their own; those that were there at its start left out."""
    later = requests.take(requests.arrival_seconds > 0.0)
    some = later.take(slice(max(0, len(later) - most), None))
    if not len(some):
        return some
    first = some.arrival_seconds[0]
    return replace(
        some,
        arrival_seconds=some.arrival_seconds - first,
        cancel_seconds=np.full(len(some), np.inf),
    )
