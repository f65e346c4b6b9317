"""What a minute of speed holds: preemptions as a bound, inputs by name, what a pool still needs."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from made_minutes import TRUE, made
from recorded_minutes import SERVING, WATCHING, pinned, told_of

from driftwatch.detect.baselines import Baselines
from driftwatch.detect.speed.load import (
    AGAIN,
    COMPLETE,
    PREEMPTING,
    load_of,
)
from driftwatch.detect.speed.load_model import LoadModel, LoadModels, fit

MINUTES, SLOW, BACK = 180, 120, 150


def near_the_limit(preempted: float, *, slow: float = 0.7) -> pl.DataFrame:
    """Two hours of a healthy engine, half an hour slow and half an hour back, with preemptions.

    Those it preempts hold as much as the others and are computed again.
    """
    rng = np.random.default_rng(8)
    speed = np.ones(MINUTES)
    speed[SLOW:BACK] = slow
    said = made(speed, rng.uniform(8, 30, MINUTES))
    again = preempted * 700.0 * TRUE[3]  # 700 KV tokens a request, all computed again
    # passes become longer by it, hence fewer; so do the tokens, while the clock stays
    fewer = 60.0 / (60.0 + again / pl.lit(pl.Series(speed)))
    since = pl.lit(pl.Series(np.arange(MINUTES) >= SLOW))
    less = ("forward_passes", "itl_seconds_count", "prompt_tokens_computed_total")
    return said.with_columns(
        *(pl.when(since).then(pl.col(name) * fewer).otherwise(name).alias(name) for name in less),
        preemptions_total=pl.when(since).then(preempted).otherwise(0.0),
    )


def law_of_healthy(said: pl.DataFrame) -> LoadModel:
    model = fit(said[:SLOW])
    assert isinstance(model, LoadModel)
    return model


@pytest.mark.parametrize("preempted", [1.0, 30.0, 120.0])
def test_a_minute_with_preemptions_is_known_between_bounds(preempted: float) -> None:
    said = near_the_limit(preempted)
    load = load_of(said)
    assert set(load.why[:SLOW]) == {COMPLETE}
    assert not load.values[:SLOW, AGAIN].any()
    # known, and still nothing to learn a law from
    assert set(load.why[SLOW:]) == {PREEMPTING}
    model = law_of_healthy(said)
    assert model == fit(said)
    ln, over, *_ = LoadModels.of([model]).ln_speed(load.values[None, SLOW:])
    true = np.log(np.where(np.arange(SLOW, MINUTES) < BACK, 0.7, 1.0))
    assert (ln[0] <= true + 0.01).all()
    assert (ln[0] + over[0] >= true - 0.01).all()
    if preempted == 1.0:
        assert over.max() < 0.01


@pytest.mark.parametrize("preempted", [3.0, 60.0])
def test_slower_is_told_and_ends_while_it_preempts(preempted: float) -> None:
    said = near_the_limit(preempted)
    pins = pinned(law_of_healthy(said), said)
    told, _ = told_of(said, pins, SERVING)
    slower = told["slower_at_equal_load"]
    assert slower[SLOW + 10 : BACK].all()
    assert not slower[BACK + 10 :].any()
    assert slower[BACK + 10 :].null_count() == 0
    healthy, _ = told_of(near_the_limit(preempted, slow=1.0), pins, SERVING)
    assert not healthy["slower_at_equal_load"].any()


def test_preemptions_of_unknown_size_leave_a_minute_unknown() -> None:
    said = near_the_limit(30.0).with_columns(kv_cache_tokens=pl.lit(None, dtype=pl.Float64))
    load = load_of(said)
    assert set(load.why[SLOW:]) == {PREEMPTING}
    assert np.isnan(load.values[SLOW:, 0]).all()
    assert np.isfinite(load.values[:SLOW]).all()


@pytest.mark.parametrize(
    ("column", "metric"),
    [
        ("kv_cache_usage_ratio", "vllm:kv_cache_usage_perc"),
        ("forward_passes", "vllm:iteration_tokens_total"),
        ("itl_seconds_count", "vllm:inter_token_latency_seconds"),
        ("prompt_tokens_computed_total", "vllm:prompt_tokens_total"),
    ],
)
def test_a_missing_input_is_named(column: str, metric: str) -> None:
    """Where nothing is pinned as well: it does not arm, however long one waits."""
    without = made(np.ones(60), np.linspace(8, 30, 60)).with_columns(
        pl.lit(None, dtype=pl.Float64).alias(column), preemptions_total=pl.lit(2.0)
    )
    for settings in (SERVING, WATCHING):
        told, _ = told_of(without, Baselines(), settings)
        assert set(told["speed_unknown_reason"]) == {f"{metric}: not on the page"}


def test_a_learner_says_whose_minutes_it_counts() -> None:
    one = made(np.ones(9), np.linspace(8, 30, 9), instance="a:1")
    two = made(np.ones(9), np.linspace(8, 30, 9), instance="b:1")
    alone, _ = told_of(one, Baselines(), WATCHING)
    pool, _ = told_of(pl.concat([one, two]), Baselines(), WATCHING)
    assert alone["speed_unknown_reason"][-1] == "not judged yet: 9 of 20 minutes of data"
    said = pool["speed_unknown_reason"][-1]
    assert said == "not judged yet: 9 of 20 minutes of its pool's data"


def waiting(minutes: pl.DataFrame, passes: float) -> pl.DataFrame:
    """Requests that wait for so many passes on average, though no queue stands."""
    itl = pl.col("itl_seconds_sum") / pl.col("itl_seconds_count")
    return minutes.with_columns(
        queue_seconds_count=pl.lit(30.0),
        queue_seconds_sum=30.0 * passes * itl,
        ttft_seconds_count=pl.lit(30.0),
        waiting_requests=pl.lit(0.4),
        max_num_seqs=pl.lit(256.0),
    )


@pytest.mark.parametrize(
    ("before", "since", "slower"), [(0.6, 0.6, True), (4.0, 4.0, True), (0.6, 4.0, False)]
)
def test_requests_that_come_together_excuse_only_what_the_baseline_did_not_have(
    before: float, since: float, *, slower: bool
) -> None:
    """Restarted, and 30 % slower by the step-time model: no change is seen, the level is low."""
    rng = np.random.default_rng(6)
    usual = waiting(made(np.exp(rng.normal(0, 0.01, 800)), rng.uniform(3, 40, 800)), before)
    model = fit(usual)
    assert isinstance(model, LoadModel)
    speeds = np.exp(rng.normal(0, 0.01, 300)) * np.where(np.arange(300) < SLOW, 1.0, 0.7)
    now = made(speeds, rng.uniform(3, 40, 300), seed=5)
    now = pl.concat([waiting(now[:SLOW], before), waiting(now[SLOW:], since)])
    gap = np.where(np.arange(300) < SLOW, 0, 60) + 24 * 60
    now = now.with_columns(
        end=pl.col("end") + pl.duration(minutes=pl.lit(pl.Series(gap))),
        restarted=pl.Series(np.arange(300) == SLOW),
    )
    told, _ = told_of(now, pinned(model, usual), SERVING)
    assert bool(told["slower_at_equal_load"][SLOW + 20 :].fill_null(False).all()) is slower
    assert bool(told["slower_at_equal_load"].fill_null(False).any()) is slower
