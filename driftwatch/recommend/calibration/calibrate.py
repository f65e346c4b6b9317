"""Calibration from metrics alone: the laws under which the replay gives what was observed."""

from __future__ import annotations

from dataclasses import replace
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
from driftwatch.recommend.calibration.wander import wander_of, with_wander
from driftwatch.recommend.calibration.weights import first_noise, noise_of, redrawn
from driftwatch.recommend.observed.traffic import Observed
from driftwatch.simulate.configuration import SchedulerConfiguration
from driftwatch.simulate.step_time import StepTime

Floats = npt.NDArray[np.float64]

_DRAWS = 3
_WANDERINGS = 2
_LEAST_WANDER = 0.02  # sd of the log of the speed between chunks
_ITERATIONS, _AFTER = 8, 3  # of the first descent; of those that begin near the end of one
_DAMPING = 0.02
_EXPLAINED = 0.6  # of the misfit that must be gone with the wander, else it is none
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
    first, *others = prior.laws.items()
    descent, point, slopes = _first(playback, first[1], log_sd, seed)
    found = [_fit(first[0], descent, point, slopes)]
    judged = {first[0]: (descent, point, slopes)}
    for variant, law in others:
        own = replace(descent, prior=law)
        last, own_slopes = _descend(own, own.scaled(own.at(point.x)), slopes, _AFTER)
        found.append(_fit(variant, own, last, own_slopes))
        judged[variant] = (own, last, own_slopes)
    found.sort(key=lambda fit: fit.loss)
    why_not = what_is_unknown(found[0], *judged[found[0].variant], configuration)
    return Calibration(
        at=at,
        seconds=playback.seconds,
        fits=tuple(found),
        prior=prior.source,
        prior_known=prior.known,
        saturated=observed.saturated,
        identifiable=why_not is None,
        why_not=why_not,
        replays=playback.replays,
        wander_log_sd=float(np.std(playback.wander)),
    )


def _first(
    playback: Playback, law: StepTime, log_sd: Floats, seed: int
) -> tuple[Descent, Point, Floats]:
    """The first variant, with derivatives: it finds the noise and the wander of the window."""
    descent = Descent(playback, law, log_sd, first_noise(playback))
    point = descent.scaled(descent.at(np.zeros(5)))
    point, _ = descent.improve(point, descent.derivatives(point), _DAMPING)
    noise = _measured_noise(playback, point, seed)
    descent = replace(descent, noise=noise)
    point = descent.judged(point.x, point.law, point.played)
    point, slopes = _descend(descent, point, None, _ITERATIONS)
    without = descent, point, slopes
    for _ in range(_WANDERINGS):
        logs, sd = wander_of(playback, point.played, noise)
        if sd < _LEAST_WANDER:
            break
        playback.let_wander(logs)
        wider = with_wander(noise, sd)
        slopes = slopes * (descent.noise / wider).ravel()[:, None]  # they are in units of noise
        descent = replace(descent, noise=wider)
        point, slopes = _descend(descent, descent.at(point.x), slopes, _AFTER)
    plain, before, _ = without
    if descent is plain:
        return without
    after = plain.judged(point.x, point.law, point.played)
    if after.cost < _EXPLAINED * before.cost:
        return descent, point, slopes
    playback.let_wander(np.zeros(len(playback.starts)))
    return without


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


def _descend(
    descent: Descent, point: Point, slopes: Floats | None, iterations: int
) -> tuple[Point, Floats]:
    """Iterate; also the last derivatives.

    Args:
        descent: the problem.
        point: where to begin.
        slopes: derivatives near there, for the first step; None = find them.
        iterations: at most.
    """
    slopes = descent.derivatives(point) if slopes is None else slopes
    damping, idle = _DAMPING, 0
    for iteration in range(iterations):
        eased, point = descent.eased(point)
        following, damping = eased.improve(point, slopes, damping)
        idle = idle + 1 if point.cost - following.cost < _FINE * max(point.cost, 1.0) else 0
        moved, point = following is not point, following
        if (not moved and iteration) or idle == 2 or iteration == iterations - 1:
            break
        slopes = descent.derivatives(point)
    return descent.judged(point.x, point.law, point.played), slopes


def _fit(variant: str, descent: Descent, point: Point, slopes: Floats) -> Fit:
    information = descent.information(point, slopes)
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
