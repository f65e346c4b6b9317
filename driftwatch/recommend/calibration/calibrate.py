"""Calibration from metrics alone: the laws under which the replay gives what was observed."""

from __future__ import annotations

from datetime import datetime

import numpy as np
import numpy.typing as npt

from driftwatch.errors import NoVerdict
from driftwatch.recommend.calibration.fitted import (
    COEFFICIENTS,
    RESIDUALS,
    Calibration,
    Fit,
    Prior,
)
from driftwatch.recommend.calibration.gauss_newton import (
    OVERHEAD_SD_SECONDS,
    Descent,
    Point,
)
from driftwatch.recommend.calibration.identify import what_is_unknown
from driftwatch.recommend.calibration.playback import Playback
from driftwatch.recommend.calibration.weights import first_noise, noise_of, redrawn
from driftwatch.recommend.observed.traffic import Observed
from driftwatch.simulate.configuration import SchedulerConfiguration

Floats = npt.NDArray[np.float64]

_DRAWS = 3
_ITERATIONS = 8
_DAMPING = 0.02
_FINE = 0.02  # an iteration that lowers the cost by less was the last
_DETERMINED = 0.5  # of the prior's variance that may be left


def calibrate(
    observed: Observed,
    configuration: SchedulerConfiguration,
    prior: Prior,
    *,
    at: datetime,
    seed: int = 0,
) -> Calibration:
    """Fit every variant of the prior by replaying the observed requests.

    Args:
        observed: requests and what came of them.
        configuration: the settings that they ran under.
        prior: laws to start from and how far they may be off.
        at: end of the window.
        seed: of the draws by which the noise of the residuals is measured.

    Raises:
        NoVerdict: nothing in the window can be compared, or the replay makes no progress.
        ImpossibleConfiguration: vLLM would refuse the settings, or a request never fits.
    """
    playback = Playback(observed, configuration)
    compared = np.isfinite(playback.seen) & playback.comparable[:, None]
    if not len(playback.requests) or not compared.any():
        raise NoVerdict(
            "the window has nothing that a replay could be compared with: no chunk of it has "
            "requests and an observed latency, batch or throughput"
        )
    log_sd = np.array([prior.log_sd[name] for name in COEFFICIENTS])
    found: list[tuple[Fit, Descent, Point, Floats]] = []
    noise, x = first_noise(playback), np.zeros(5)
    for number, (variant, law) in enumerate(prior.laws.items()):
        descent = Descent(playback, law, log_sd, noise)
        point = descent.at(x)
        if number == 0:
            point = descent.scaled(point)
            point, _ = descent.improve(point, descent.derivatives(point), _DAMPING)
            noise = _measured_noise(playback, point, seed)
            descent = Descent(playback, law, log_sd, noise)
            point = descent.judged(point.x, point.law, point.played)
        point, information = _descend(descent, point)
        x = point.x if number == 0 else x
        found.append((_fit(variant, descent, point, information), descent, point, information))
    found.sort(key=lambda one: one[0].loss)
    best, descent, point, information = found[0]
    why_not = what_is_unknown(best, descent, point, information, configuration)
    return Calibration(
        at=at,
        seconds=observed.seconds,
        fits=tuple(one[0] for one in found),
        prior=prior.source,
        prior_known=prior.known,
        saturated=observed.saturated,
        identifiable=why_not is None,
        why_not=why_not,
        replays=playback.replays,
    )


def _measured_noise(playback: Playback, point: Point, seed: int) -> Floats:
    """A request log leaves nothing to draw."""
    if playback.observed.source == "request log":
        return noise_of(playback, [point.played.values] * 2)
    rng = np.random.default_rng(seed)
    drawn = [
        playback.play_others(point.law, redrawn(playback.requests, rng)).values
        for _ in range(_DRAWS)
    ]
    return noise_of(playback, drawn)


def _descend(descent: Descent, point: Point) -> tuple[Point, Floats]:
    """Iterate; the information at the end is that of the last derivatives."""
    slopes = descent.derivatives(point)
    damping, idle = _DAMPING, 0
    for iteration in range(_ITERATIONS):
        eased, point = descent.eased(point)
        following, damping = eased.improve(point, slopes, damping)
        idle = idle + 1 if point.cost - following.cost < _FINE * max(point.cost, 1.0) else 0
        moved, point = following is not point, following
        if not moved or idle == 2 or iteration == _ITERATIONS - 1:
            break
        slopes = descent.derivatives(point)
    point = descent.judged(point.x, point.law, point.played)
    return point, descent.information(point, slopes)


def _fit(variant: str, descent: Descent, point: Point, information: Floats) -> Fit:
    count = int(np.count_nonzero(point.residuals))
    loss = float((np.minimum(point.residuals**2, 100.0)).sum() / max(count, 1))
    precision = np.append(1.0 / descent.log_sd**2, 1.0)
    after = np.linalg.inv(information / max(1.0, loss) + np.diag(precision))
    sd = np.sqrt(np.diag(after))[:4]
    determined = sd**2 < _DETERMINED * descent.log_sd**2
    return Fit(
        variant=variant,
        law=point.law,
        residuals=overall_residuals(descent.playback, point),
        loss=loss,
        log_sd={name: float(value) for name, value in zip(COEFFICIENTS, sd, strict=True)},
        determined={
            name: bool(value) for name, value in zip(COEFFICIENTS, determined, strict=True)
        },
        ttft_overhead_seconds=float(point.x[4]) * OVERHEAD_SD_SECONDS,
    )


def overall_residuals(playback: Playback, point: Point) -> dict[str, float]:
    """Replayed over observed minus 1, over all chunks that can be compared.

    Sums over sums: intervals weigh by their tokens, first tokens by their number, gauges by time.
    """
    seen, played = playback.seen, point.played.values.copy()
    played[:, RESIDUALS.index("ttft_seconds")] += float(point.x[4]) * OVERHEAD_SD_SECONDS
    seconds = playback.ends - playback.starts
    rate = np.nan_to_num(seen[:, RESIDUALS.index("generation_tokens_per_second")], nan=1.0)
    weights = {
        "itl_seconds": seconds * rate,
        "steps_per_generation_token": seconds * rate,
        "ttft_seconds": playback.counts,
    }
    made = {}
    for column, name in enumerate(RESIDUALS):
        both = np.isfinite(seen[:, column]) & np.isfinite(played[:, column])
        both &= playback.comparable
        weight = weights.get(name, seconds)[both]
        below = float((seen[both, column] * weight).sum())
        if below > 0:
            made[name] = float((played[both, column] * weight).sum()) / below - 1.0
    return made
