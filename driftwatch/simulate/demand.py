"""The capacity of a saturated server by simulation, and requests as a Poisson stream."""

from __future__ import annotations

import numpy as np

from driftwatch.simulate.configuration import SchedulerConfiguration
from driftwatch.simulate.requests import Requests
from driftwatch.simulate.step_time import StepTime
from driftwatch.simulate.trial import Trial

_DEPTH = 4  # a saturated simulation: requests for each that can run
_MOST_SEATS = 1024  # vLLM's largest default: more rarely run at once
_FEWEST = 10


def capacity_per_second(
    requests: Requests, configuration: SchedulerConfiguration, step_time: StepTime
) -> float | None:
    """Requests a second of a saturated server: all offered at once, the middle of the completions.

    The mix is repeated until it is four times what runs together; the fifth of the completions at
    either end is left out, as the batch is not full or not yet mixed there. None: too few requests.
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
