"""What the data leave open of a step-time model, and whether that is little enough to forecast.

Chunks at like load share one error of the form, the wander is an error of a whole chunk, and beyond
the observed batch the form itself is a guess. From the covariance follow the slower and the faster
model: the 90th and the 10th percentile of the time of a larger batch.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from driftwatch.arrays import Floats
from driftwatch.recommend.calibration.descent import (
    OVERHEAD,
    WANDER,
    Descent,
    Point,
    coefficients_of,
    loss_of,
)
from driftwatch.recommend.calibration.fits import RESIDUALS, Fit
from driftwatch.recommend.calibration.playback import FLOORS
from driftwatch.simulate.configuration import SchedulerConfiguration
from driftwatch.simulate.step_time import StepTime

REACH = 4.0  # times the busiest chunk's batch: as far as a sweep usually goes
P90 = 1.2816  # standard deviations: 80 % lie between the two step-time models
# Sd of the log of a step's time for each doubling of the batch beyond what was observed: by as much
# a line through smaller batches misses larger ones (docs/methods/step-time.md).
FORM_LOG_SD_KNOWN, FORM_LOG_SD_UNKNOWN = 0.08, 0.12
# Sd of the log of the speed as a whole, where requests are rebuilt from metrics: when they came and
# which lengths went together is a guess, and forecasts of hidden engines miss by as much.
LEVEL_LOG_SD = 0.04
_IN_COMMON = 0.9  # of a floor's variance; the rest is each chunk's own jitter and stalls
_ALIKE = 2.0  # times the load: from there on two chunks do not share an error


@dataclass(frozen=True, slots=True)
class Composition:
    """Mean step: prefill tokens above a hinge, decoding requests, context tokens read."""

    prefill_tokens: float
    decoding_requests: float
    context_tokens: float

    def parts(self, step_time: StepTime) -> Floats:
        """Seconds of the step, a coefficient each."""
        features = (
            1.0,
            max(self.prefill_tokens - step_time.hinge_tokens, 0.0),
            self.decoding_requests,
            self.context_tokens,
        )
        return np.asarray(np.array([*coefficients_of(step_time).values()]) * features)

    def shares(self, step_time: StepTime) -> Floats:
        """The same over the step's time: the slope of its log in theirs."""
        parts = self.parts(step_time)
        return np.asarray(parts / parts.sum())

    def times(self, batch: float) -> Composition:
        """The same with so many times the requests, and the prompts that come with them."""
        prefill, decoding = batch * self.prefill_tokens, batch * self.decoding_requests
        return Composition(prefill, decoding, batch * self.context_tokens)


def posterior(descent: Descent, point: Point, slopes: Floats) -> Floats:
    """Covariance of the logs of the four coefficients, without the form's own error.

    Generalised least squares (Aitken): (JᵀV⁻¹J + P)⁻¹, J and P as the fit has them, V with the
    errors that chunks share. A misfit beyond the noise widens it.
    """
    compared = np.flatnonzero(descent.playback.compared.ravel())
    if not len(compared):
        return np.diag(descent.log_sd**2)
    shared = _shared(descent)[np.ix_(compared, compared)]
    of_chunks = slopes[compared][:, WANDER:] * descent.wander_sd
    noise = shared + of_chunks @ of_chunks.T
    slope = slopes[compared][:, : OVERHEAD + 1]
    information = slope.T @ np.linalg.solve(noise * max(1.0, loss_of(point)), slope)
    precision = np.diag(descent.precision[: OVERHEAD + 1])
    after = np.linalg.inv(information + precision)[:4, :4]
    level = 0.0 if descent.playback.observed.source == "request log" else LEVEL_LOG_SD
    return np.asarray(after + level**2, dtype=np.float64)


def busiest(point: Point, descent: Descent) -> Composition:
    """The mean step of the chunk with the largest batch: as far as the data go."""
    prefill, decode, context = point.played.mean_composition
    running = descent.playback.measured[:, RESIDUALS.index("running_requests")]
    batches = running[np.isfinite(running) & descent.playback.comparable]
    mean = Composition(prefill, max(decode, 1.0), max(context, 1.0))
    if not len(batches):
        return mean
    most = min(float(batches.max()), float(descent.playback.configuration.max_num_seqs))
    return mean.times(max(most, 1.0) / mean.decoding_requests)


def with_form(
    covariance: Floats, step_time: StepTime, composition: Composition, prior_known: bool
) -> Floats:
    """The covariance with what the form may miss where the batch is larger than any observed.

    A request's own cost (c2, c3) is off by a factor, c0 makes up for it at the busiest batch.
    """
    here, there = composition.shares(step_time), composition.times(REACH).shares(step_time)
    more = np.array([0.0, 0.0, 1.0, 1.0])
    if here[0] > 0:
        more[0] = -(here[2] + here[3]) / here[0]
    moved = float(there @ more)
    if moved <= 0:
        return covariance
    sd = (FORM_LOG_SD_KNOWN if prior_known else FORM_LOG_SD_UNKNOWN) * np.log2(REACH)
    off = more * sd / moved
    return np.asarray(covariance + np.outer(off, off))


def reach_log_sd(step_time: StepTime, covariance: Floats, composition: Composition) -> float:
    """Sd of the log of the step's time at :data:`REACH` times the busiest batch."""
    slope = composition.times(REACH).shares(step_time)
    return float(np.sqrt(slope @ covariance @ slope))


def extremes(
    step_time: StepTime, covariance: Floats, composition: Composition
) -> tuple[StepTime, StepTime]:
    """The slower and the faster step-time model.

    Of all step-time models whose step at :data:`REACH` times the batch is at its 90th (10th)
    percentile, the likeliest: the mean of the coefficients given that.
    """
    slope = composition.times(REACH).shares(step_time)
    moved = P90 * covariance @ slope / max(reach_log_sd(step_time, covariance, composition), 1e-12)
    return _moved(step_time, moved, composition), _moved(step_time, -moved, composition)


def _moved(step_time: StepTime, logs: Floats, composition: Composition) -> StepTime:
    """Coefficients moved, then all scaled so that the observed step moves as its slope says."""
    factors = np.where(logs > 0, 1.0 + logs, np.exp(logs))
    step = composition.parts(step_time)
    scale = float(np.exp(composition.shares(step_time) @ logs) * step.sum() / (step @ factors))
    c0, c1, c2, c3 = (float(value) for value in scale * factors)
    return replace(
        step_time,
        c0_seconds=step_time.c0_seconds * c0,
        c1_seconds_per_prefill_token=step_time.c1_seconds_per_prefill_token * c1,
        c2_seconds_per_decode_seq=step_time.c2_seconds_per_decode_seq * c2,
        c3_seconds_per_kv_token=step_time.c3_seconds_per_kv_token * c3,
        c4_seconds_per_prefill_pair=step_time.c4_seconds_per_prefill_pair * c1,
    )


def _shared(descent: Descent) -> Floats:
    """Correlation of the weighted residuals: floors are one error at like load."""
    playback, noise = descent.playback, descent.noise
    running = playback.measured[:, RESIDUALS.index("running_requests")]
    logs = np.log(np.where(running > 0, running, 1.0))
    apart = (logs[:, None] - logs[None, :]) / np.log(_ALIKE)
    alike = np.exp(-0.5 * apart**2)
    correlation = np.eye(noise.size)
    kinds = len(RESIDUALS)
    for column, name in enumerate(RESIDUALS):
        share = np.sqrt(_IN_COMMON) * FLOORS[name] / noise[:, column]
        both = np.outer(share, share) * alike
        np.fill_diagonal(both, 1.0)
        correlation[column::kinds, column::kinds] = both
    return correlation


_STEP_SD = 0.1  # of the log time of a step that the advice would cause, at most
_NEAR_BUDGET = 0.5  # of max_num_batched_tokens: from there on it may be what is asked about
# relative residuals that no model mends: settings or KV blocks are others than they are said
_CONTRADICTION = 0.25
_KV_ROOM = 0.5  # of the cache: with twice the batch it would be full
_CHECKED = {
    "running_requests": "running requests",
    "kv_cache_usage_ratio": "KV cache usage",
    "steps_per_generation_token": "forward passes a token",
}


def what_is_unknown(
    fit: Fit, descent: Descent, point: Point, slopes: Floats, configuration: SchedulerConfiguration
) -> str | None:
    """Why other batches cannot be forecast from this fit; None where they can."""
    for name, text in _CHECKED.items():
        off = fit.residuals.get(name)
        if name == "kv_cache_usage_ratio" and off is not None and not _kv_matters(descent, off):
            continue
        column = RESIDUALS.index(name)
        measured = np.isfinite(descent.playback.measured[:, column]) & descent.playback.comparable
        noise = descent.noise[measured, column]
        # sd of the log of the residual over the window
        sd = float(np.sqrt((noise**2).sum())) / len(noise) if len(noise) else 0.0
        bound = _CONTRADICTION + 2.0 * sd
        if off is not None and abs(off) > bound:
            return (
                f"the simulation contradicts the settings or the number of KV blocks: {text} "
                f"{100 * off:+.0f} % (limit {100 * bound:.0f} %)"
            )
    after = descent.covariance(point, slopes)[:4, :4]
    step_time, mean = point.step_time, point.played.mean_composition
    decode, context = max(mean[1], 1.0), max(mean[2], 1.0)
    for text, prefill, times in _steps_of_changes(mean, configuration):
        parts = np.array(
            [
                step_time.c0_seconds,
                step_time.c1_seconds_per_prefill_token * max(prefill - step_time.hinge_tokens, 0.0),
                step_time.c2_seconds_per_decode_seq * decode * times,
                step_time.c3_seconds_per_kv_token * context * times,
            ]
        )
        slope = parts / parts.sum()
        sd = float(np.sqrt(slope @ after @ slope))
        if sd > _STEP_SD:
            return (
                f"the load of the window was too even: the time of a step with {text} is known to "
                f"±{100 * sd:.0f} % only (limit {100 * _STEP_SD:.0f} %)"
            )
    return None


def _steps_of_changes(
    mean: tuple[float, float, float], configuration: SchedulerConfiguration
) -> list[tuple[str, float, float]]:
    """Steps that a change would cause: in words, prefill tokens, times today's decoding."""
    budget, today = configuration.max_num_batched_tokens, mean[0] + mean[1]
    steps = [("twice today's batch", min(2 * mean[0], budget), 2.0)]
    if today > _NEAR_BUDGET * budget:
        steps.append(("twice the token budget", 2.0 * budget - mean[1], 1.0))
    return steps


def _kv_matters(descent: Descent, off: float) -> bool:
    """The cache might bind, as observed or as simulated; else its use says nothing of a step."""
    usage = descent.playback.measured[:, RESIDUALS.index("kv_cache_usage_ratio")]
    most = float(np.nanmax(usage)) if np.isfinite(usage).any() else 0.0
    return most * max(1.0, 1.0 + off) > _KV_ROOM
