"""What makes a real engine differ from its step-time model: jitter, wander, slowdowns, stalls.

The hidden engine of the replayable fleet uses all of it; a what-if uses none.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


def _none() -> Floats:
    return np.zeros(0)


@dataclass(frozen=True, slots=True, eq=False)
class Disturbance:
    """Factors and pauses on the step-time model's step times."""

    jitter_sigma: float = 0.0  # sd of the log of a factor drawn anew each step (log-normal, mean 1)
    # sorted times from which the next factor holds (a step function)
    factor_seconds: Floats = field(default_factory=_none)
    # step-time factor from each of those times on (1.25 = a quarter slower); 1 before
    factors: Floats = field(default_factory=_none)
    # sorted times of stalls; the step that runs then, or the next one that starts, is lengthened
    # (once)
    stall_seconds: Floats = field(default_factory=_none)
    # by how much; inf = the engine never returns (wedged)
    stall_durations_seconds: Floats = field(default_factory=_none)
