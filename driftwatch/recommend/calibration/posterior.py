"""What the data leave open of a law, and the two laws between which a larger batch is forecast.

The covariance of the coefficients after the data counts three things that make chunks of a window
say less than so many measurements. The floors (what no law of this form can say) are one error for
all chunks of like load, not one for each: ten minutes at the same batch are measured once. The
wander is an error of a whole chunk. And beyond the batch that was observed the form itself is a
guess: the next doubling may cost more or less a request than the law says.

From it follow two laws, each as likely as the other: the batch that a change would cause is slower,
or faster, by the 10th and 90th percentile of its step time, and today's steps take what they take.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from driftwatch.recommend.calibration.fitted import RESIDUALS
from driftwatch.recommend.calibration.gauss_newton import (
    OVERHEAD,
    WANDER,
    Descent,
    Point,
    coefficients_of,
    loss_of,
)
from driftwatch.recommend.calibration.weights import FLOORS
from driftwatch.simulate.step_time import StepTime

Floats = npt.NDArray[np.float64]

REACH = 4.0  # times the busiest chunk's batch: as far as a sweep usually goes
P90 = 1.2816  # standard deviations: 80 % lie between the two laws
# Sd of the log of a step's time for each doubling of the batch beyond what was observed: by as much
# a line through smaller batches misses larger ones (docs/step-time.md).
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

    def parts(self, law: StepTime) -> Floats:
        """Seconds of the step, a coefficient each."""
        features = (
            1.0,
            max(self.prefill_tokens - law.hinge_tokens, 0.0),
            self.decoding_requests,
            self.context_tokens,
        )
        return np.asarray(np.array([*coefficients_of(law).values()]) * features)

    def shares(self, law: StepTime) -> Floats:
        """The same over the step's time: the slope of its log in theirs."""
        parts = self.parts(law)
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
    known = slope.T @ np.linalg.solve(noise * max(1.0, loss_of(point)), slope)
    precision = np.diag(descent.precision[: OVERHEAD + 1])
    after = np.linalg.inv(known + precision)[:4, :4]
    level = 0.0 if descent.playback.observed.source == "request log" else LEVEL_LOG_SD
    return np.asarray(after + level**2, dtype=np.float64)


def busiest(point: Point, descent: Descent) -> Composition:
    """The mean step of the chunk with the largest batch: as far as the data go."""
    prefill, decode, context = point.played.mean_composition
    running = descent.playback.seen[:, RESIDUALS.index("running_requests")]
    known = running[np.isfinite(running) & descent.playback.comparable]
    mean = Composition(prefill, max(decode, 1.0), max(context, 1.0))
    if not len(known):
        return mean
    most = min(float(known.max()), float(descent.playback.configuration.max_num_seqs))
    return mean.times(max(most, 1.0) / mean.decoding_requests)


def with_form(covariance: Floats, law: StepTime, seen: Composition, known: bool) -> Floats:
    """The covariance with what the form may miss where the batch is larger than any observed.

    A request's own cost (c2, c3) is off by a factor, c0 makes up for it at the busiest batch.

    Args:
        covariance: of the logs of the coefficients.
        law: fitted.
        seen: the busiest step.
        known: the prior stands on a datasheet.
    """
    here, there = seen.shares(law), seen.times(REACH).shares(law)
    more = np.array([0.0, 0.0, 1.0, 1.0])
    if here[0] > 0:
        more[0] = -(here[2] + here[3]) / here[0]
    moved = float(there @ more)
    if moved <= 0:
        return covariance
    sd = (FORM_LOG_SD_KNOWN if known else FORM_LOG_SD_UNKNOWN) * np.log2(REACH)
    off = more * sd / moved
    return np.asarray(covariance + np.outer(off, off))


def reach_log_sd(law: StepTime, covariance: Floats, seen: Composition) -> float:
    """Sd of the log of the step's time at :data:`REACH` times the busiest batch."""
    slope = seen.times(REACH).shares(law)
    return float(np.sqrt(slope @ covariance @ slope))


def extremes(law: StepTime, covariance: Floats, seen: Composition) -> tuple[StepTime, StepTime]:
    """The slower and the faster law.

    Of all laws whose step at :data:`REACH` times the batch is at its 90th (10th) percentile, the
    likeliest: the mean of the coefficients given that.
    """
    slope = seen.times(REACH).shares(law)
    moved = P90 * covariance @ slope / max(reach_log_sd(law, covariance, seen), 1e-12)
    return _moved(law, moved, seen), _moved(law, -moved, seen)


def _moved(law: StepTime, logs: Floats, seen: Composition) -> StepTime:
    """Coefficients moved, then all scaled so that the observed step moves as its slope says.

    A step is linear in a coefficient: upwards a move is a share of it, not a power.
    """
    factors = np.where(logs > 0, 1.0 + logs, np.exp(logs))
    step = seen.parts(law)
    scale = float(np.exp(seen.shares(law) @ logs) * step.sum() / (step @ factors))
    c0, c1, c2, c3 = (float(value) for value in scale * factors)
    return replace(
        law,
        c0_seconds=law.c0_seconds * c0,
        c1_seconds_per_prefill_token=law.c1_seconds_per_prefill_token * c1,
        c2_seconds_per_decode_seq=law.c2_seconds_per_decode_seq * c2,
        c3_seconds_per_kv_token=law.c3_seconds_per_kv_token * c3,
        c4_seconds_per_prefill_pair=law.c4_seconds_per_prefill_pair * c1,
    )


def _shared(descent: Descent) -> Floats:
    """Correlation of the weighted residuals: floors are one error at like load.

    A squared exponential in the log of the running requests, one octave wide.
    """
    playback, noise = descent.playback, descent.noise
    running = playback.seen[:, RESIDUALS.index("running_requests")]
    logs = np.log(np.where(running > 0, running, 1.0))
    apart = (logs[:, None] - logs[None, :]) / np.log(_ALIKE)
    alike = np.exp(-0.5 * apart**2)
    found = np.eye(noise.size)
    kinds = len(RESIDUALS)
    for column, name in enumerate(RESIDUALS):
        share = np.sqrt(_IN_COMMON) * FLOORS[name] / noise[:, column]
        both = np.outer(share, share) * alike
        np.fill_diagonal(both, 1.0)
        found[column::kinds, column::kinds] = both
    return found
