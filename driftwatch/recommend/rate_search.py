"""Where the rate lies up to which the targets are met: narrowed by bisection, as far as is asked.

To compare two settings their rates need not be known: where the intervals lie apart is enough.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from driftwatch.model import Slo
from driftwatch.recommend.replaying import afterwards, in_target, missed
from driftwatch.simulate.configuration import SchedulerConfiguration
from driftwatch.simulate.requests import Requests
from driftwatch.simulate.served import Served, Serving
from driftwatch.simulate.step_time import StepTime

Bounds = Iterator[tuple[float, float]]

_WARM_SHARE = 0.1  # the server starts empty
_LOOKS = (0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)  # of the requests: is the share settled?
_TOLERANCE = 0.015  # of the rate
_LEAST_SCALE, _MOST_SCALE = 1 / 64, 64.0
_FIRST_STEP = 1.1  # from a rate that may be near; each further one is its square


@dataclass(slots=True, eq=False)
class Narrowing:
    """A rate between ``low`` and ``high``, requests a second; equal once it is known."""

    low: float = 0.0
    high: float = math.inf
    steps: Bounds = field(default_factory=lambda: iter(()))

    @classmethod
    def known(cls, rate: float) -> Narrowing:
        """A rate that need not be looked for."""
        return cls(rate, rate)

    def narrow(self) -> None:
        """One replay more."""
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
    """For each whether it comes within ``ties`` (a ratio) of the largest.

    Args:
        rates: narrowed no further than the answer takes.
        enough: what is beyond does not count.
        ties: of the largest.
    """
    while True:
        lows = [min(rate.low, enough) for rate in rates]
        highs = [min(rate.high, enough) for rate in rates]
        surely, perhaps = max(lows) * (1 - ties), max(highs) * (1 - ties)
        unclear = [
            rate
            for rate, low, high in zip(rates, lows, highs, strict=True)
            if low < high and (high == max(highs) or not (high < surely or low >= perhaps))
        ]
        if not unclear or all(
            high < surely or low >= perhaps for low, high in zip(lows, highs, strict=True)
        ):
            return [low >= surely for low in lows]
        max(unclear, key=lambda rate: rate.high - rate.low).narrow()


def narrowing(
    requests: Requests,
    configuration: SchedulerConfiguration,
    law: StepTime,
    slo: Slo,
    near: float | None,
    overhead: float,
) -> Narrowing:
    """The rate up to which the share is met, 0 where no rate meets it.

    Args:
        requests: to be served at another pace; sorted by arrival, on a clock of their own.
        configuration: settings.
        law: step time.
        slo: targets.
        near: requests a second to start from; None = as observed.
        overhead: seconds of every request outside the steps.

    Raises:
        ImpossibleConfiguration: vLLM would refuse the settings, or a request can never be served.
    """
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

    def rates() -> Bounds:
        for low, high in _bisected(met, (near / observed) if near else 1.0):
            yield low * observed, high * observed

    return Narrowing(steps=rates())


def _bisected(met: Callable[[float], bool], near: float) -> Bounds:
    """Bounds of the largest scale that is met; the last of them is known to the tolerance."""
    scale = min(max(near, _LEAST_SCALE), _MOST_SCALE)
    low, high, step = 0.0, math.inf, _FIRST_STEP
    if met(scale):
        low = scale
        yield low, high
        while (tried := min(low * step, _MOST_SCALE)) > low and met(tried):
            low, step = tried, step * step
            yield low, high
        if tried <= low:
            return
        high = tried
    else:
        high = scale
        yield low, high
        while (tried := max(high / step, _LEAST_SCALE)) < high and not met(tried):
            high, step = tried, step * step
            yield low, high
        if tried >= high:
            return
        low = tried
    yield low, high
    while high / low > 1 + _TOLERANCE:
        middle = math.sqrt(low * high)
        low, high = (middle, high) if met(middle) else (low, middle)
        yield low, high


def rate_of(requests: Requests) -> float:
    """Requests a second between the first and the last."""
    span = float(requests.arrival_seconds[-1] - requests.arrival_seconds[0])
    return (len(requests) - 1) / span if span > 0 else math.inf
