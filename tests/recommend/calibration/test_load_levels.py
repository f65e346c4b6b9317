"""What part of a window is fitted, and whether a step-time model fits at each level of its load."""

from __future__ import annotations

from dataclasses import replace

import pytest
from test_calibrate import found

from driftwatch.recommend.calibration.fits import LoadBand
from driftwatch.recommend.gates import load_gates


def test_a_law_that_fits_has_the_interval_right_at_every_level_of_load() -> None:
    bands = found().best.bands
    assert len(bands) >= 2
    assert sum(band.tokens_ratio for band in bands) == pytest.approx(1.0)
    assert all(gate.passed for gate in load_gates(found().best))


def test_a_level_that_hardly_a_token_came_from_refuses_nothing() -> None:
    off = LoadBand(1.2, 0.003, 0.4, 0.03, 0.01)
    fit = replace(found().best, bands=(off, replace(off, off_ratio=0.05, tokens_ratio=0.99)))
    assert [gate.passed for gate in load_gates(fit)] == [True]
    fit = replace(fit, bands=(replace(off, tokens_ratio=0.2),))
    (gate,) = load_gates(fit)
    assert not gate.passed
    assert gate.said == (
        "the model of this server is off by 40 % on ITL at 1.2 running requests (limit 10 %)"
    )
    noisy = replace(fit, bands=(replace(off, tokens_ratio=0.2, log_sd=0.25),))
    assert load_gates(noisy)[0].passed
