"""What a fit leaves open, and the step-time models between which a larger batch is forecast."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from recorded_runs import AT
from test_calibrate import CONFIGURATION, LAW, SERVER, seen, traffic, window

from driftwatch.recommend.calibration.calibrate import calibrate
from driftwatch.recommend.calibration.descent import Descent
from driftwatch.recommend.calibration.playback import Playback, noise_of
from driftwatch.recommend.calibration.posterior import (
    FORM_LOG_SD_KNOWN,
    FORM_LOG_SD_UNKNOWN,
    P90,
    REACH,
    Composition,
    extremes,
    posterior,
    reach_log_sd,
    with_form,
)
from driftwatch.recommend.calibration.prior import prior_of
from driftwatch.simulate.step_time import StepTime

BUSY = Composition(20.0, 10.0, 6000.0)
LINE = StepTime(0.01, 3e-5, 1e-4, 1e-7)


def step(step_time: StepTime, batch: float) -> float:
    return float(BUSY.times(batch).parts(step_time).sum())


def test_between_the_two_laws_lie_80_percent_of_a_larger_batch_and_nearly_nothing_of_todays() -> (
    None
):
    covariance = with_form(np.zeros((4, 4)), LINE, BUSY, prior_known=False)
    slower, faster = extremes(LINE, covariance, BUSY)
    sd = FORM_LOG_SD_UNKNOWN * np.log2(REACH)
    assert reach_log_sd(LINE, covariance, BUSY) == pytest.approx(sd)
    assert np.log(step(slower, REACH) / step(LINE, REACH)) == pytest.approx(P90 * sd, rel=0.35)
    assert step(slower, 1.0) == pytest.approx(step(LINE, 1.0), rel=1e-9)
    assert step(faster, 1.0) == pytest.approx(step(LINE, 1.0), rel=1e-9)
    assert step(faster, REACH) < step(LINE, REACH)
    known = with_form(np.zeros((4, 4)), LINE, BUSY, prior_known=True)
    ratio = FORM_LOG_SD_KNOWN / FORM_LOG_SD_UNKNOWN
    assert reach_log_sd(LINE, known, BUSY) == pytest.approx(ratio * sd)


def test_ten_chunks_of_one_load_say_no_more_of_the_engine_than_their_floor() -> None:
    """What no model says is one error at one load: more minutes of it do not average it away."""
    even = replace(window(), source="request log")
    flat = even.chunks.with_columns(running_requests=10.0)
    varied = even.chunks
    sds = []
    for chunks in (flat, varied):
        playback = Playback(replace(even, chunks=chunks), CONFIGURATION)
        descent = Descent(playback, LAW, np.ones(4), noise_of(playback, ()), 0.02)
        point = descent.at(descent.start())
        slopes = descent.derivatives(point)
        sd = np.sqrt(np.diag(posterior(descent, point, slopes)))
        independent = np.sqrt(np.diag(descent.covariance(point, slopes)))[:4]
        assert sd[0] > independent[0]
        sds.append(sd[0])
    assert sds[0] > sds[1]


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
