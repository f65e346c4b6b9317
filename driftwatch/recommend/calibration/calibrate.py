"""Calibration from metrics alone: models under which a simulation gives what was observed.

Requests that come in bursts wait and leave the engine idle between; a model fitted to even arrivals
takes that for the engine's. So where a simulation of even arrivals makes more steps than were
counted, or fewer wait, other arrivals are fitted too, and compared by their likelihood.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

import numpy as np

from driftwatch.arrays import Floats
from driftwatch.errors import NoVerdict
from driftwatch.recommend.calibration.descent import (
    OVERHEAD,
    OVERHEAD_SD_SECONDS,
    WANDER,
    Descent,
    Point,
    load_bands,
    loss_of,
)
from driftwatch.recommend.calibration.fits import (
    COEFFICIENTS,
    EVEN,
    FURTHER,
    LIKELY,
    RESIDUALS,
    Arrivals,
    Calibration,
    Fit,
    Prior,
    redrawn,
)
from driftwatch.recommend.calibration.playback import Playback, Played, first_noise, noise_of
from driftwatch.recommend.calibration.posterior import (
    busiest,
    extremes,
    posterior,
    reach_log_sd,
    what_is_unknown,
    with_form,
)
from driftwatch.recommend.traffic.observed import Observed
from driftwatch.simulate.configuration import SchedulerConfiguration
from driftwatch.simulate.step_time import StepTime

_SOME = 0.2  # of a request: below, nobody waits
_WAITING_LOG_SD = 0.7  # sd of the log of how many wait, at the same step-time model and CV
_MORE = 0.4  # log of observed over simulated: from there on bursts are tried
_BACKLOG_SECONDS = 10.0  # of mean wait: more than the minute of a burst empties again
_FEWEST_CHUNKS = 3
_PASSES_SD = 2.0  # of the sum over the chunks


def unlike(playback: Playback, played: Played) -> float:
    """How badly the waiting of a simulation fits, as the sum of squares that a cost is."""
    off = _off(playback, played)
    return float(((off / _WAITING_LOG_SD) ** 2).sum())


def may_burst(descent: Descent, start: Played, played: Played) -> bool:
    """Whether arrivals drawn evenly leave something to explain.

    ``start``: even arrivals under the prior's proportions at the observed interval; ``played``: …
    under the step-time model that was fitted to them; it may have bent to explain the passes.
    """
    if descent.playback.observed.source == "request log":
        return False
    return more_passes(descent, start) or more_waited(descent.playback, played)


def more_passes(descent: Descent, played: Played) -> bool:
    """A simulation makes more forward passes a token than were observed, beyond its noise.

    Requests that come together share their steps.
    """
    column = RESIDUALS.index("steps_per_generation_token")
    compared = descent.playback.compared[:, column]
    with np.errstate(divide="ignore", invalid="ignore"):
        off = np.log(played.values[:, column] / descent.playback.measured[:, column])
    compared &= np.isfinite(off)
    noise = float(np.sqrt((descent.noise[compared, column] ** 2).sum()))
    return bool(off[compared].sum() > _PASSES_SD * noise)


def more_waited(playback: Playback, played: Played) -> bool:
    """More waited than in this simulation, in the minutes that tell."""
    off = _off(playback, played)
    return len(off) >= _FEWEST_CHUNKS and float(off.mean()) < -_MORE


def unlikeliness(descent: Descent, point: Point) -> float:
    """-2 log of the likelihood and the prior, but for a constant: compares arrivals with noises."""
    noise = descent.noise[descent.playback.compared]
    waits = unlike(descent.playback, point.played)
    return point.cost + waits + 2.0 * float(np.log(noise).sum())


def _off(playback: Playback, played: Played) -> np.ndarray:
    off = np.log(played.waiting + _SOME) - np.log(playback.waiting + _SOME)
    return np.asarray(off[np.isfinite(off) & playback.comparable & ~_backlog(playback)])


def _backlog(playback: Playback) -> np.ndarray:
    """Chunks whose requests wait long, by Little's law: waiting over first tokens a second."""
    rate = playback.observed.chunks["first_tokens_per_second"].fill_null(np.nan).to_numpy()
    return np.asarray(playback.waiting > _BACKLOG_SECONDS * rate)


def with_bursts(observed: Observed, arrivals: Arrivals, *, seed: int = 0) -> Observed:
    """The observed traffic as the calibration found it to come; the same where it comes evenly.

    ``arrivals``: :attr:`driftwatch.recommend.calibration.fits.Calibration.arrivals`.
    """
    if arrivals == EVEN:
        return observed
    rng = np.random.default_rng(seed)
    return replace(observed, requests=redrawn(observed.requests, rng, arrivals))


Judged = dict[str, tuple[Descent, Point, Floats]]

_DRAWS = 3
_ITERATIONS, _AFTER = 8, 3  # of the first descent; of those that begin near the end of one
_TRIED = 2  # of arrivals that are tried
_DAMPING = 0.02
_FINE = 0.02  # an iteration that lowers the cost by less was the last but one
# Sd of the log of the speed between chunks, before the chunks are looked at, and for how many of
# them that counts: 3.5 % on a GPU, 9 to 13 % on a shared CPU (shared/data/README.md).
_WANDER_SD, _BELIEVED = 0.05, 4.0
_TOLD_APART = (
    6.0  # of -2 log likelihood: 20 to 1, the least that is called evidence (Kass, Raftery)
)
_FAR_OFF = 5.0  # times the cost of the variant before: its coefficients are no start


def calibrate(
    observed: Observed,
    configuration: SchedulerConfiguration,
    prior: Prior,
    *,
    at: datetime,
    seed: int = 0,
    before: Calibration | None = None,
) -> Calibration:
    """Fit every variant of the prior by simulating the observed requests.

    ``prior``: step-time models to start from and how far they may be off; ``seed``: of the draws by
    which the noise of the residuals is measured; ``before``: of the same traffic under other
    settings, where requests came evenly: its step-time model is where to start, and bursts are not
    looked for again; None = both are. Raises NoVerdict: nothing in the window can be compared, or
    the simulation makes no progress; ImpossibleConfiguration: vLLM would refuse the settings, or a
    request never fits.
    """
    playback = None
    if len(observed.requests) and len(observed.chunks):
        playback = Playback(observed, configuration)
    if playback is None or not playback.compared.any():
        raise NoVerdict(
            "the window has nothing that a simulation could be compared with: no chunk of it has "
            "requests and an observed latency, batch or throughput"
        )
    log_sd = np.array([prior.log_sd[name] for name in COEFFICIENTS])
    first, *others = prior.step_times.items()
    descent, start = _start(playback, first, log_sd, before)
    descent, point, slopes, arrivals = _first(descent, start, seed, before)
    fits = [_fit(first[0], descent, point, slopes, prior.is_known)]
    judged: Judged = {first[0]: (descent, point, slopes)}
    for variant, step_time in others:
        own = replace(descent, prior=step_time)
        begin = own.at(own.like(point))
        if begin.cost > _FAR_OFF * point.cost:
            begin = own.scaled(begin)
        last, own_slopes = _descend(own, begin, slopes, _AFTER)
        fits.append(_fit(variant, own, last, own_slopes, prior.is_known))
        judged[variant] = (own, last, own_slopes)
    fits = _ordered(fits, judged)
    best = judged[fits[0].variant]
    why_not = what_is_unknown(fits[0], *best, configuration)
    return Calibration(
        at=at,
        seconds=playback.seconds,
        fits=tuple(fits),
        prior=prior.source,
        prior_known=prior.is_known,
        saturated=observed.saturated,
        identifiable=why_not is None,
        why_not=why_not,
        simulations=playback.simulations,
        arrivals=arrivals,
        wander_log_sd=float(np.std(best[1].wander[playback.comparable])),
    )


def _start(
    playback: Playback, first: tuple[str, StepTime], log_sd: Floats, before: Calibration | None
) -> tuple[Descent, Point]:
    """The first variant at the observed interval: its prior, or the model found before."""
    descent = Descent(playback, first[1], log_sd, first_noise(playback), _WANDER_SD)
    x = descent.start()
    previous = before and next((fit for fit in before.fits if fit.variant == first[0]), None)
    if previous:
        x[:4] = descent.x_of(previous.step_time)
        x[OVERHEAD] = previous.ttft_overhead_seconds / OVERHEAD_SD_SECONDS
    return descent, descent.scaled(descent.at(x))


def _first(
    descent: Descent, start: Point, seed: int, before: Calibration | None
) -> tuple[Descent, Point, Floats, Arrivals]:
    """The first variant, with derivatives: it finds noise, bursts and wander of the window."""
    playback, arrivals, point = descent.playback, EVEN, start
    if before is None:
        point, _ = descent.improve(start, descent.derivatives(start), _DAMPING)
    descent = replace(descent, noise=_measured_noise(playback, point, seed, arrivals))
    point = descent.judged(point.x, point.step_time, point.played)
    point, slopes = _descend(descent, point, None, _ITERATIONS)
    if before is None and may_burst(descent, start.played, point.played):
        arrivals, descent, point = _burst(descent, point, start.x, seed)
        if arrivals != EVEN:
            descent = replace(descent, noise=_measured_noise(playback, point, seed, arrivals))
            point = descent.judged(point.x, point.step_time, point.played)
            point, slopes = _descend(descent, point, None, _AFTER)
    descent = replace(descent, wander_sd=_wander_sd(descent, point, slopes))
    point = descent.judged(point.x, point.step_time, point.played)
    point, slopes = _descend(descent, point, slopes, _AFTER)
    return descent, point, slopes, arrivals


def _burst(
    descent: Descent, point: Point, start: Floats, seed: int
) -> tuple[Arrivals, Descent, Point]:
    """The arrivals under which the window is likeliest, with noise and step-time model that go with
    them.
    """
    playback = descent.playback
    even = playback.requests
    best = (unlikeliness(descent, point), EVEN, descent, point, even)
    for kinds in (LIKELY, FURTHER):
        for kind in kinds:
            playback.replace_requests(redrawn(even, np.random.default_rng(seed), kind))
            begin = descent.scaled(descent.at(start))
            own = replace(descent, noise=_measured_noise(playback, begin, seed, kind))
            reached, _ = _descend(
                own, own.judged(begin.x, begin.step_time, begin.played), None, _TRIED
            )
            unlikely = unlikeliness(own, reached)
            if unlikely < best[0]:
                best = (unlikely, kind, own, reached, playback.requests)
        if best[1] == EVEN:
            break
    playback.replace_requests(best[4])
    return best[1], best[2], best[3]


def _wander_sd(descent: Descent, point: Point, slopes: Floats) -> float:
    """Sd of the speed between chunks: what was believed, and the chunks (one step of EM)."""
    compared = descent.playback.comparable
    variance = np.diag(descent.covariance(point, slopes))[WANDER:][compared]
    squares = float((point.wander[compared] ** 2 + variance).sum())
    count = int(compared.sum())
    return float(np.sqrt((squares + _BELIEVED * _WANDER_SD**2) / (count + _BELIEVED)))


def _measured_noise(playback: Playback, point: Point, seed: int, arrivals: Arrivals) -> Floats:
    """By other draws of the same kind; a request log leaves nothing to draw."""
    if playback.observed.source == "request log":
        return noise_of(playback, ())
    rng = np.random.default_rng(seed)
    others = [redrawn(playback.requests, rng, arrivals) for _ in range(_DRAWS)]
    played = [playback.play_others(point.step_time, point.wander, other).values for other in others]
    return noise_of(playback, played)


def _descend(
    descent: Descent, point: Point, slopes: Floats | None, iterations: int
) -> tuple[Point, Floats]:
    """Iterate; also the last derivatives."""
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
    return descent.judged(point.x, point.step_time, point.played), slopes


def _ordered(fits: list[Fit], judged: Judged) -> list[Fit]:
    """The likeliest first; variants that the data do not tell apart, as the prior has them."""
    costs = {fit.variant: judged[fit.variant][1].cost for fit in fits}
    least = min(costs.values())
    alike = [fit for fit in fits if costs[fit.variant] <= least + _TOLD_APART]
    rest = [fit for fit in fits if costs[fit.variant] > least + _TOLD_APART]
    return [*alike, *sorted(rest, key=lambda fit: costs[fit.variant])]


def _fit(variant: str, descent: Descent, point: Point, slopes: Floats, prior_known: bool) -> Fit:
    covariance = posterior(descent, point, slopes)
    sd = np.sqrt(np.diag(covariance))
    composition = busiest(point, descent)
    open_still = with_form(covariance, point.step_time, composition, prior_known)
    slower, faster = extremes(point.step_time, open_still, composition)
    return Fit(
        variant=variant,
        step_time=point.step_time,
        residuals=overall_residuals(descent.playback, point),
        loss=loss_of(point),
        log_sd={name: float(value) for name, value in zip(COEFFICIENTS, sd, strict=True)},
        ttft_overhead_seconds=float(point.x[OVERHEAD]) * OVERHEAD_SD_SECONDS,
        slower=slower,
        faster=faster,
        reach_log_sd=reach_log_sd(point.step_time, open_still, composition),
        bands=load_bands(descent, point),
    )


def overall_residuals(playback: Playback, point: Point) -> dict[str, float]:
    """Simulated over observed minus 1, over all chunks that can be compared.

    Sums over sums: intervals weigh by their tokens, first tokens by their number, gauges by time.
    """
    measured, played = playback.measured, point.played.values.copy()
    played[:, RESIDUALS.index("ttft_seconds")] += float(point.x[OVERHEAD]) * OVERHEAD_SD_SECONDS
    seconds = playback.ends - playback.starts
    rate = np.nan_to_num(measured[:, RESIDUALS.index("generation_tokens_per_second")], nan=1.0)
    weights = {
        "itl_seconds": seconds * rate,
        "steps_per_generation_token": seconds * rate,
        "ttft_seconds": playback.counts,
    }
    residuals = {}
    for column, name in enumerate(RESIDUALS):
        both = np.isfinite(measured[:, column]) & np.isfinite(played[:, column])
        both &= playback.comparable
        weight = weights.get(name, seconds)[both]
        below = float((measured[both, column] * weight).sum())
        if below > 0:
            residuals[name] = float((played[both, column] * weight).sum()) / below - 1.0
    return residuals
