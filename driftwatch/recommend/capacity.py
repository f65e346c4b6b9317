"""Capacity of one replica: the highest rate at which the share of requests in target is met.

The requests of the window come at another pace (the same lengths in the same order, the same
bursts), and the rate is found by bisection. Without targets it is the rate of a saturated server,
and without one for the time to first token no more than that. Two settings are compared by the
intervals of their rates, narrowed no further than the answer takes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from driftwatch.model import Slo
from driftwatch.recommend.simulation import afterwards, in_target, missed
from driftwatch.simulate.configuration import SchedulerConfiguration
from driftwatch.simulate.demand import capacity_per_second
from driftwatch.simulate.requests import Requests
from driftwatch.simulate.step_time import StepTime
from driftwatch.simulate.trial import Run, Trial

Bounds = Iterator[tuple[float, float]]

FEWEST_REQUESTS = 20
MOST_REQUESTS = 3000  # of a simulation: their share in target is known to a point
_WARM_SHARE = 0.1  # the server starts empty
_LOOKS = (0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)  # of the requests: is the share settled?
_TOLERANCE = 0.015  # of the rate
_LEAST_SCALE, _MOST_SCALE = 1 / 64, 64.0
_FIRST_STEP = 1.1  # from a rate that may be near; each further one is its square


@dataclass(frozen=True, slots=True)
class Capacity:
    """Requests a second of one replica by each step-time model; none = too few requests."""

    rates: tuple[float, ...] = ()

    @property
    def mean(self) -> float | None:
        """Over the models."""
        return sum(self.rates) / len(self.rates) if self.rates else None

    @property
    def low(self) -> float | None:
        """Of the slowest."""
        return min(self.rates, default=None)

    @property
    def high(self) -> float | None:
        """Of the fastest."""
        return max(self.rates, default=None)


@dataclass(slots=True, eq=False)
class Narrowing:
    """A rate between ``low`` and ``high``, requests a second; equal once it is known."""

    low: float = 0.0
    high: float = math.inf
    steps: Bounds = field(default_factory=lambda: iter(()))

    @classmethod
    def of_rate(cls, rate: float) -> Narrowing:
        """A rate that need not be looked for."""
        return cls(rate, rate)

    def narrow(self) -> None:
        """One simulation more."""
        following = next(self.steps, None)
        self.low, self.high = (self.low, self.low) if following is None else following

    def settled(self) -> float:
        """The rate, to :data:`_TOLERANCE`."""
        while self.low < self.high:
            self.narrow()
        return self.low

    def is_below(self, rate: float) -> bool:
        """Whether it is, narrowed no further than that takes."""
        while self.low < rate < self.high:
            self.narrow()
        return self.low < rate


def nearly_best(rates: Sequence[Narrowing], enough: float, ties: float) -> list[bool]:
    """For each whether it comes within ``ties`` (a ratio) of the largest; beyond ``enough`` counts
    no more.
    """
    while True:
        lows = [min(rate.low, enough) for rate in rates]
        highs = [min(rate.high, enough) for rate in rates]
        surely, perhaps = max(lows) * (1 - ties), max(highs) * (1 - ties)
        decided = [high < surely or low >= perhaps for low, high in zip(lows, highs, strict=True)]
        unclear = [
            rate
            for rate, low, high, clear in zip(rates, lows, highs, decided, strict=True)
            if low < high and (high == max(highs) or not clear)
        ]
        if not unclear or all(decided):
            return [low >= surely for low in lows]
        max(unclear, key=lambda rate: rate.high - rate.low).narrow()


def rate_within(
    requests: Requests,
    configuration: SchedulerConfiguration,
    step_time: StepTime,
    slo: Slo | None,
    *,
    near: float | None = None,
    overhead: float = 0.0,
) -> Narrowing:
    """Capacity of a :func:`stretch` by one step-time model, to be narrowed; 0 where there is none.

    Raises ImpossibleConfiguration: vLLM would refuse the settings, or a request can never be
    served.
    """
    if len(requests) < FEWEST_REQUESTS:
        return Narrowing.of_rate(0.0)
    most = None
    if slo is None or slo.ttft_seconds is None:
        # a time per token holds while the queue grows for ever: what is served counts
        most = capacity_per_second(requests, configuration, step_time)
    if slo is None:
        return Narrowing.of_rate(most or 0.0)
    trial = Trial(requests, configuration)
    rate = _within_targets(requests, trial, step_time, slo, near, overhead)
    return rate if most is None else Narrowing.of_rate(min(rate.settled(), most))


def stretch(requests: Requests, most: int = MOST_REQUESTS) -> Requests:
    """The last requests on a clock of their own; those that were there at its start left out."""
    later = requests.take(requests.arrival_seconds > 0.0)
    some = later.take(slice(max(0, len(later) - most), None))
    if not len(some):
        return some
    return replace(
        some,
        arrival_seconds=some.arrival_seconds - some.arrival_seconds[0],
        cancel_seconds=np.full(len(some), np.inf),
    )


def rate_of(requests: Requests) -> float:
    """Requests a second between the first and the last."""
    span = float(requests.arrival_seconds[-1] - requests.arrival_seconds[0])
    return (len(requests) - 1) / span if span > 0 else math.inf


def _within_targets(
    requests: Requests,
    trial: Trial,
    step_time: StepTime,
    slo: Slo,
    near: float | None,
    overhead: float,
) -> Narrowing:
    """The rate up to which the share is met, 0 where no rate meets it."""
    observed = rate_of(requests)
    first = int(len(requests) * _WARM_SHARE)
    arrival, count = requests.arrival_seconds, len(requests) - first
    looks = arrival[[int(part * len(arrival)) for part in _LOOKS]]

    def meets(scale: float) -> bool:
        def settled(served: Run) -> bool:
            hits = int(in_target(served, slo, overhead)[first:].sum())
            misses = int(missed(served, slo, overhead)[first:].sum())
            return hits / count >= slo.share or (count - misses) / count < slo.share

        checks = [*(looks / scale), *afterwards(arrival / scale, slo)]
        served = trial.run(step_time, pace=scale, checks=checks, enough=settled)
        return bool(in_target(served, slo, overhead)[first:].mean() >= slo.share)

    scales = _bisected(meets, (near / observed) if near else 1.0)
    return Narrowing(steps=((low * observed, high * observed) for low, high in scales))


def _bisected(meets: Callable[[float], bool], near: float) -> Bounds:
    """Bounds of the largest scale that is met; the last of them is known to the tolerance."""
    scale = min(max(near, _LEAST_SCALE), _MOST_SCALE)
    low, high, step = 0.0, math.inf, _FIRST_STEP
    if meets(scale):
        low = scale
        yield low, high
        while (tried := min(low * step, _MOST_SCALE)) > low and meets(tried):
            low, step = tried, step * step
            yield low, high
        if tried <= low:
            return
        high = tried
    else:
        high = scale
        yield low, high
        while (tried := max(high / step, _LEAST_SCALE)) < high and not meets(tried):
            high, step = tried, step * step
            yield low, high
        if tried >= high:
            return
        low = tried
    yield low, high
    while high / low > 1 + _TOLERANCE:
        middle = math.sqrt(low * high)
        low, high = (middle, high) if meets(middle) else (low, middle)
        yield low, high
