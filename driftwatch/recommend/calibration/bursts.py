"""Bursts inside a minute: what counts by the minute do not say, and what batch and queue tell.

Requests that come in bursts wait, fill steps and leave the engine idle between, where as many that
come evenly would not. A law fitted to evenly drawn arrivals takes that for the engine's: fewer and
longer steps are a large c0, three times the truth on the Azure code trace. So where a replay of
even arrivals has more steps than were counted, or fewer wait, other arrivals are fitted too. All
are compared by their likelihood, each with the noise that other draws of its own kind make: of
bursts no metric says where in the minute they were, and one draw of them misses by much.

How many wait is compared only in minutes whose queue empties inside them: a lasting backlog adds up
every error of the rate and the law, and bursts that are read out of it would be that error.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from driftwatch.recommend.calibration.arrivals import EVEN, Arrivals, redrawn
from driftwatch.recommend.calibration.fitted import RESIDUALS
from driftwatch.recommend.calibration.gauss_newton import Descent, Point
from driftwatch.recommend.calibration.playback import Playback, Played
from driftwatch.recommend.observed.traffic import Observed

_SOME = 0.2  # of a request: below, nobody waits
_SAID = 0.7  # sd of the log of how many wait, at the same law and CV
_MORE = 0.4  # log of observed over replayed: from there on bursts are tried
_BACKLOG_SECONDS = 10.0  # of mean wait: more than the minute of a burst empties again
_FEWEST_CHUNKS = 3
_PASSES_SD = 2.0  # of the sum over the chunks


def unlike(playback: Playback, played: Played) -> float:
    """How badly the waiting of a replay fits, as the sum of squares that a cost is."""
    off = _off(playback, played)
    return float(((off / _SAID) ** 2).sum())


def may_burst(descent: Descent, start: Played, played: Played) -> bool:
    """Whether arrivals drawn evenly leave something to explain.

    Args:
        descent: with the noise of even arrivals.
        start: even arrivals under the prior's proportions at the observed interval.
        played: … under the law that was fitted to them; it may have bent to explain the passes.
    """
    if descent.playback.observed.source == "request log":
        return False
    return more_passes(descent, start) or more_waited(descent.playback, played)


def more_passes(descent: Descent, played: Played) -> bool:
    """A replay makes more forward passes a token than were observed, beyond its noise.

    Requests that come together share their steps.
    """
    column = RESIDUALS.index("steps_per_generation_token")
    compared = descent.playback.compared[:, column]
    with np.errstate(divide="ignore", invalid="ignore"):
        off = np.log(played.values[:, column] / descent.playback.seen[:, column])
    compared &= np.isfinite(off)
    noise = float(np.sqrt((descent.noise[compared, column] ** 2).sum()))
    return bool(off[compared].sum() > _PASSES_SD * noise)


def more_waited(playback: Playback, played: Played) -> bool:
    """More waited than in this replay, in the minutes that tell."""
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

    Args:
        observed: as rebuilt from the metrics.
        arrivals: :attr:`driftwatch.recommend.calibration.fitted.Calibration.arrivals`.
        seed: of the arrivals inside their minutes.
    """
    if arrivals == EVEN:
        return observed
    rng = np.random.default_rng(seed)
    return replace(observed, requests=redrawn(observed.requests, rng, arrivals))
