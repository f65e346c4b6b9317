"""What keeps a better setting from being advised: a target it breaks, too little traffic."""

from __future__ import annotations

from dataclasses import replace

from advice_cases import answer_of, prepared_of, requests_of

from driftwatch.model import Slo
from driftwatch.recommend.information import gain_interval
from driftwatch.recommend.steady import steady
from driftwatch.simulate.configuration import SchedulerConfiguration

BLOCKS = 27_000
CAP = SchedulerConfiguration(16, 2048, BLOCKS)
LOOSE = Slo(1.0, 0.05)


def test_a_change_that_would_break_a_target_that_is_met_is_not_advised() -> None:
    """A cap of 16 keeps every token fast while requests queue; a larger one ends the queue, and
    the time per token is over its target then."""
    requests = requests_of(4.0, 300, 600)
    loose = answer_of(requests, CAP, LOOSE)
    assert loose.recommendation.knob == "max_num_seqs"
    assert loose.today is not None and loose.advised is not None
    tpot = loose.advised.tpot_p95_seconds
    assert tpot is not None and loose.today.tpot_p95_seconds is not None
    between = (tpot + loose.today.tpot_p95_seconds) / 2
    answer = answer_of(requests, CAP, Slo(1.0, between))
    assert answer.today is not None and (answer.today.tpot_in_target_ratio or 0.0) >= 0.95
    if answer.advised is not None:  # a smaller move that keeps it
        assert (answer.advised.tpot_in_target_ratio or 0.0) >= 0.95
        assert (answer.recommendation.to_value or 0) < (loose.recommendation.to_value or 0)
    else:
        assert "break TPOT" in answer.recommendation.reason


def test_the_interval_of_a_forecast_is_wider_where_fewer_requests_tell_it() -> None:
    """As many tokens a second, of many short requests and of a tenth as many long ones."""
    wide = []
    for rate, generation in ((3.0, 600), (0.3, 6000)):
        prepared = prepared_of(requests_of(rate, 300, generation), CAP, LOOSE)
        low, high = gain_interval(prepared.ground, prepared.observed, {"max_num_seqs": 64.0}, 0)
        assert low <= high
        wide.append(high - low)
    assert wide[1] > 1.5 * wide[0]


def test_a_window_in_which_nobody_came_has_no_interval() -> None:
    prepared = prepared_of(requests_of(4.0, 300, 600), CAP, LOOSE)
    nobody = replace(prepared.observed, carried_requests=len(prepared.observed.requests))
    assert gain_interval(prepared.ground, nobody, {"max_num_seqs": 64.0}, 0) == ()


def test_twins_are_judged_by_the_traffic_of_all_of_them() -> None:
    """In turn, for an equal part of the hour each, whatever the order in which they are given."""
    seen = prepared_of(requests_of(4.0, 300, 600), CAP, LOOSE).observed
    more = replace(seen, requests=requests_of(2.0, 900, 600, seed=2))
    alone, lasting = steady(seen, 0)
    both, span = steady(seen, 0, [more])
    assert abs(span - lasting) < 1.0
    assert (both.arrival_seconds[1:] >= both.arrival_seconds[:-1]).all()
    assert abs(len(both) / span - 3.0) < 0.1 and abs(len(alone) / lasting - 4.0) < 0.1
    half = both.arrival_seconds < span / 2
    assert both.prompt_tokens[half].mean() < 450 < 750 < both.prompt_tokens[~half].mean()
