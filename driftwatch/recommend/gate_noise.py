"""How far today's replay may be off by chance alone: what the metrics leave open, drawn anew.

Minutes say how many requests came and which lengths ended, not when in the minute, nor which length
came with which. Another draw of the same counts gives other means; a residual within two standard
deviations of them says nothing against the law.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from driftwatch.errors import ImpossibleConfiguration, NoVerdict
from driftwatch.recommend.calibration.arrivals import Arrivals, redrawn
from driftwatch.recommend.observed.traffic import Observed
from driftwatch.recommend.replaying import Judged, replayed
from driftwatch.recommend.worlds import World

_DRAWS = 6
_FIGURES = (
    "generation_tokens_per_second",
    "itl_seconds",
    "ttft_seconds",
    "running_requests",
)


def spread_by_chance(
    observed: Observed, world: World, arrivals: Arrivals, seed: int
) -> Mapping[str, float]:
    """Figure → relative standard deviation of its mean over the window.

    Args:
        observed: the window; of a request log nothing is drawn, and nothing is left to chance.
        world: settings and law.
        arrivals: how they come inside a minute, as the calibration has it.
        seed: of the draws.
    """
    if observed.source != "metrics":
        return {}
    rng = np.random.default_rng(seed)
    judged = Judged(None, np.nextafter(0.0, 1.0), observed.seconds)
    found: dict[str, list[float]] = {name: [] for name in _FIGURES}
    for _ in range(_DRAWS):
        try:
            one = replayed(
                redrawn(observed.requests, rng, arrivals),
                world.configuration,
                world.law,
                judged,
                scraped=True,
            )
        except (ImpossibleConfiguration, NoVerdict):
            return {}
        for name, values in found.items():
            value = getattr(one, name)
            if value is not None:
                values.append(float(value))
    return {
        name: float(np.std(values, ddof=1) / np.mean(values))
        for name, values in found.items()
        if len(values) == _DRAWS and np.mean(values) > 0
    }
