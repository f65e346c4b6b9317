"""How well a law fits at each level of load: a mean over all of them hides a law that bends wrong.

A law that is too slow at light load and too fast at full load gives the window's mean interval all
the same, and the wander of the chunks makes up for it. So the time between tokens is compared by
octaves of the running requests, without the wander.
"""

from __future__ import annotations

import numpy as np

from driftwatch.recommend.calibration.fitted import RESIDUALS, LoadBand
from driftwatch.recommend.calibration.gauss_newton import Descent, Point

_RUNNING, _ITL = RESIDUALS.index("running_requests"), RESIDUALS.index("itl_seconds")


def load_bands(descent: Descent, point: Point) -> tuple[LoadBand, ...]:
    """The bands of a fit, lightest load first; only chunks that were compared are in one."""
    playback = descent.playback
    running = playback.seen[:, _RUNNING]
    with np.errstate(divide="ignore", invalid="ignore"):
        off = np.log(point.played.values[:, _ITL] / playback.seen[:, _ITL]) - point.wander
        octave = np.floor(np.log2(running))
    known = np.isfinite(off) & np.isfinite(octave) & playback.comparable
    found = []
    for number in np.unique(octave[known]):
        those = known & (octave == number)
        tokens = playback.tokens[those]
        share = tokens / tokens.sum()
        variance = descent.noise[those, _ITL] ** 2 + descent.wander_sd**2
        found.append(
            LoadBand(
                running_requests=float(share @ running[those]),
                itl_seconds=float(share @ playback.seen[those, _ITL]),
                off_ratio=float(np.expm1(share @ off[those])),
                log_sd=float(np.sqrt(share**2 @ variance)),
                tokens_ratio=float(tokens.sum() / playback.tokens[known].sum()),
            )
        )
    return tuple(found)
