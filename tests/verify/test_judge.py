"""Verdicts: what was promised, what must not get worse, and what cannot be told."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl
import pytest

from driftwatch.verify.compare import Comparison, Load
from driftwatch.verify.figures import FIGURES
from driftwatch.verify.judge import judge
from driftwatch.verify.matching import Matched
from driftwatch.verify.verification import Effect

PROMISE: dict[str, Any] = {"ttft_seconds": 0.08, "today": {"ttft_seconds": 1.8}}


def _effect(name: str, before: float, after: float, low: float, high: float) -> Effect:
    return Effect(name, before, after, low, high, None, FIGURES[name].unit)


def _found(*effects: Effect, load: Load = "same", enough: bool = True) -> Comparison:
    none = pl.DataFrame({"end": []})
    cells = np.zeros(0, np.int64)
    matched = Matched(none, none, cells, cells, np.zeros(0), ("requests_per_second",))
    return Comparison(effects, matched, load, 10.0, 12.0, 5000.0, enough)


TTFT = _effect("ttft_seconds_mean", 1.8, 0.06, -1.9, -1.5)
E2E = _effect("e2e_seconds_mean", 3.0, 1.2, -2.0, -1.4)
SAME_E2E = _effect("e2e_seconds_mean", 3.0, 3.02, -0.1, 0.12)


def test_a_promise_that_was_kept_passes() -> None:
    said = judge(_found(TTFT, E2E), "knobs", PROMISE)
    assert (said.verdict, said.primary) == ("PASS", "ttft_seconds_mean")


def test_a_promise_that_the_interval_leaves_out_fails() -> None:
    still = _effect("ttft_seconds_mean", 1.8, 1.75, -0.3, 0.2)
    said = judge(_found(still, SAME_E2E), "knobs", PROMISE)
    assert said.verdict == "FAIL"
    assert "did not improve" in said.reason


def test_an_interval_that_holds_both_says_nothing() -> None:
    wide = _effect("ttft_seconds_mean", 1.8, 0.9, -2.5, 0.4)
    assert judge(_found(wide, SAME_E2E), "knobs", PROMISE).verdict == "INCONCLUSIVE"


def test_advice_without_numbers_never_fails_for_an_unkept_one() -> None:
    assert judge(_found(SAME_E2E), "knobs", {}).verdict == "INCONCLUSIVE"
    assert judge(_found(E2E), "knobs", {}).verdict == "PASS"


def test_requests_in_target_go_before_every_time() -> None:
    shares = _effect("in_target_ratio", 0.01, 1.0, 0.95, 1.0)
    promise = {**PROMISE, "in_target_ratio": 0.99, "today": {"in_target_ratio": 0.01}}
    assert judge(_found(shares, TTFT, E2E), "knobs", promise).primary == "in_target_ratio"


@pytest.mark.parametrize(
    ("effect", "verdict"),
    [
        # TPOT's share falls by 5 to 3 points: a harm, whatever TTFT won
        (_effect("tpot_in_target_ratio", 1.0, 0.96, -0.05, -0.03), "FAIL"),
        # within two points it is none
        (_effect("tpot_in_target_ratio", 1.0, 0.99, -0.02, -0.001), "PASS"),
        # less is served at the same demand
        (_effect("generation_tokens_per_second", 1000.0, 900.0, -130.0, -70.0), "FAIL"),
        (_effect("generation_tokens_per_second", 1000.0, 980.0, -40.0, 0.0), "PASS"),
    ],
)
def test_what_was_no_price_must_not_get_worse(effect: Effect, verdict: str) -> None:
    assert judge(_found(TTFT, effect), "knobs", PROMISE).verdict == verdict


def test_the_time_between_tokens_may_rise_by_its_price() -> None:
    itl = _effect("itl_seconds_mean", 0.024, 0.036, 0.011, 0.013)
    promise = {**PROMISE, "itl_seconds": 0.036, "today": {**PROMISE["today"], "itl_seconds": 0.024}}
    assert judge(_found(TTFT, itl), "knobs", promise).verdict == "PASS"
    cheap = {**promise, "itl_seconds": 0.026}
    beyond = judge(_found(TTFT, itl), "knobs", cheap)
    assert beyond.verdict == "FAIL"
    assert "price" in beyond.reason


def test_nobody_advised_it() -> None:
    assert judge(_found(E2E), "knobs", None).verdict == "PASS"
    worse = _effect("e2e_seconds_mean", 3.0, 4.0, 0.8, 1.2)
    assert judge(_found(worse), "knobs", None).verdict == "FAIL"
    assert judge(_found(SAME_E2E), "knobs", None).verdict == "INCONCLUSIVE"
    # small, yet certain: not worth a word
    small = _effect("e2e_seconds_mean", 3.0, 2.95, -0.08, -0.02)
    assert judge(_found(small), "knobs", None).verdict == "INCONCLUSIVE"


def test_a_release_passes_where_it_is_no_worse() -> None:
    assert judge(_found(SAME_E2E), "release", None).verdict == "PASS"
    wide = replace(SAME_E2E, high=0.9)
    assert judge(_found(wide), "release", None).verdict == "INCONCLUSIVE"


def test_under_more_load_only_gains_count_and_under_less_only_losses() -> None:
    worse = _effect("e2e_seconds_mean", 3.0, 4.0, 0.8, 1.2)
    assert judge(_found(E2E, load="more"), "knobs", None).verdict == "PASS"
    assert judge(_found(worse, load="more"), "knobs", None).verdict == "INCONCLUSIVE"
    assert judge(_found(E2E, load="less"), "knobs", None).verdict == "INCONCLUSIVE"
    assert judge(_found(worse, load="less"), "knobs", None).verdict == "FAIL"


def test_too_few_matched_minutes_are_named() -> None:
    said = judge(_found(enough=False), "knobs", PROMISE)
    assert said.verdict == "INCONCLUSIVE"
    assert (
        said.reason
        == "0 minutes before and 0 after carry the same load and lengths (10 are needed)"
    )


def test_overloaded_before_and_after_only_what_is_served_compares() -> None:
    worse = _effect("e2e_seconds_mean", 3.0, 9.0, 4.0, 8.0)
    served = _effect("generation_tokens_per_second", 1000.0, 1010.0, -30.0, 50.0)
    same = replace(_found(worse, served), saturated=(0.6, 0.9))
    said = judge(same, "knobs", None)
    assert said.verdict == "INCONCLUSIVE"
    assert "backlog" in said.reason
    more = _effect("generation_tokens_per_second", 1000.0, 1400.0, 250.0, 550.0)
    assert (
        judge(replace(_found(worse, more), saturated=(0.9, 0.6)), "knobs", None).verdict == "PASS"
    )
    less = _effect("generation_tokens_per_second", 1000.0, 800.0, -300.0, -100.0)
    assert (
        judge(replace(_found(worse, less), saturated=(0.9, 0.9)), "knobs", None).verdict == "FAIL"
    )
    # 11 % more, but for certain hardly any: such a PASS was seen without a change
    barely = _effect("generation_tokens_per_second", 1000.0, 1110.0, 10.0, 210.0)
    said = judge(replace(_found(worse, barely), saturated=(0.9, 0.9)), "knobs", None)
    assert said.verdict == "INCONCLUSIVE"
    # a queue that is gone afterwards is what a change is for
    gone = replace(_found(E2E, served), saturated=(0.9, 0.0))
    assert judge(gone, "knobs", None).verdict == "PASS"


def test_a_release_inside_its_targets_that_is_slower_says_so() -> None:
    shares = _effect("ttft_in_target_ratio", 1.0, 1.0, -0.001, 0.001)
    whole = _effect("in_target_ratio", 1.0, 1.0, -0.001, 0.001)
    slower = _effect("e2e_seconds_mean", 2.0, 3.0, 0.5, 1.5)
    said = judge(_found(whole, shares, slower), "release", None)
    assert said.verdict == "PASS"
    assert (
        said.reason
        == "requests in target no worse; inside the targets a request takes 25…75 % longer"
    )


def test_what_moved_for_certain_is_not_called_no_difference() -> None:
    slower = _effect("e2e_seconds_mean", 2.0, 2.34, 0.06, 0.62)
    itl = _effect("itl_seconds_mean", 0.008, 0.0106, 0.0016, 0.0036)
    found = _found(slower, itl)
    for said in (judge(found, "release", None), judge(found, "knobs", None)):
        assert said.verdict == "INCONCLUSIVE"
        assert said.reason == (
            "time of a request 3…31 % higher: not known to be more than 5 %; "
            "ITL mean 20…45 % higher"
        )
    small = _effect("e2e_seconds_mean", 3.0, 2.95, -0.08, -0.02)
    assert judge(_found(small), "knobs", None).reason.endswith("1…3 % lower: less than 5 %")
    share = _effect("in_target_ratio", 1.0, 0.97, -0.05, -0.01)
    told = "requests in target 1…5 points lower: not known to be more than 2 points"
    assert judge(_found(share), "release", None).reason == told


def test_a_release_whose_tokens_come_slower_says_so() -> None:
    itl = _effect("itl_seconds_mean", 0.008, 0.0106, 0.0016, 0.0036)
    said = judge(_found(SAME_E2E, itl), "release", None)
    assert said.verdict == "PASS"
    assert said.reason == "time of a request no worse; ITL mean 20…45 % higher"
    # with a price it was told, and judged
    promise = {
        **PROMISE,
        "itl_seconds": 0.012,
        "today": {"ttft_seconds": 1.8, "itl_seconds": 0.008},
    }
    assert judge(_found(TTFT, itl), "knobs", promise).reason == "TTFT mean improved"


def test_what_is_not_told_says_which_difference_does_not_show() -> None:
    wide = _effect("e2e_seconds_mean", 3.0, 3.02, -0.2, 0.22)
    said = judge(_found(wide), "knobs", None)
    assert said.verdict == "INCONCLUSIVE"
    assert said.reason.endswith(": less than 7 % does not show")


def test_a_forecast_of_another_load_is_not_compared() -> None:
    """12 requests/s are met after the change."""
    still = _effect("ttft_seconds_mean", 1.8, 1.75, -0.3, 0.2)
    for made_for in (12.0, 10.0, 15.0, None):
        promise = PROMISE | {"offered_requests_per_second": made_for}
        assert judge(_found(still, SAME_E2E), "knobs", promise).verdict == "FAIL"
    for made_for in (4.0, 30.0):
        promise = PROMISE | {"offered_requests_per_second": made_for}
        said = judge(_found(still, SAME_E2E), "knobs", promise)
        assert said.verdict == "INCONCLUSIVE"
        assert f"for {made_for:.3g} requests/s" in said.reason and "carried 12" in said.reason
        assert judge(_found(TTFT, E2E), "knobs", promise).verdict == "PASS"  # better for certain
