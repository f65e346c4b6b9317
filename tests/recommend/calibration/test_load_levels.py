"""What part of a window is fitted, and whether a step-time model fits at each level of its load."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from test_calibrate import CONFIGURATION, LAW, found, traffic, window

from driftwatch.recommend.calibration import playback
from driftwatch.recommend.calibration.calibrate import overall_residuals
from driftwatch.recommend.calibration.descent import WANDER, Descent, load_bands
from driftwatch.recommend.calibration.fits import RESIDUALS, LoadBand
from driftwatch.recommend.calibration.playback import Playback, first_noise
from driftwatch.recommend.gates import load_gates
from driftwatch.simulate.step_time import StepTime

GAUGES = ("running_requests", "kv_cache_usage_ratio")  # means over a grid that is finer in a part


def test_a_part_of_a_long_window_is_the_last_whose_load_varies(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Light load makes many steps: cut from the end alone, a window would lose it, and with it all
    that tells a request's own cost from a step's."""
    whole = window()
    light_first = np.concatenate([np.full(3, 1.2), np.full(len(whole.chunks) - 3, 7.5)])
    chunks = whole.chunks.with_columns(running_requests=light_first)
    steps = float(
        (
            chunks["steps_per_generation_token"].fill_null(1.0)
            * chunks["generation_tokens_per_second"]
            * (chunks["end_seconds"] - chunks["start_seconds"])
        ).sum()
    )
    monkeypatch.setattr(playback, "_MOST_STEPS", 0.9 * steps)
    cut = Playback(replace(whole, chunks=chunks), CONFIGURATION)
    compared = light_first[cut.comparable]
    assert compared.min() == 1.2 and compared.max() == 7.5
    assert cut.comparable.sum() < len(chunks)
    even = whole.chunks.with_columns(running_requests=7.5)
    late = Playback(replace(whole, chunks=even), CONFIGURATION)
    assert late.comparable[-1] and not late.comparable[0]
    monkeypatch.setattr(playback, "_MOST_STEPS", 2 * steps)
    assert Playback(whole, CONFIGURATION).comparable.all()


def test_a_replay_of_a_part_is_that_part_of_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    step_time = StepTime(0.012, 2.4e-5, 3e-5, 6e-8)
    log = replace(window(), source="request log", requests=traffic(1500))
    first = log.chunks.with_columns(
        running_requests=np.where(np.arange(len(log.chunks)) < 2, 1.0, 9.0)
    )
    log = replace(log, chunks=first)
    whole = Playback(log, CONFIGURATION)
    monkeypatch.setattr(playback, "_MOST_REQUESTS", 1200)
    part = Playback(log, CONFIGURATION)
    kept = part.comparable
    assert kept[0] and not kept[-1]
    still = np.zeros(len(kept))
    one, other = whole.play(step_time, still).values, part.play(step_time, still).values
    counted = [n for n, name in enumerate(RESIDUALS) if name not in GAUGES]
    np.testing.assert_allclose(other[kept][:, counted], one[kept][:, counted], rtol=1e-12)


def test_a_law_that_fits_has_the_interval_right_at_every_level_of_load() -> None:
    bands = found().best.bands
    assert len(bands) >= 2
    assert sum(band.tokens_ratio for band in bands) == pytest.approx(1.0)
    assert all(gate.passed for gate in load_gates(found().best))


def test_a_law_that_bends_wrong_is_refused_though_the_wander_hides_it_in_every_chunk() -> None:
    """Twice c0, and a speed of its own for each chunk that makes up for it where it can."""
    observed = replace(window(), source="request log", requests=traffic(1500))
    log_itl = RESIDUALS.index("itl_seconds")
    simulated = Playback(observed, CONFIGURATION)
    wrong = replace(LAW, c0_seconds=0.4 * LAW.c0_seconds, c2_seconds_per_decode_seq=6e-4)
    still = np.zeros(len(simulated.starts))
    descent = Descent(simulated, wrong, np.ones(4), first_noise(simulated), 0.03)
    hidden = descent.at(descent.start())
    for _ in range(8):
        off = np.log(hidden.played.values[:, log_itl] / simulated.measured[:, log_itl])
        x = hidden.x.copy()
        x[WANDER:] -= off
        hidden = descent.at(x)
    assert overall_residuals(simulated, hidden)["itl_seconds"] == pytest.approx(0.0, abs=0.2)
    failed = [
        gate
        for gate in load_gates(replace(found().best, bands=load_bands(descent, hidden)))
        if not gate.passed
    ]
    assert failed
    assert "on ITL at " in failed[0].said
    right = descent.at(np.concatenate([descent.x_of(LAW), [0.0], still]))
    bands = load_bands(descent, right)
    assert all(gate.passed for gate in load_gates(replace(found().best, bands=bands)))


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


def test_a_right_law_is_refused_by_chance_as_seldom_with_many_levels_as_with_one() -> None:
    rng = np.random.default_rng(5)
    level = LoadBand(8.0, 0.03, 0.0, 0.1, 0.2)
    for levels in (1, 5):
        drawn = rng.normal(0.0, level.log_sd, (4000, levels))
        refused = 0
        for offs in drawn:
            bands = tuple(replace(level, off_ratio=float(off)) for off in offs)
            gates = load_gates(replace(found().best, bands=bands))
            refused += not all(gate.passed for gate in gates)
        assert 0.03 < refused / 4000 < 0.065
