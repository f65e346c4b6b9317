"""The capacity of a saturated server by simulation, and requests as a Poisson stream."""

from __future__ import annotations

import numpy as np

from driftwatch.simulate.configuration import SchedulerConfiguration
from driftwatch.simulate.requests import Requests
from driftwatch.simulate.step_time import StepTime
from driftwatch.simulate.trial import Trial

_DEPTH = 4  # requests of a saturated simulation per seat
_MOST_SEATS = 1024  # vLLM's largest default: more requests rarely run at once
_FEWEST = 10  # completions


def capacity_per_second(
    requests: Requests, configuration: SchedulerConfiguration, step_time: StepTime
) -> float | None:
    """Requests per second of a saturated server: all are offered at once.

    The mix is repeated up to four times the number that can run. A fifth of the completions at
    either end is left out: there the batch is not full, or not yet mixed. None: too few requests.
    """
    seats = min(configuration.max_num_seqs, _MOST_SEATS)
    repeats = max(1, -(-_DEPTH * seats // len(requests)))
    at_once = requests.at(np.zeros(repeats * len(requests)))
    served = Trial(at_once, configuration).run(step_time)
    ends = np.sort(served.end_seconds[served.finished])
    low, high = int(0.2 * len(ends)), int(0.8 * len(ends))
    if high - low < _FEWEST or ends[high] <= ends[low]:
        return None
    return float((high - low) / (ends[high] - ends[low]))


def paced(requests: Requests, rate_per_second: float, rng: np.random.Generator) -> Requests:
    """The same requests in the same order as a Poisson stream of this rate."""
    return requests.at(np.cumsum(rng.exponential(1 / rate_per_second, len(requests))))
