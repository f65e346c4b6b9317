"""What a fit leaves open, and the step-time models between which a larger batch is forecast."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from recorded_runs import AT
from test_calibrate import CONFIGURATION, LAW, SERVER, seen, traffic, window

from driftwatch.recommend.calibration.calibrate import calibrate
from driftwatch.recommend.calibration.posterior import (
    Composition,
)
from driftwatch.recommend.calibration.prior import prior_of
from driftwatch.simulate.step_time import StepTime

BUSY = Composition(20.0, 10.0, 6000.0)


def step(step_time: StepTime, batch: float) -> float:
    return float(BUSY.times(batch).parts(step_time).sum())


@pytest.mark.slow
def test_a_window_of_one_batch_leaves_more_open_than_one_whose_load_varies() -> None:
    rng = np.random.default_rng(1)
    count = 3000
    small = replace(CONFIGURATION, max_num_seqs=8)
    crowd = traffic(count, 4)
    at = np.sort(rng.uniform(0.01, 300.0, count))
    full = seen(replace(crowd, arrival_seconds=at), small, LAW)
    open_still = []
    for observed, configuration in ((full, small), (window(), CONFIGURATION)):
        prior = prior_of(replace(SERVER, model="acme/new"), observed, configuration)
        best = calibrate(observed, configuration, prior, at=AT).best
        assert best.slower is not None and best.faster is not None
        assert best.reach_log_sd is not None
        open_still.append(best.reach_log_sd)
        larger = (0, 64, 40_000)
        assert best.faster.seconds(*larger) < best.slower.seconds(*larger)
    assert open_still[0] > open_still[1]
