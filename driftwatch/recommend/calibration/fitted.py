"""What a calibration is: a law per structural variant, how well it fits, what it knows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from driftwatch.recommend.calibration.arrivals import EVEN, Arrivals
from driftwatch.simulate.step_time import StepTime

COEFFICIENTS = ("c0", "c1", "c2", "c3")
# Relative residuals of today's replay, replayed over observed minus 1; what cannot be compared is
# not among them.
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
    """What is believed before the data.

    Attributes:
        laws: variant (:data:`driftwatch.simulate.laws.VARIANTS`) → law.
        log_sd: coefficient → standard deviation of its logarithm.
        source: in words: "roofline of llama-3.1-8b on h100-sxm", or why there is none.
        known: a datasheet stands behind it.
    """

    laws: Mapping[str, StepTime]
    log_sd: Mapping[str, float]
    source: str
    known: bool


@dataclass(frozen=True, slots=True)
class LoadBand:
    """How a fit does at one level of load.

    Attributes:
        running_requests: mean, by tokens.
        itl_seconds: observed mean time between tokens.
        off_ratio: replayed over observed, without the engine's own changes of speed, minus 1.
        log_sd: of that by chance: what is drawn, and the engine's changes of speed.
        tokens_ratio: of the window's tokens.
    """

    running_requests: float
    itl_seconds: float
    off_ratio: float
    log_sd: float
    tokens_ratio: float


@dataclass(frozen=True, slots=True)
class Fit:
    """One variant.

    Attributes:
        variant: its name.
        law: fitted.
        residuals: name of :data:`RESIDUALS` → relative error over the whole window.
        loss: mean squared weighted residual over the chunks; compares variants of one window.
        log_sd: coefficient → standard deviation of its logarithm after the fit.
        determined: coefficient → the data say more of it than the prior did.
        ttft_overhead_seconds: of every first token outside the engine (HTTP, tokenizer), which
            vLLM's TTFT holds and a replay does not: add it to a replayed TTFT.
        slower: the law by which a larger batch takes as long as its 90th percentile; None = not
            known.
        faster: … as its 10th percentile.
        reach_log_sd: sd of the log of a step's time at four times the busiest batch observed; None
            = not known.
        bands: lightest load first.
    """

    variant: str
    law: StepTime
    residuals: Mapping[str, float]
    loss: float
    log_sd: Mapping[str, float] = field(default_factory=dict)
    determined: Mapping[str, bool] = field(default_factory=dict)
    ttft_overhead_seconds: float = 0.0
    slower: StepTime | None = None
    faster: StepTime | None = None
    reach_log_sd: float | None = None
    bands: tuple[LoadBand, ...] = ()


@dataclass(frozen=True, slots=True)
class Calibration:
    """Laws of one server in one window.

    Attributes:
        at: end of the window.
        seconds: its length.
        fits: best first.
        prior: in words.
        prior_known: a datasheet stands behind it.
        saturated: fitted without TTFT, as the queue integrates every error.
        identifiable: changes of the batch can be forecast from these laws.
        why_not: why they cannot, in words; None where they can.
        replays: how many replays it took.
        wander_log_sd: the engine's own changes of speed between the chunks, sd of the log; the
            residuals are those of a replay that has them.
        arrivals: how requests come inside a minute, as the window is explained best. Forecast with
            :func:`driftwatch.recommend.calibration.bursts.with_bursts`.
    """

    at: datetime
    seconds: float
    fits: tuple[Fit, ...]
    prior: str
    prior_known: bool
    saturated: bool
    identifiable: bool
    why_not: str | None = None
    replays: int = 0
    wander_log_sd: float = 0.0
    arrivals: Arrivals = EVEN

    @property
    def best(self) -> Fit:
        """The variant with the least loss."""
        return self.fits[0]
