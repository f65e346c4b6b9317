"""Capacity of one replica: the highest rate at which the share of requests in target is met.

The requests of the window are replayed with their arrivals drawn together or apart (the same
lengths in the same order, the same bursts), and the rate is found by bisection. Without targets it
is the rate of a saturated server, and without one for the time to first token no more than that.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from driftwatch.model import Slo
from driftwatch.recommend.replaying import afterwards, in_target, missed
from driftwatch.simulate.configuration import SchedulerConfiguration
from driftwatch.simulate.planning_replay import capacity_per_second
from driftwatch.simulate.requests import Requests
from driftwatch.simulate.served import Served, Serving
from driftwatch.simulate.step_time import StepTime

MOST_REQUESTS = 3000  # of a replay: their share in target is known to a point
_WARM_SHARE = 0.1  # the server starts empty
_LOOKS = (0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)  # of the requests: is the share settled?
_TOLERANCE = 0.015  # of the rate
_LEAST_SCALE, _MOST_SCALE = 1 / 64, 64.0


@dataclass(frozen=True, slots=True)
class Capacity:
    """Requests a second of one replica; None = too few requests.

    Attributes:
        mean: over the laws.
        low: of the slowest.
        high: of the fastest.
        none_meets: no law meets the share at any rate: a request alone misses the target.
    """

    mean: float | None
    low: float | None
    high: float | None
    none_meets: bool = False


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
    if len(some) < 20:
        return Capacity(None, None, None)
    found: list[float] = []
    overheads = [0.0] * len(laws) if ttft_overhead_seconds is None else ttft_overhead_seconds
    for configuration, law, overhead in zip(configurations, laws, overheads, strict=True):
        if slo is None:
            saturated = capacity_per_second(some, configuration, law)
            if saturated is not None:
                found.append(saturated)
            continue
        rate = _within(some, configuration, law, slo, near, overhead)
        if slo.ttft_seconds is None:
            # a time per token holds while the queue grows for ever: what is served counts
            most = capacity_per_second(some, configuration, law)
            rate = rate if most is None else min(rate, most)
        found.append(rate)
        near = found[-1] or near
    if not found:
        return Capacity(None, None, None)
    if max(found) == 0.0:
        return Capacity(0.0, 0.0, 0.0, none_meets=True)
    return Capacity(sum(found) / len(found), min(found), max(found))


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


def rate_of(requests: Requests) -> float:
    """Requests a second between the first and the last."""
    span = float(requests.arrival_seconds[-1] - requests.arrival_seconds[0])
    return (len(requests) - 1) / span if span > 0 else math.inf


def _within(
    requests: Requests,
    configuration: SchedulerConfiguration,
    law: StepTime,
    slo: Slo,
    near: float | None,
    overhead: float,
) -> float:
    """The rate up to which the share is met, 0 where no rate meets it."""
    observed = rate_of(requests)
    serving = Serving(requests, configuration, law)
    first = int(len(requests) * _WARM_SHARE)
    arrival, count = requests.arrival_seconds, len(requests) - first
    looks = arrival[[int(part * len(arrival)) for part in _LOOKS]]

    def met(scale: float) -> bool:
        def settled(served: Served) -> bool:
            hits = int(in_target(served, slo, overhead)[first:].sum())
            misses = int(missed(served, slo, overhead)[first:].sum())
            return hits / count >= slo.share or (count - misses) / count < slo.share

        checks = [*(looks / scale), *afterwards(arrival / scale, slo)]
        served = serving.run(scale, checks=checks, enough=settled)
        return bool(in_target(served, slo, overhead)[first:].mean() >= slo.share)

    scale = min(max((near / observed) if near else 1.0, _LEAST_SCALE), _MOST_SCALE)
    step = 1.1
    if met(scale):
        low = scale
        while (high := min(low * step, _MOST_SCALE)) > low and met(high):
            low, step = high, step * step
        if high <= low:
            return low * observed
    else:
        high = scale
        while (low := max(high / step, _LEAST_SCALE)) < high and not met(low):
            high, step = low, step * step
        if low >= high:
            return 0.0
    while high / low > 1 + _TOLERANCE:
        middle = math.sqrt(low * high)
        low, high = (middle, high) if met(middle) else (low, middle)
    return low * observed
