"""Minutes before and after a change in, a verdict out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from datetime import timedelta
from typing import Any

import numpy as np
import polars as pl
import pytest
from verify_cases import AT, opened

from driftwatch.model import Slo
from driftwatch.verify.matching import comparable, with_traffic
from driftwatch.verify.verdict import verified
from driftwatch.verify.verification import Verification
from tests.recommend.engine_minutes import by_hand

TARGETS = Slo(ttft_seconds=1.0)
PROMISE = {"ttft_seconds": 0.1, "today": {"ttft_seconds": 1.0}}


@dataclass(frozen=True)
class Stretch:
    """An hour of a server that serves ten requests a second, and what is special of it."""

    minutes: int = 60
    load: float = 10.0
    ttft: float = 1.0
    itl: float = 0.02
    e2e: float = 4.0
    served: float = 1.0  # of the tokens asked for
    in_target: float = 0.9
    waiting: float = 0.0
    noise: float = 0.05  # of each minute's times
    memory: float = 0.0  # from a minute's noise to the next one's


def rows(one: Stretch, first_minute: int, seed: int) -> pl.DataFrame:
    """Its comparable minutes."""
    rng = np.random.default_rng(seed)
    wander, fresh = 0.0, []
    for shock in rng.standard_normal(one.minutes):
        wander = one.memory * wander + np.sqrt(1 - one.memory**2) * shock
        fresh.append(float(np.exp(one.noise * wander)))
    factor, n = np.array(fresh), 60 * one.load
    share = np.clip(one.in_target + 0.02 * rng.standard_normal(one.minutes), 0, 1)
    columns: dict[str, Any] = {
        "end": [AT + timedelta(minutes=first_minute + k) for k in range(one.minutes)],
        "waiting_requests": one.waiting,
        "running_requests": 20.0,
        "ttft_seconds_sum": n * one.ttft * factor,
        "itl_seconds_sum": n * 99 * one.itl * factor,
        "e2e_seconds_sum": n * one.e2e * factor,
        "queue_seconds_sum": n * one.ttft * factor / 2,
        "itl_seconds_count": n * 99,
        "generation_tokens_total": n * 100 * one.served * factor**0.2,
        "prompt_tokens_sum": n * 500.0,
        "generation_tokens_sum": n * 100.0,
        "ttft_seconds_edges": [[1.0, np.inf]] * one.minutes,
        "ttft_seconds_buckets": [[n * each, n] for each in share],
    }
    counts = ("ttft_seconds", "e2e_seconds", "queue_seconds", "prompt_tokens", "generation_tokens")
    columns |= {f"{name}_count": n for name in counts}
    return comparable(with_traffic(by_hand(one.minutes, **columns)))


def judged(
    after: Stretch,
    before: Stretch | None = None,
    forecast: Mapping[str, Any] | None = None,
    kind: str = "knobs",
    slo: Slo | None = None,
    seed: int = 1,
) -> Verification:
    """The verdict on a server that was an ordinary one before."""
    before = before or Stretch(240)
    one = opened(AT)
    change = replace(one.change, kind=kind)
    one = one.model_copy(update={"change": change, "forecast": forecast})
    sides = rows(before, -before.minutes, seed), rows(after, 5, seed + 1000)
    return verified(one, *sides, AT + timedelta(minutes=5 + after.minutes), slo=slo)


CHEAP = {**PROMISE, "itl_seconds": 0.02, "today": {"ttft_seconds": 1.0, "itl_seconds": 0.02}}
FAIR = {**CHEAP, "itl_seconds": 0.03}
SHARES = {"in_target_ratio": 0.99, "today": {"in_target_ratio": 0.5}, "slo": asdict(TARGETS)}
KEPT = replace(TARGETS, share=0.9)
SLOWER, FASTER = Stretch(e2e=6.0), Stretch(e2e=2.0)


@pytest.mark.parametrize(
    ("given", "verdict", "reason"),
    [
        # a promise: kept, not kept, kept at a price that was told and at one that was not
        ({"after": Stretch(ttft=0.1), "forecast": PROMISE}, "PASS", "TTFT mean improved"),
        ({"after": Stretch(), "forecast": PROMISE}, "FAIL", "did not improve as promised"),
        ({"after": Stretch(ttft=0.1, itl=0.03), "forecast": FAIR}, "PASS", "TTFT mean"),
        ({"after": Stretch(ttft=0.1, itl=0.03), "forecast": CHEAP}, "FAIL", "cost (×1.10)"),
        # capacity was promised, no figure: a tenth of a request's time would show
        ({"after": FASTER, "forecast": {}}, "PASS", "time of a request improved"),
        # requests in target go before every time, and inside them a longer time is no harm
        (
            {
                "after": Stretch(in_target=0.98),
                "before": Stretch(240, in_target=0.5),
                "forecast": SHARES,
                "slo": TARGETS,
            },
            "PASS",
            "requests in target improved",
        ),
        ({"after": Stretch(in_target=0.5), "slo": TARGETS}, "FAIL", "requests in target fell"),
        ({"after": SLOWER, "slo": TARGETS}, "INCONCLUSIVE", "requests in target"),
        ({"after": Stretch(ttft=0.1, served=0.6), "forecast": PROMISE}, "FAIL", "tokens/s fell"),
        # nobody advised it: a setting must help, a release must not harm
        ({"after": FASTER}, "PASS", "time of a request improved"),
        ({"after": SLOWER}, "FAIL", "time of a request rose"),
        ({"after": Stretch()}, "INCONCLUSIVE", "show a difference of 5 %"),
        ({"after": SLOWER, "kind": "release", "slo": KEPT}, "FAIL", "slower, still in target"),
        ({"after": SLOWER, "kind": "release", "slo": TARGETS}, "FAIL", "time of a request rose"),
        # too little that compares
        ({"after": Stretch(5), "forecast": PROMISE}, "INCONCLUSIVE", "5 min after have the same"),
        ({"after": Stretch(load=20.0)}, "INCONCLUSIVE", "0 min before and 0 min after"),
        # a queue that only the changed server has
        ({"after": Stretch(waiting=900.0, e2e=90.0)}, "FAIL", "time of a request rose"),
        # a queue longer than a minute on both sides: what is served at full load
        (
            {"after": Stretch(waiting=900.0, served=1.5), "before": Stretch(240, waiting=900.0)},
            "PASS",
            "tokens/s improved",
        ),
    ],
)
def test_the_verdict(given: dict[str, Any], verdict: str, reason: str) -> None:
    said = judged(**given)
    assert (said.verdict, said.closed_at is not None) == (verdict, True), said.reason
    assert reason in said.reason


def test_a_share_in_other_targets_is_no_promise() -> None:
    for told, promise in ((asdict(TARGETS), 0.99), (None, None), ({"ttft_seconds": 9.0}, None)):
        forecast = {**SHARES, "slo": told}
        said = judged(Stretch(in_target=0.98), forecast=forecast, slo=TARGETS)
        (share,) = (one for one in said.effects if one.name == "in_target_ratio")
        assert share.forecast == promise


def test_a_forecast_of_another_load_is_not_compared() -> None:
    """Ten requests/s are met after the change."""
    for made_for, verdict in ((10.0, "FAIL"), (30.0, "INCONCLUSIVE")):
        promise = {**PROMISE, "offered_requests_per_second": made_for}
        said = judged(Stretch(), forecast=promise)
        assert said.verdict == verdict
        assert any("the forecast is for 30" in note for note in said.notes) == (verdict != "FAIL")
        assert (said.effects[0].forecast is None) == (verdict != "FAIL")


def test_inconclusive_says_how_many_more_minutes_settle_it() -> None:
    """A tenth less, promised half as much again; fewer minutes than that do not show it."""
    promise = {"ttft_seconds": 0.55, "today": {"ttft_seconds": 1.0}}
    noisy = Stretch(20, ttft=0.6, noise=0.5)
    before = Stretch(1000, noise=0.5)
    said = judged(noisy, before, promise)
    assert said.verdict == "INCONCLUSIVE"
    assert said.more_minutes is not None
    assert f"at least {said.more_minutes} more minutes of such load would settle it" in said.reason
    later = judged(replace(noisy, minutes=20 + 2 * said.more_minutes), before, promise)
    assert later.verdict == "PASS"
    assert later.more_minutes is None


def test_intervals_of_minutes_that_depend_on_each_other_hold_the_truth() -> None:
    """Five minutes of memory, and nothing changed: 0 lies inside 19 times of 20, or nearly."""
    held = []
    for seed in range(50):
        side = Stretch(180, noise=0.2, memory=0.8)
        (effect,) = (
            one
            for one in judged(side, replace(side, minutes=600), seed=seed).effects
            if one.name == "itl_seconds_mean"
        )
        held.append(effect.low <= 0.0 <= effect.high)
    assert np.mean(held) >= 0.9


def test_the_same_minutes_give_the_same_limits_and_no_time_falls_by_more_than_it_is() -> None:
    one, other = (judged(Stretch(12, ttft=0.001, noise=1.5), Stretch(60)) for _ in "ab")
    assert one == other
    (ttft,) = (effect for effect in one.effects if effect.name == "ttft_seconds_mean")
    assert -ttft.before <= ttft.low <= ttft.after - ttft.before <= ttft.high < 0


def test_shares_of_all_requests_are_not_certain() -> None:
    said = judged(Stretch(12, in_target=1.0), Stretch(60, in_target=1.0), slo=TARGETS)
    share = said.effects[0]
    assert share.name == "in_target_ratio"
    assert -0.01 < share.low < 0 < share.high < 0.02
