"""A fit in a process of its own: what it forecasts, a number a line."""

from __future__ import annotations

import sys

from recorded_runs import AT
from test_calibrate import CONFIGURATION, SERVER, window

from driftwatch.recommend.calibration.calibrate import calibrate
from driftwatch.recommend.calibration.prior import prior_of

STEPS = ((0, 8, 4000), (512, 16, 9000), (96, 48, 60_000), (2000, 40, 20_000))


def forecasts() -> dict[str, float]:
    """Seconds of some steps by every variant and by both of its bounds."""
    prior = prior_of(SERVER, window(), CONFIGURATION)
    made = calibrate(window(), CONFIGURATION, prior, at=AT)
    found = {"best": float([*prior.step_times].index(made.best.variant))}
    for fit in made.fits:
        for name, step_time in (
            ("step_time", fit.step_time),
            ("slower", fit.slower),
            ("faster", fit.faster),
        ):
            assert step_time is not None
            for step in STEPS:
                found[f"{fit.variant} {name} {step}"] = step_time.seconds(*step)
    return found


if __name__ == "__main__":
    for name, value in forecasts().items():
        sys.stdout.write(f"{name}\t{value!r}\n")
