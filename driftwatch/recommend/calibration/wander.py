"""An engine's own wander of speed: neighbours on the host, clocks, temperature.

At the same composition a step takes longer in one chunk than in another; no law says so, and a
queue integrates it. So the replay is given a factor for each chunk: as much of its interval's
residual as is not noise (the variances of both are known: an empirical Bayes estimate). The law is
that of the mean speed.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from driftwatch.recommend.calibration.fitted import RESIDUALS
from driftwatch.recommend.calibration.playback import Playback, Played

Floats = npt.NDArray[np.float64]

_ITL = RESIDUALS.index("itl_seconds")
_STEP = 0.7  # of a residual in one go: where a queue stands, the interval answers more than 1 to 1
_MOST = 0.5  # log of a factor
# What moves with the speed; the others answer to the demand.
_MOVED = ("itl_seconds", "prefill_seconds", "running_requests", "kv_cache_usage_ratio")
_FEWEST_CHUNKS = 4


def wander_of(playback: Playback, played: Played, noise: Floats) -> tuple[Floats, float]:
    """Log of a factor on each chunk's steps, mean 0 over the tokens, and its sd between chunks.

    Args:
        playback: the traffic, with the wander known so far.
        played: its replay.
        noise: sd of the log residuals, without wander.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        off = np.log(playback.seen[:, _ITL]) - np.log(played.values[:, _ITL])
    known = np.isfinite(off) & playback.comparable
    if int(known.sum()) < _FEWEST_CHUNKS:
        return playback.wander, 0.0
    logs = playback.wander + _STEP * np.where(known, off, 0.0)
    weight = np.where(known, playback.tokens, 0.0)
    weight = weight / weight.sum()
    logs = np.where(known, logs - float(weight @ logs), 0.0)
    excess = float(np.var(logs[known])) - float(np.mean(noise[known, _ITL] ** 2))
    if excess <= 0:
        return playback.wander, 0.0
    kept = excess / (excess + noise[:, _ITL] ** 2)
    return np.clip(kept * logs, -_MOST, _MOST), float(np.sqrt(excess))


def with_wander(noise: Floats, sd: float) -> Floats:
    """The noise of residuals of which the wander moves some, though its estimate was taken off.

    A change of the interval from chunk to chunk may be the load or the wander: it says less of the
    law by as much.
    """
    moved = np.array([name in _MOVED for name in RESIDUALS])
    return np.asarray(np.where(moved, np.sqrt(noise**2 + sd**2), noise))
