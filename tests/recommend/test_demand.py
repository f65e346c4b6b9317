"""Requests from minutes: rates, lengths and prefix hits as they were counted."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from engine_minutes import BLOCKS, START, engine_minutes, requests_of, server_with

from driftwatch.errors import NoVerdict, WorkloadError
from driftwatch.recommend.demand import Demand, rebuild_demand
from driftwatch.recommend.log import demand_of_log
from driftwatch.recommend.window import Window, undisturbed
from driftwatch.simulate.configuration import SchedulerConfiguration

SETTINGS = SchedulerConfiguration(64, 2048, BLOCKS, max_model_len=16384)
SERVER = server_with(SETTINGS)
REQUESTS = requests_of(5.0, 600.0, 200.0, hits=0.3)


@pytest.fixture(scope="module")
def window() -> Window:
    return undisturbed(engine_minutes(REQUESTS, SETTINGS))


@pytest.fixture(scope="module")
def demand(window: Window) -> Demand:
    return rebuild_demand(window, SERVER, 0)


def test_means_are_those_of_the_window(demand: Demand) -> None:
    assert demand.prompt_tokens.mean() == pytest.approx(REQUESTS.prompt_tokens.mean(), rel=0.02)
    generation = REQUESTS.generation_tokens.mean()
    assert demand.generation_tokens.mean() == pytest.approx(generation, rel=0.02)
    assert demand.requests_per_second == pytest.approx(5.0, rel=0.02)
    assert demand.hit_ratio == pytest.approx(0.3, abs=0.02)
    # the work of a step needs more than means: (E[PG] + E[G²] / 2) / E[G], E[P²] / 2 E[P]
    p, g = REQUESTS.prompt_tokens.astype(float), REQUESTS.generation_tokens.astype(float)
    context = ((p * g).mean() + (g * g).mean() / 2) / g.mean()
    assert demand.context_tokens == pytest.approx(context, rel=0.06)
    # whose tails a histogram of 1, 2, 5 holds roughly
    assert demand.pairs_per_token == pytest.approx((p * p).mean() / (2 * p.mean()), rel=0.2)


def test_no_request_is_longer_than_what_the_server_takes(window: Window) -> None:
    short = server_with(replace(SETTINGS, max_model_len=700, num_gpu_blocks=None))
    demand = rebuild_demand(window, short, 0)
    assert (demand.prompt_tokens + demand.generation_tokens).max() == 700
    assert demand.generation_tokens.min() >= 1


def test_generations_that_still_run_are_not_forgotten() -> None:
    """Of 40 minutes of an answer the server is asked for, 10 are seen: the short ones finished."""
    rng = np.random.default_rng(2)
    long = rng.random(1200) < 0.15
    requests = replace(
        requests_of(1.0, 100.0, 200.0),
        generation_tokens=np.where(long, 60_000, 200).astype(np.int64),
    )
    settings = SchedulerConfiguration(512, 2048, None)
    window = undisturbed(engine_minutes(requests, settings, minutes=10))
    finished = window.ratio("generation_tokens_sum", "generation_tokens_count")
    assert finished == pytest.approx(200.0, rel=0.05)
    demand = rebuild_demand(window, server_with(settings), 0)
    generated = window.ratio("generation_tokens_total", "generation_tokens_count")
    assert generated is not None and generated > 3 * 200.0
    assert demand.generation_tokens.mean() == pytest.approx(min(generated, 800.0), rel=0.02)


def test_lengths_that_nothing_tells_are_no_demand(window: Window) -> None:
    silent = window.rows.with_columns(
        generation_tokens_buckets=pl.lit(None, pl.List(pl.Float64)),
        generation_tokens_edges=pl.lit(None, pl.List(pl.Float64)),
    )
    with pytest.raises(NoVerdict, match="request_generation_tokens: no histogram on the page"):
        rebuild_demand(Window(silent), SERVER, 0)
    none = window.rows.with_columns(pl.col("prompt_tokens_buckets").list.eval(pl.element() * 0.0))
    with pytest.raises(NoVerdict, match="no request finished"):
        rebuild_demand(Window(none), SERVER, 0)


def test_a_draw_has_the_rate_and_the_hits(demand: Demand) -> None:
    draws = [demand.draw(np.random.default_rng(seed), 1200.0, 1.2) for seed in range(8)]
    rates = [len(one) / 1200.0 for one in draws]
    assert np.mean(rates) == pytest.approx(1.2 * 5.0, rel=0.03)
    assert len({len(one) for one in draws}) > 1  # minutes in another order, not the same again
    every = [one.cached_tokens.sum() / one.prompt_tokens.sum() for one in draws]
    assert np.mean(every) == pytest.approx(0.3, abs=0.03)
    # a share of each prompt in some draws, whole prompts in others: no metric says which
    whole = [float((one.cached_tokens == 0).mean()) > 0.5 for one in draws]
    assert len(set(whole)) == 2
    assert all((one.cached_tokens < one.prompt_tokens).all() for one in draws)


# --- a request log in their place


def test_a_true_log_is_taken_as_it_is(window: Window) -> None:
    demand = demand_of_log(REQUESTS, window, SERVER, 0)
    log = demand.log
    assert log is not None
    assert np.array_equal(demand.prompt_tokens, REQUESTS.prompt_tokens)
    assert log.arrival_seconds == pytest.approx(REQUESTS.arrival_seconds)
    assert np.array_equal(log.cached_tokens, REQUESTS.cached_tokens)  # given
    dated = REQUESTS.at(REQUESTS.arrival_seconds + START.timestamp())
    log = demand_of_log(dated, window, SERVER, 0).log
    assert log is not None
    assert log.arrival_seconds == pytest.approx(REQUESTS.arrival_seconds, abs=1e-3)


def test_a_log_that_contradicts_is_refused_with_both_numbers(window: Window) -> None:
    half = REQUESTS.take(slice(None, None, 2))  # of one of two servers
    with pytest.raises(WorkloadError) as refused:
        demand_of_log(half, window, SERVER, 0)
    counted, *tokens = refused.value.problems
    assert counted == f"the log has {len(half):,} requests, the metrics {len(REQUESTS):,}"
    assert ["prompt tokens" in one for one in tokens] == [True, False]
    assert "this one server" in str(refused.value.help_text)
    early = REQUESTS.take(REQUESTS.arrival_seconds < 300.0)
    with pytest.raises(WorkloadError, match=r"covers (5|4\.99) min of the 20 min of metrics"):
        demand_of_log(early, window, SERVER, 0)
