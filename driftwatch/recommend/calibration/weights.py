"""How much each residual of a chunk says: the noise of what it compares.

Three parts, added as variances of logarithms. What the metrics do not say, measured: the same
counts and lengths are drawn anew (arrivals inside their minute, lengths among the requests of a
minute) and replayed; what differs between such replays, differs as much between any of them and the
truth.
And what no law of this form can say, stated: ``FLOORS``. A gauge is besides a few samples of what
runs: Poisson noise of as many requests as its scrapes saw (scrapes no denser than every 15 s count,
as neighbours see the same requests).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from driftwatch.recommend.calibration.fitted import RESIDUALS
from driftwatch.recommend.calibration.playback import Playback

Floats = npt.NDArray[np.float64]

# Stated: step jitter, stalls, the few scrapes of a gauge, work outside the engine.
FLOORS = {
    "generation_tokens_per_second": 0.02,
    "itl_seconds": 0.015,
    "ttft_seconds": 0.06,
    "steps_per_generation_token": 0.02,
    "running_requests": 0.05,
    "kv_cache_usage_ratio": 0.05,
    "prefill_seconds": 0.05,
}
_SCRAPE_SECONDS = 15.0


def first_noise(playback: Playback) -> Floats:
    """Before anything was replayed: the floors and the counting noise of a chunk's requests."""
    counted = 1.0 / np.maximum(playback.counts, 1.0)[:, None]
    return np.asarray(np.sqrt(_stated(playback) + counted))


def noise_of(playback: Playback, played: Sequence[Floats]) -> Floats:
    """Sd of the log residuals, a row a chunk.

    Args:
        playback: the traffic.
        played: values of replays of requests drawn anew; empty where nothing had to be drawn.
    """
    stated = _stated(playback)
    if not played:
        return np.asarray(np.sqrt(stated))
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = np.log(np.array(played))
    logs[~np.isfinite(logs)] = np.nan
    counts = np.maximum(playback.counts, 1.0)
    drawn = np.zeros_like(logs[0])
    for column in range(logs.shape[2]):
        spread = np.var(logs[:, :, column], axis=0, ddof=1) * counts
        known = spread[np.isfinite(spread)]
        if len(known):  # pooled: three draws say little of one chunk
            drawn[:, column] = known.mean() / counts
    return np.asarray(np.sqrt(stated + 2.0 * drawn))


def _stated(playback: Playback) -> Floats:
    """Variance of each residual that is not measured: floors, and the sampling of the gauges."""
    variance = np.array([FLOORS[name] ** 2 for name in RESIDUALS])
    found = np.repeat(variance[None, :], len(playback.starts), axis=0)
    running = playback.seen[:, RESIDUALS.index("running_requests")]
    scrapes = np.maximum((playback.ends - playback.starts) / _SCRAPE_SECONDS, 1.0)
    sampled = 1.0 / (np.where(running > 0, running, 1.0) * scrapes)
    for name in ("running_requests", "kv_cache_usage_ratio"):
        found[:, RESIDUALS.index(name)] += sampled
    return found
