"""Clients that think: what a closed loop must obey, whatever the engine does."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from driftwatch.simulate.configuration import SchedulerConfiguration
from driftwatch.simulate.engine import Engine
from driftwatch.simulate.requests import Requests, make_requests
from driftwatch.simulate.step_time import StepTime
from driftwatch.simulate.workload.closed_loop import closed_loop, think

LAW = StepTime(0.01, 1e-5, 1e-4, 1e-7)


def engine(max_num_seqs: int = 8) -> Engine:
    return Engine(SchedulerConfiguration(max_num_seqs, 512), LAW)


def lengths(count: int, seed: int = 1) -> Requests:
    rng = np.random.default_rng(seed)
    return make_requests(np.zeros(count), rng.integers(1, 400, count), rng.integers(1, 40, count))


def run(count: int, clients: int, mean_seconds: float, max_num_seqs: int = 8) -> pl.DataFrame:
    rng = np.random.default_rng(4)
    thinking = think(mean_seconds, count, rng)
    return closed_loop(engine(max_num_seqs), lengths(count), thinking, concurrency=clients)


def in_flight(found: pl.DataFrame) -> int:
    """Most requests that were at the server at once."""
    steps = sorted(
        [(at, 1) for at in found["arrival_seconds"]] + [(at, -1) for at in found["end_seconds"]]
    )
    now = most = 0
    for _, change in steps:
        now += change
        most = max(most, now)
    return most


@pytest.mark.parametrize("clients", [1, 3, 20])
def test_never_more_than_the_clients_and_everything_is_sent(clients: int) -> None:
    found = run(120, clients, 0.5)
    assert found["index"].to_list() == list(range(120))
    assert (found["status"] == "finished").all()
    assert in_flight(found) <= clients
    assert (found["arrival_seconds"] == 0).sum() == clients
    assert found["arrival_seconds"].is_sorted()


def test_one_client_waits_and_thinks_and_asks() -> None:
    """With one client every time is known: answer, think, ask."""
    thinking = np.linspace(0.3, 0.7, 30)
    found = closed_loop(engine(), lengths(30), thinking, concurrency=1)
    arrival, end = found["arrival_seconds"].to_numpy(), found["end_seconds"].to_numpy()
    np.testing.assert_allclose(arrival[1:], end[:-1] + thinking[1:], atol=1e-12)


def test_the_same_engine_with_the_same_arrivals_does_the_same() -> None:
    """Run forward in pieces or at once: the loop decides when a request comes, nothing else."""
    found = run(80, 5, 0.2)
    plain = engine()
    sent = lengths(80)
    plain.offer(
        make_requests(
            found["arrival_seconds"].to_numpy(), sent.prompt_tokens, sent.generation_tokens
        )
    )
    assert plain.advance().requests["end_seconds"].to_list() == found["end_seconds"].to_list()


def test_littles_law_with_thinking() -> None:
    """clients = rate × (response + think), over a run long against its beginning and end."""
    found = run(600, 6, 0.4)
    rate = 600 / found["end_seconds"].max()
    inside = rate * (found["e2e_seconds"].mean() + 0.4)
    assert inside == pytest.approx(6, rel=0.04)


def test_what_cannot_be_asked() -> None:
    with pytest.raises(ValueError, match="concurrency"):
        closed_loop(engine(), lengths(3), np.ones(3), concurrency=0)
    with pytest.raises(ValueError, match="think_seconds"):
        closed_loop(engine(), lengths(3), np.zeros(3), concurrency=1)
    with pytest.raises(ValueError, match="spread"):
        think(1.0, 3, np.random.default_rng(0), spread=1.0)
    with pytest.raises(ValueError, match="mean_seconds"):
        think(0.0, 3, np.random.default_rng(0))
