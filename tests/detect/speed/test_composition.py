"""Work of a kind that the baseline never saw has no speed at equal load."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from made_minutes import made
from recorded_minutes import SERVING, WATCHING, pinned, told_of

from driftwatch.detect.baselines import Baselines
from driftwatch.detect.speed.load import (
    COMPLETE,
    IDLER,
    PREFILLED,
    SHORTER,
    load_of,
)
from driftwatch.detect.speed.load_model import LoadModel, LoadModels, fit

RNG = np.random.default_rng(6)
BASELINE = RNG.uniform(3, 40, 300)


def with_first_tokens(minutes: pl.DataFrame, share: float) -> pl.DataFrame:
    """Of the generated tokens so many are first ones; passes hold as many as before."""
    generated = pl.col("itl_seconds_count")
    return minutes.with_columns(
        ttft_seconds_count=generated * share,
        itl_seconds_count=generated * (1 - share),
        itl_seconds_sum=pl.col("itl_seconds_sum") * (1 - share),
    )


def law_of_baseline() -> LoadModel:
    model = fit(with_first_tokens(made(np.ones(300), BASELINE), 1 / 80))
    assert isinstance(model, LoadModel)
    return model


def answered(minutes: pl.DataFrame) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """ln r, slack, why not, of each minute."""
    ln, over, _, why = LoadModels.of([law_of_baseline()]).ln_speed(load_of(minutes).values[None])
    return ln[0], over[0], why[0]


def test_generations_of_five_tokens_where_eighty_were_pinned_are_unknown() -> None:
    slow = made(np.full(60, 0.75), np.full(60, 10.0))
    ln, _, why = answered(with_first_tokens(slow, 1 / 5))
    assert (why == SHORTER).all()
    assert np.isnan(ln).all()
    ln, over, why = answered(with_first_tokens(slow, 1 / 80))
    assert (why == COMPLETE).all()
    assert np.exp(ln) == pytest.approx(0.75, abs=0.02)
    assert not over.any()


def test_a_little_beyond_the_baseline_the_law_gives_some_away() -> None:
    ln, over, why = answered(with_first_tokens(made(np.ones(60), np.full(60, 10.0)), 1 / 50))
    assert (why == COMPLETE).all()
    assert not np.isnan(ln).any()
    assert (over > 0.05).all()


def test_prefill_that_no_token_of_the_baseline_came_with_is_unknown() -> None:
    minutes = with_first_tokens(made(np.ones(60), np.full(60, 10.0)), 1 / 80)
    heavy = minutes.with_columns(pl.col("prompt_tokens_computed_total") * 8)
    assert (answered(heavy)[2] == PREFILLED).all()


def test_an_engine_that_rests_as_the_baseline_never_did_is_unknown() -> None:
    minutes = with_first_tokens(made(np.ones(60), np.full(60, 3.0)), 1 / 80)
    counted = ["forward_passes", "itl_seconds_sum", "itl_seconds_count", "ttft_seconds_count"]
    rests = minutes.with_columns(pl.col(*counted, "prompt_tokens_computed_total") * 0.2)
    assert (answered(rests)[2] == IDLER).all()


def test_a_slow_engine_that_fills_its_batch_is_still_called_slow() -> None:
    """30 % slower at 65 % load: seven times the batch, of the same requests."""
    full = with_first_tokens(made(np.full(60, 0.7), np.full(60, 7 * 40.0)), 1 / 80)
    ln, over, why = answered(full)
    assert (why == COMPLETE).all()
    assert (ln + over < np.log(0.85)).all()


def test_the_reason_names_the_composition() -> None:
    short = with_first_tokens(made(np.full(60, 0.7), np.full(60, 10.0)), 1 / 5)
    told, _ = told_of(short, pinned(law_of_baseline(), short), SERVING)
    assert told["slower_at_equal_load"].null_count() == 60
    reason = "generations shorter than the baseline's"
    assert set(told["speed_unknown_reason"]) == {reason}


def test_a_law_that_is_being_learnt_takes_work_that_it_never_saw() -> None:
    """Otherwise a change of traffic in the first hour would leave a server unknown for good."""
    usual = with_first_tokens(made(np.ones(60), BASELINE[:60]), 1 / 80)
    after = with_first_tokens(made(np.ones(240), BASELINE[60:]), 1 / 20)
    shift = pl.col("end") + pl.duration(minutes=60)
    both = pl.concat([usual, after.with_columns(shift)])
    told, _ = told_of(both, Baselines(), WATCHING)
    assert told["slower_at_equal_load"][70:110].null_count() == 40
    assert told["slower_at_equal_load"][-60:].null_count() == 0
    assert not told["slower_at_equal_load"].any()


def nights_of_prefill() -> tuple[pl.DataFrame, np.ndarray]:
    """A quarter of the baseline is prefill-heavy, where the law says nothing: r is 0.4 to 1.5."""
    rng = np.random.default_rng(11)
    speed = np.ones(600)
    speed[450:] = np.exp(rng.normal(-0.1, 0.35, 150))
    minutes = with_first_tokens(made(speed, rng.uniform(3, 40, 600)), 1 / 80)
    heavy = pl.when(pl.int_range(pl.len()) >= 450).then(6.0).otherwise(1.0)
    return minutes.with_columns(pl.col("prompt_tokens_computed_total") * heavy), speed


def test_work_that_the_fit_cannot_describe_is_no_part_of_its_range() -> None:
    minutes, _ = nights_of_prefill()
    model = fit(minutes)
    assert isinstance(model, LoadModel)
    ln, _, _, why = LoadModels.of([model]).ln_speed(load_of(minutes).values[None])
    assert (why[0, 450:] == PREFILLED).mean() > 0.9
    assert (why[0, :450] == COMPLETE).all()
    assert ln[0, :450] == pytest.approx(0.0, abs=0.02), "the nights do not bend the law of the days"
