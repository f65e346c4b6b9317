"""Where the data do not tell two settings apart, the nearer is taken."""

from __future__ import annotations

from dataclasses import replace

import pytest
from advice_cases import H100_8B, prepared_of, requests_of

from driftwatch.model import Slo
from driftwatch.recommend import sweep
from driftwatch.recommend.calibration.fits import Fit
from driftwatch.recommend.candidates import SATURATED, candidate
from driftwatch.recommend.ground import Ground, served_alike
from driftwatch.recommend.scenarios import Scenario, between
from driftwatch.recommend.sweep import Gain
from driftwatch.recommend.sweep_values import Knobs
from driftwatch.simulate.configuration import SchedulerConfiguration

TODAY = SchedulerConfiguration(64, 2048, 27_000)
TIES = 0.02


@pytest.mark.parametrize(
    ("nearer", "further", "alike"),
    [
        ((0.95, 0.95, 0.95), (0.96, 0.96, 0.96), True),  # less than a tie
        ((0.80, 0.80, 0.80), (0.90, 0.90, 0.90), False),  # in every scenario the same
        ((0.95, 0.80, 1.00), (1.00, 0.99, 1.00), True),  # in one scenario no difference at all
        ((0.60, 0.50, 0.70), (0.95, 0.90, 1.00), False),  # much in each
        ((0.60, 0.60, 0.60), (0.64, 0.64, 0.99), False),  # all agree on four points
        ((0.60, 0.60, 0.60), (0.61, 0.61, 0.99), True),  # and on less than a tie
        ((1.00, 1.00, 1.00), (0.90, 0.90, 0.90), True),  # the further one serves fewer
    ],
)
def test_a_further_setting_must_serve_more_in_one_and_the_same_world(
    nearer: tuple[float, ...], further: tuple[float, ...], alike: bool
) -> None:
    assert served_alike(nearer, further, TIES) is alike


def test_another_knob_that_brings_nothing_is_no_nearer_move(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ground = prepared_of(requests_of(3, 600, 150), TODAY, Slo(1.0, 0.05)).ground

    def gained(_: Ground, knobs: Knobs) -> Gain:
        mean = 0.18 if "max_num_seqs" in knobs else 0.0
        return Gain(knobs, mean, 0.0, 0.0, {1.0: (0.0, mean)})

    monkeypatch.setattr(sweep, "gain_of", gained)
    monkeypatch.setattr(Ground, "served_alike", lambda *_: True)
    far, near = {"max_num_seqs": 512.0}, {"max_num_seqs": 128.0}
    other = {"max_num_batched_tokens": 4096.0}
    assert [gain.knobs for gain in sweep.ranked(ground, [other, far])] == [far, other]
    found = sweep.ranked(ground, [far, near, other])
    assert found[0].knobs == near and found[-1].knobs == other


def test_what_never_fits_is_like_nothing() -> None:
    assert not served_alike([None], [1.0], TIES)
    assert not served_alike([], [], TIES)


def test_no_ttft_is_forecast_where_todays_was_not_compared() -> None:
    """A backlog adds up every error; a forecast whose own check was skipped is none."""
    ground = prepared_of(requests_of(3, 600, 150), TODAY, Slo(1.0, 0.05)).ground
    more = {"max_num_seqs": 128.0}
    assert candidate(ground, more, offered=3.0).ttft_seconds is not None
    skipped = candidate(replace(ground, ttft_compared=False), more, offered=3.0)
    assert skipped.ttft_seconds is None and skipped.ttft_p95_seconds is None
    assert skipped.reasons["ttft_seconds"] == SATURATED
    assert skipped.itl_seconds is not None


def test_worlds_hold_the_slower_and_the_faster_law_of_the_best_fit() -> None:
    step_time = H100_8B["linear"]
    slow, fast = (
        replace(step_time, c0_seconds=times * step_time.c0_seconds) for times in (1.2, 0.8)
    )
    fit = Fit("linear", step_time, {}, 1.0, slower=slow, faster=fast)
    scenarios = [
        Scenario(TODAY, step_time, "linear", fit),
        Scenario(TODAY, H100_8B["hinge"], "hinge"),
    ]
    assert [scenario.step_time for scenario in between(scenarios)[2:]] == [slow, fast]
    assert [scenario.is_end for scenario in between(scenarios)] == [False, False, True, True]
    assert between(scenarios[1:]) == scenarios[1:]
