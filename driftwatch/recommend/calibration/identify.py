"""Whether laws that fit today say anything of another batch."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from driftwatch.recommend.calibration.fitted import RESIDUALS, Fit
from driftwatch.recommend.calibration.gauss_newton import Descent, Point
from driftwatch.simulate.configuration import SchedulerConfiguration

Floats = npt.NDArray[np.float64]

_STEP_SD = 0.1  # of the log time of a step that the advice would cause, at most
_NEAR_BUDGET = 0.5  # of max_num_batched_tokens: from there on it may be what is asked about
# Relative residuals that no law mends: the settings or the KV blocks are others than they are said.
_CONTRADICTION = 0.25
_KV_ROOM = 0.5  # of the cache: with twice the batch it would be full
_CHECKED = {
    "running_requests": "running requests",
    "kv_cache_usage_ratio": "KV cache usage",
    "steps_per_generation_token": "forward passes a token",
}


def what_is_unknown(
    fit: Fit,
    descent: Descent,
    point: Point,
    slopes: Floats,
    configuration: SchedulerConfiguration,
) -> str | None:
    """Why other batches cannot be forecast from this fit; None where they can."""
    for name, said in _CHECKED.items():
        off = fit.residuals.get(name)
        if name == "kv_cache_usage_ratio" and off is not None and not _kv_matters(descent, off):
            continue
        bound = _CONTRADICTION + 2.0 * _noise_of_mean(descent, name)
        if off is not None and abs(off) > bound:
            return (
                f"the replay contradicts the settings or the KV blocks: {said} "
                f"{100 * off:+.0f} % (bound {100 * bound:.0f} %)"
            )
    after = descent.covariance(point, slopes)[:4, :4]
    law, mean = point.law, point.played.mean_composition
    decode, context = max(mean[1], 1.0), max(mean[2], 1.0)
    for said, prefill, times in _asked(mean, configuration):
        parts = np.array(
            [
                law.c0_seconds,
                law.c1_seconds_per_prefill_token * max(prefill - law.hinge_tokens, 0.0),
                law.c2_seconds_per_decode_seq * decode * times,
                law.c3_seconds_per_kv_token * context * times,
            ]
        )
        slope = parts / parts.sum()
        sd = float(np.sqrt(slope @ after @ slope))
        if sd > _STEP_SD:
            return (
                f"the time of a step with {said} is known to ±{100 * sd:.0f} % only "
                f"(bound {100 * _STEP_SD:.0f} %): the load of the window was too even, and "
                f"nothing else is known of it"
            )
    return None


def _asked(
    mean: tuple[float, float, float], configuration: SchedulerConfiguration
) -> list[tuple[str, float, float]]:
    """Steps that a change would cause: in words, prefill tokens, times today's decoding."""
    budget, today = configuration.max_num_batched_tokens, mean[0] + mean[1]
    asked = [("twice today's batch", min(2 * mean[0], budget), 2.0)]
    if today > _NEAR_BUDGET * budget:
        asked.append(("twice the token budget", 2.0 * budget - mean[1], 1.0))
    return asked


def _kv_matters(descent: Descent, off: float) -> bool:
    """The cache might bind, as observed or as replayed; else its use says nothing of a step."""
    seen = descent.playback.seen[:, RESIDUALS.index("kv_cache_usage_ratio")]
    most = float(np.nanmax(seen)) if np.isfinite(seen).any() else 0.0
    return most * max(1.0, 1.0 + off) > _KV_ROOM


def _noise_of_mean(descent: Descent, name: str) -> float:
    """Sd of the log of one residual over the window."""
    column = RESIDUALS.index(name)
    known = np.isfinite(descent.playback.seen[:, column]) & descent.playback.comparable
    noise = descent.noise[known, column]
    return float(np.sqrt((noise**2).sum())) / len(noise) if len(noise) else 0.0
