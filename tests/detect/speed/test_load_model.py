"""The load model: what it finds in made minutes of a known law, and as a document."""

from __future__ import annotations

import json
from datetime import datetime, timedelta

import numpy as np
import polars as pl
import pytest
from made_minutes import made
from recorded_minutes import of_run

from driftwatch.detect.speed.load import (
    PREFILL,
    load_of,
)
from driftwatch.detect.speed.load_model import (
    LoadModel,
    LoadModels,
    TooLittle,
    fit,
    model_from,
)


def test_a_wander_that_goes_with_the_load_is_not_taken_for_it() -> None:
    """Six hours in which the engine gets slower while the load gets larger."""
    rng = np.random.default_rng(1)
    hours = np.linspace(0, 1, 360)
    load = (10 + 25 * hours) * rng.uniform(0.8, 1.25, 360)
    wander = np.exp(0.08 * (0.5 - hours))
    model = fit(made(wander, load))
    assert isinstance(model, LoadModel)
    little = load_of(made(np.ones(60), np.full(60, 3.0)))
    ln, above, below, bursts = LoadModels.of([model]).ln_speed(little.values[None])
    assert np.abs(ln).max() < 0.03
    assert not above.any()
    assert (below > 0).all()
    assert not bursts.any()


def test_speed_is_told_at_any_load_inside_the_range() -> None:
    rng = np.random.default_rng(4)
    model = fit(made(np.ones(200), rng.uniform(3, 40, 200)))
    assert isinstance(model, LoadModel)
    slow = load_of(made(np.full(50, 0.8), rng.uniform(4, 35, 50), seed=9))
    ln, above, below, _ = LoadModels.of([model]).ln_speed(slow.values[None])
    assert np.exp(ln) == pytest.approx(0.8, abs=0.01)
    assert above.max() < 0.01
    assert not below.any()
    far = load_of(made(np.ones(5), np.full(5, 160.0)))
    assert LoadModels.of([model]).ln_speed(far.values[None])[1] == pytest.approx(0.1, abs=0.02)


def test_bursts_may_clear_an_engine_and_not_accuse_it() -> None:
    rng = np.random.default_rng(4)
    model = fit(made(np.ones(200), rng.uniform(3, 40, 200)))
    assert isinstance(model, LoadModel)
    waiting = made(np.full(20, 0.8), np.full(20, 10.0)).with_columns(
        queue_seconds_sum=pl.lit(20.0), queue_seconds_count=pl.lit(50.0),
        waiting_requests=pl.lit(0.0), running_requests=pl.lit(10.0), max_num_seqs=pl.lit(64.0),
    )  # fmt: skip
    models = LoadModels.of([model])
    ln, *_, bursts = models.ln_speed(load_of(waiting).values[None])
    assert bursts.all()
    assert np.isnan(ln).all()
    for standing in ({"waiting_requests": 4.0}, {"running_requests": 63.0}):
        full = waiting.with_columns(**{name: pl.lit(v) for name, v in standing.items()})
        ln, *_, bursts = models.ln_speed(load_of(full).values[None])
        assert not bursts.any()
        assert np.exp(ln) == pytest.approx(0.8, abs=0.01)
    fast = made(np.ones(20), np.full(20, 10.0)).with_columns(
        queue_seconds_sum=pl.lit(20.0), queue_seconds_count=pl.lit(50.0)
    )
    assert not models.ln_speed(load_of(fast).values[None])[3].any()


def test_what_is_missing_and_when_it_would_be_there(run_slow: pl.DataFrame) -> None:
    few = of_run(run_slow, timedelta(minutes=9))
    found = fit(few)
    assert isinstance(found, TooLittle)
    assert found.reason.startswith("8 of 20 minutes")
    last = few["end"].max()
    assert isinstance(last, datetime)
    assert found.earliest is not None
    assert found.earliest - last == timedelta(minutes=12)
    flat = fit(made(np.ones(200), np.full(200, 9.0)))
    assert isinstance(flat, TooLittle)
    assert flat.reason == "load varies by 1×, 1.5× needed"
    assert flat.earliest is None
    nothing = fit(made(np.ones(1), np.ones(1)).clear())
    assert isinstance(nothing, TooLittle)
    assert nothing.spread is None


def test_a_document_gives_the_law_again(run_slow: pl.DataFrame) -> None:
    model = fit(of_run(run_slow))
    assert isinstance(model, LoadModel)
    assert model_from(json.loads(json.dumps(model.document()))) == model
    old = LoadModel((0.007, 0.0, 0.0, 0.0), (1.0, 9.0), 300, 40)
    assert model_from(json.loads(json.dumps(old.document()))) == old


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"coefficients": [0.1, -1, 0, 0]}, "coefficients: 4 numbers"),
        ({"coefficients": [0, 0, 0, 0]}, "all are 0"),
        ({"coefficients": [0.1]}, "coefficients: 4 numbers"),
        ({"scrapes": None}, "scrapes: 1 numbers"),
        ({"scrapes": "many", "speed": 3}, "unknown: speed; scrapes"),
        ({"work_ratio": float("nan")}, "work_ratio"),
    ],
)
def test_a_document_that_no_law_can_have(change: dict[str, object], words: str) -> None:
    said = LoadModel((0.007, 1e-5, 0.0, 3e-5), (1.0, 9.0), 300, 40).document() | change
    with pytest.raises(ValueError, match=words):
        model_from(said)


def test_an_old_page_counts_the_same_work() -> None:
    """Without computed prompt tokens they follow from the share of hits, in blocks or in tokens."""
    new = made(np.ones(5), np.full(5, 9.0))
    old = new.with_columns(
        prompt_tokens_computed_total=pl.lit(None, dtype=pl.Float64),
        prompt_tokens_total=pl.col("prompt_tokens_computed_total") / 0.4,
        prefix_cache_queries_total=pl.lit(500.0),
        prefix_cache_hits_total=pl.lit(300.0),
    )
    assert load_of(old).values[:, PREFILL] == pytest.approx(load_of(new).values[:, PREFILL])
    blind = old.with_columns(prefix_cache_queries_total=pl.lit(0.0))
    assert load_of(blind).values[:, PREFILL] == pytest.approx(load_of(new).values[:, PREFILL] / 0.4)
