from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from observed_cases import server

from driftwatch.recommend.horizon import steady
from driftwatch.recommend.traffic.from_minutes import observed_from_minutes
from driftwatch.signals.minutes import MINUTE_SCHEMA
from driftwatch.simulate.configuration import SchedulerConfiguration
from driftwatch.simulate.requests import Requests, make_requests
from driftwatch.simulate.step_time import StepTime
from driftwatch.simulate.trial import simulate

EDGES = [1.0, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, float("inf")]
LAW = StepTime(0.08, 1e-5, 1e-4, 1e-8)
MINUTES = 12


@pytest.fixture(scope="module")
def sent() -> Requests:
    """Generations that quadruple after three minutes; the rest of a server's life is theirs."""
    rng = np.random.default_rng(8)
    at = np.sort(rng.random(3600) * 60 * MINUTES)
    long = np.where(at > 180, 4.0, 1.0)
    generation = np.maximum(rng.lognormal(5.0, 0.6, len(at)) * long, 1).astype(int)
    return make_requests(at, rng.integers(50, 200, len(at)), generation)


@pytest.fixture(scope="module")
def seen(sent: Requests) -> pl.DataFrame:
    """The minutes that a server with room for all of them shows."""
    ended = simulate(
        sent, SchedulerConfiguration(max_num_seqs=1024, max_num_batched_tokens=8192), LAW
    ).requests
    first = (ended["arrival_seconds"] + ended["ttft_seconds"]).to_numpy()
    last = (ended["arrival_seconds"] + ended["e2e_seconds"]).to_numpy()
    tokens = ended["generated_tokens"].to_numpy()
    between = (last - first) / np.maximum(tokens - 1, 1)
    rows = []
    for minute in range(MINUTES):
        low, high = 60.0 * minute, 60.0 * (minute + 1)
        done = (last >= low) & (last < high)
        lives = np.clip(np.minimum(last, high) - np.maximum(first, low), 0, None)
        later = (lives / np.maximum(between, 1e-9)).sum()
        row = {
            "instance": "h:8000",
            "engine": "0",
            "end": minute,
            "scrapes": 12.0,
            "duration_seconds": 60.0,
            "ttft_seconds_count": float(((first >= low) & (first < high)).sum()),
            "generation_tokens_count": float(done.sum()),
            "prompt_tokens_count": float(done.sum()),
            "generation_tokens_total": float(later),
            "itl_seconds_sum": float(lives.sum()),
            "itl_seconds_count": float(later),
            "running_requests": float(lives.sum() / 60),
            "waiting_requests": 0.0,
            "waiting_capacity_requests": 0.0,
        }
        for name, values in (
            ("prompt_tokens", ended["prompt_tokens"].to_numpy()[done]),
            ("generation_tokens", tokens[done]),
        ):
            row[f"{name}_sum"] = float(values.sum())
            row[f"{name}_edges"] = EDGES
            row[f"{name}_buckets"] = [float((values <= edge).sum()) for edge in EDGES]
        rows.append(row)
    frame = pl.DataFrame(rows).with_columns(
        end=pl.datetime(2026, 1, 1, 0, 1, time_zone="UTC").dt.cast_time_unit("us")
        + pl.duration(minutes=pl.col("end"))
    )
    missing = [pl.lit(None, t).alias(c) for c, t in MINUTE_SCHEMA.items() if c not in frame.columns]
    return frame.with_columns(missing).select(pl.col(c).cast(t) for c, t in MINUTE_SCHEMA.items())


def test_long_generations_that_have_not_finished_are_not_forgotten(
    sent: Requests, seen: pl.DataFrame
) -> None:
    window = seen.slice(3, 3)  # the first three minutes after the change
    found = observed_from_minutes(window, server())
    true = sent.generation_tokens[(sent.arrival_seconds >= 180) & (sent.arrival_seconds < 360)]
    arrived = found.requests.generation_tokens[found.carried_requests :]
    finished = window["generation_tokens_sum"].sum() / window["generation_tokens_count"].sum()
    assert finished < 0.75 * true.mean()  # what histograms alone would offer
    assert arrived.mean() == pytest.approx(true.mean(), rel=0.15)
    # simulated with the true step-time model, as many tokens come as did
    tokens = replayed_tokens(found.requests, found.seconds)
    assert tokens == pytest.approx(window["generation_tokens_total"].sum(), rel=0.1)


def test_a_long_queue_is_not_made_of_the_last_few_lengths(seen: pl.DataFrame) -> None:
    window = seen.head(3)
    queue = pl.Series([0.0, 1000.0, 2000.0])
    edges = np.array(EDGES[:-1])
    last = window["generation_tokens_buckets"].to_list()
    finished = int(last[2][-1])
    assert finished >= 200  # the last minute alone, all of them long by chance
    top = int(np.searchsorted(edges, 400.0))
    last[2] = [0.0] * top + [float(finished)] * (len(EDGES) - top)
    window = window.with_columns(
        queue.alias("waiting_requests"),
        queue.alias("waiting_capacity_requests"),
        pl.Series("generation_tokens_buckets", last),
        pl.Series(
            "generation_tokens_sum", [*window["generation_tokens_sum"][:2], 390.0 * finished]
        ),
    )
    found = observed_from_minutes(window, server()).requests
    waiting = found.generation_tokens[-1500:].mean()
    every = window["generation_tokens_sum"].sum() / window["generation_tokens_count"].sum()
    assert waiting == pytest.approx(every, rel=0.1)


def replayed_tokens(requests: Requests, seconds: float) -> float:
    ended = simulate(
        requests, SchedulerConfiguration(max_num_seqs=1024, max_num_batched_tokens=8192), LAW
    ).requests
    first = (ended["arrival_seconds"] + ended["ttft_seconds"]).to_numpy()
    last = (ended["arrival_seconds"] + ended["e2e_seconds"]).to_numpy()
    between = (last - first) / np.maximum(ended["generated_tokens"].to_numpy() - 1, 1)
    lives = np.clip(np.minimum(last, seconds) - first, 0, None)
    return float((lives / np.maximum(between, 1e-9)).sum())


def test_clients_that_left_got_what_the_counters_leave_for_them(seen: pl.DataFrame) -> None:
    """Under a backlog clients give up: their whole generations are work that no engine did, and
    the demand that a change is judged by."""
    window, gone, got = seen.head(3), 100.0, 20.0
    assert 2 * got < window["generation_tokens_sum"].sum() / window["generation_tokens_count"].sum()
    left = window.with_columns(
        pl.col("ttft_seconds_count") + gone, pl.col("generation_tokens_total") + gone * got
    )
    found = observed_from_minutes(left, server())
    who = np.isfinite(found.requests.cancel_seconds)
    assert who.sum() == pytest.approx(3 * gone, rel=0.25)  # gauges are means of minutes
    whole = observed_from_minutes(window, server()).requests.generation_tokens
    shorter = found.requests.generation_tokens[who].mean()
    assert shorter < 0.5 * whole.mean()
    # judged by what they came for
    going_on, _ = steady(found, 0)
    assert np.isinf(going_on.cancel_seconds).all()
    stayed = found.requests.generation_tokens[~who].mean()
    assert going_on.generation_tokens.mean() == pytest.approx(stayed, rel=0.15)
