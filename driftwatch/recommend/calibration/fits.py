"""What a calibration is: models, how well they fit, and when in its minute a request came."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime

import numpy as np

from driftwatch.arrays import Floats
from driftwatch.simulate.requests import Requests
from driftwatch.simulate.step_time import StepTime

_MINUTE = 60.0
_SAME_TIME = 1e-12  # of a mean gap: gamma gaps of a large CV may be 0


@dataclass(frozen=True, slots=True)
class Arrivals:
    """How requests come inside a minute; as counted by the minute in any case."""

    gap_cv: float = 1.0  # coefficient of variation of the Gamma gaps; 1 is Poisson
    # requests come at so many times the rate of the busiest minute, in one stretch of each minute,
    # or not at all; None = in all of it, by ``gap_cv``
    on_rate_ratio: float | None = None


EVEN = Arrivals()
# ON and OFF at the busiest minute's rate asks for no number. The CVs are those that the Azure code
# trace and ServeGen's clients reach inside a minute; 2.5 times the rate is a stretch of 24 s.
LIKELY = (Arrivals(on_rate_ratio=1.0), Arrivals(gap_cv=2.5))
FURTHER = (Arrivals(gap_cv=6.0), Arrivals(on_rate_ratio=2.5))


def redrawn(requests: Requests, rng: np.random.Generator, arrivals: Arrivals = EVEN) -> Requests:
    """Other requests of which the metrics would have said the same.

    ``requests``: as observed, seconds from the window's start; those at 0 were inside already.
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


COEFFICIENTS = ("c0", "c1", "c2", "c3")
# relative residuals of today's simulation: simulated over observed, minus 1
RESIDUALS = (
    "generation_tokens_per_second",
    "itl_seconds",
    "ttft_seconds",
    "steps_per_generation_token",
    "running_requests",
    "kv_cache_usage_ratio",
    "prefill_seconds",
)


@dataclass(frozen=True, slots=True)
class Prior:
    """What is believed before the data."""

    step_times: Mapping[str, StepTime]  # variant → step-time model
    log_sd: Mapping[str, float]  # coefficient → standard deviation of its logarithm
    source: str  # in words: "roofline of Llama-3.1-8B on H100-80GB", or why there is none
    is_known: bool


@dataclass(frozen=True, slots=True)
class LoadBand:
    """How a fit does at one level of load."""

    running_requests: float
    itl_seconds: float
    off_ratio: float  # simulated over observed, without the engine's own changes of speed, minus 1
    log_sd: float  # of that by chance: what is drawn, and the engine's changes of speed
    tokens_ratio: float


@dataclass(frozen=True, slots=True)
class Fit:
    """One variant."""

    variant: str
    step_time: StepTime
    # name of :data:`RESIDUALS` → relative error over the whole window
    residuals: Mapping[str, float]
    loss: float  # mean squared weighted residual over the chunks; compares variants of one window
    # coefficient → standard deviation of its logarithm after the fit
    log_sd: Mapping[str, float] = field(default_factory=dict)
    # of every first token outside the engine (HTTP, tokenizer), which vLLM's TTFT holds and a
    # simulation does not: add it to a simulated TTFT
    ttft_overhead_seconds: float = 0.0
    # the step-time model by which a larger batch takes as long as its 90th percentile; None = not
    # known
    slower: StepTime | None = None
    faster: StepTime | None = None
    # sd of the log of a step's time at four times the busiest batch observed; None = not known
    reach_log_sd: float | None = None
    bands: tuple[LoadBand, ...] = ()


@dataclass(frozen=True, slots=True)
class Calibration:
    """Step-time models of one server in one window."""

    at: datetime
    seconds: float
    fits: tuple[Fit, ...]
    prior: str
    prior_known: bool
    saturated: bool
    identifiable: bool  # changes of the batch can be forecast from these step-time models
    why_not: str | None = None  # why they cannot, in words; None where they can
    simulations: int = 0
    # the engine's own changes of speed between the chunks, sd of the log; the residuals are those
    # of a simulation that has them
    wander_log_sd: float = 0.0
    # how requests come inside a minute, as the window is explained best. Forecast with
    # :func:`driftwatch.recommend.calibration.calibrate.with_bursts`.
    arrivals: Arrivals = EVEN

    @property
    def best(self) -> Fit:
        """The variant with the least loss."""
        return self.fits[0]
