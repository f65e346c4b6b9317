"""Bursts inside a minute: what counts by the minute do not say, and what a queue tells.

Requests that come in bursts wait, fill steps and leave others empty, where as many that come evenly
would not. A law fitted to evenly drawn arrivals would take that for the engine's. So where more
waited than such a replay shows, arrivals are drawn with Gamma gaps of a larger CV, and the CV under
which traffic and law explain the window best is kept.

A lasting backlog says nothing of that: it adds up every error of the rate and the law, and bursts
that are read out of it would be nothing but that error. A saturated window keeps its even arrivals,
and in any other only minutes whose queue empties inside them are asked.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from driftwatch.recommend.calibration.playback import Playback, Played
from driftwatch.recommend.calibration.weights import redrawn
from driftwatch.recommend.observed.traffic import Observed

EVEN = 1.0
GAP_CVS = (2.5, 6.0)  # the Azure code trace and ServeGen's clients inside a minute reach both
_SOME = 0.2  # of a request: below, nobody waits
_SAID = 0.7  # sd of the log of how many wait, at the same law and CV
_MORE = 0.4  # log of observed over replayed: from there on bursts are tried
_BACKLOG_SECONDS = 10.0  # of mean wait: more than the minute of a burst empties again
_FEWEST_CHUNKS = 3


def unlike(playback: Playback, played: Played) -> float:
    """How badly the waiting of a replay fits, as the sum of squares that a cost is."""
    off = _off(playback, played)
    return float(((off / _SAID) ** 2).sum())


def may_burst(playback: Playback, played: Played) -> bool:
    """Whether more waited than arrivals drawn evenly explain."""
    if playback.observed.source == "request log" or playback.observed.saturated:
        return False
    off = _off(playback, played)
    return len(off) >= _FEWEST_CHUNKS and float(off.mean()) < -_MORE


def _off(playback: Playback, played: Played) -> np.ndarray:
    off = np.log(played.waiting + _SOME) - np.log(playback.waiting + _SOME)
    return np.asarray(off[np.isfinite(off) & playback.comparable & ~_backlog(playback)])


def _backlog(playback: Playback) -> np.ndarray:
    """Chunks whose requests wait long, by Little's law: waiting over first tokens a second."""
    rate = playback.observed.chunks["first_tokens_per_second"].fill_null(np.nan).to_numpy()
    return np.asarray(playback.waiting > _BACKLOG_SECONDS * rate)


def with_bursts(observed: Observed, gap_cv: float, *, seed: int = 0) -> Observed:
    """The observed traffic as the calibration found it to come; the same where it comes evenly.

    Args:
        observed: as rebuilt from the metrics.
        gap_cv: :attr:`driftwatch.recommend.calibration.fitted.Calibration.gap_cv`.
        seed: of the arrivals inside their minutes.
    """
    if gap_cv == EVEN:
        return observed
    rng = np.random.default_rng(seed)
    return replace(observed, requests=redrawn(observed.requests, rng, gap_cv=gap_cv))
