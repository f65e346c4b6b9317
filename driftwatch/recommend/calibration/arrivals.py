"""When in its minute a request came, which no count by the minute says, as it may have been.

Two forms beside evenly: gaps of a larger spread (requests in clumps), and clients that send at one
rate or not at all (a job that works through its files). The second is told by the rate of the
busiest minute: a minute with half as many requests sent for half of it. Azure's 2023 code trace
comes so, 10 requests a second for half a minute and none for the next.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from driftwatch.simulate.requests import Requests

Floats = npt.NDArray[np.float64]

_MINUTE = 60.0
_SAME_TIME = 1e-12  # of a mean gap: gamma gaps of a large CV may be 0


@dataclass(frozen=True, slots=True)
class Arrivals:
    """How requests come inside a minute; as counted by the minute in any case.

    Attributes:
        gap_cv: coefficient of variation of the Gamma gaps; 1 is Poisson.
        on_rate_ratio: requests come at so many times the rate of the busiest minute, in one stretch
            of each minute, or not at all; None = in all of it, by ``gap_cv``.
    """

    gap_cv: float = 1.0
    on_rate_ratio: float | None = None


EVEN = Arrivals()
# ON and OFF at the busiest minute's rate asks for no number. The CVs are those that the Azure code
# trace and ServeGen's clients reach inside a minute; 2.5 times the rate is a stretch of 24 s.
LIKELY = (Arrivals(on_rate_ratio=1.0), Arrivals(gap_cv=2.5))
FURTHER = (Arrivals(gap_cv=6.0), Arrivals(on_rate_ratio=2.5))


def redrawn(requests: Requests, rng: np.random.Generator, arrivals: Arrivals = EVEN) -> Requests:
    """Other requests of which the metrics would have said the same.

    Args:
        requests: as observed, seconds from the window's start; those at 0 were inside already.
        rng: the randomness.
        arrivals: how they come inside their minutes.
    """
    arrival = requests.arrival_seconds
    minute = np.floor(arrival / _MINUTE).astype(np.int64)
    inside = arrival > 0  # those at 0 were inside already: their time is no arrival
    times = arrival.copy()
    most = int(np.bincount(minute[inside]).max()) if inside.any() else 0
    for number in np.unique(minute[inside]):
        those = np.flatnonzero(inside & (minute == number))
        times[those] = (number + _places(len(those), most, rng, arrivals)) * _MINUTE
    lengths = np.arange(len(arrival))
    lengths[inside] = lengths[inside][np.lexsort((rng.random(int(inside.sum())), minute[inside]))]
    mixed = requests.take(lengths)
    return replace(mixed, arrival_seconds=times)


def _places(count: int, most: int, rng: np.random.Generator, arrivals: Arrivals) -> Floats:
    """Parts of a minute at which so many requests come, in order."""
    if arrivals.on_rate_ratio is None:
        gaps = rng.standard_gamma(1.0 / arrivals.gap_cv**2, count + 1) + _SAME_TIME
        return np.asarray(np.cumsum(gaps)[:-1] / gaps.sum())
    lasting = min(1.0, count / (most * arrivals.on_rate_ratio))
    begin = rng.random() * (1.0 - lasting)
    return np.asarray(begin + lasting * np.sort(rng.random(count)))
