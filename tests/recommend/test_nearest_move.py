"""Where the data do not tell two settings apart, the nearer is taken."""

from __future__ import annotations

from dataclasses import replace

import pytest
from advice_cases import prepared_of, requests_of

from driftwatch.model import Slo
from driftwatch.recommend.candidates import SATURATED, candidate
from driftwatch.recommend.ground import served_alike
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


def test_no_ttft_is_forecast_where_todays_was_not_compared() -> None:
    """A backlog adds up every error; a forecast whose own check was skipped is none."""
    ground = prepared_of(requests_of(3, 600, 150), TODAY, Slo(1.0, 0.05)).ground
    more = {"max_num_seqs": 128.0}
    assert candidate(ground, more, offered=3.0).ttft_seconds is not None
    skipped = candidate(replace(ground, ttft_compared=False), more, offered=3.0)
    assert skipped.ttft_seconds is None and skipped.ttft_p95_seconds is None
    assert skipped.reasons["ttft_seconds"] == SATURATED
    assert skipped.itl_seconds is not None
