"""Arrivals inside a minute, by how long its requests waited."""

from __future__ import annotations

import itertools
from dataclasses import replace
from datetime import UTC, datetime

import numpy as np
import polars as pl
import pytest

from driftwatch.recommend.calibration.fits import Arrivals, redrawn
from driftwatch.recommend.traffic.observed import CHUNK_SCHEMA, Observed
from driftwatch.recommend.traffic.waits import UNLIKE, RowWaits, Waits, as_waited
from driftwatch.simulate.configuration import SchedulerConfiguration
from driftwatch.simulate.engine import simulate
from driftwatch.simulate.requests import Requests, make_requests
from driftwatch.simulate.step_time import StepTime

LAW = StepTime(0.01, 5e-5, 2e-4, 1e-8)
TODAY = SchedulerConfiguration(16, 2048, max_model_len=8192)
OTHER = replace(TODAY, max_num_seqs=64)
MINUTES = 10
# vLLM's (v1/metrics/loggers.py), seconds
EDGES = np.array(
    [0, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80, 160]
)


def sent(clump: int, rate: float = 3.0, seed: int = 3) -> Requests:
    """Requests in clumps of so many at once, Poisson clumps; 1 = Poisson."""
    rng = np.random.default_rng(seed)
    count = int(rate * 60 * MINUTES / clump)
    at = np.sort(rng.uniform(0.001, 60 * MINUTES, count)).repeat(clump)
    return make_requests(
        at, rng.integers(100, 900, len(at)), rng.integers(20, 200, len(at)), cancel_seconds=None
    )


def ttft(requests: Requests, configuration: SchedulerConfiguration = TODAY) -> np.ndarray:
    rows = simulate(requests, configuration, LAW).requests
    return rows["ttft_seconds"].to_numpy()


def seen_of(requests: Requests, seed: int = 1) -> Observed:
    """What the minutes tell: counts, buckets of TTFT; requests drawn evenly inside them."""
    rng = np.random.default_rng(seed)
    token = requests.arrival_seconds + ttft(requests)
    waited = token - requests.arrival_seconds
    rows = []
    edges = np.arange(0.0, 60.0 * MINUTES + 1, 60.0)
    for low, high in itertools.pairwise(edges):
        counts = np.histogram(waited[(token > low) & (token <= high)], np.append(EDGES, np.inf))[0]
        cell = np.repeat(np.arange(len(EDGES)), counts)
        above, below = EDGES[cell], np.append(EDGES[1:], 640.0)[cell]
        drawn = np.sort(above + rng.random(len(cell)) * (below - above))
        rows.append(RowWaits(above, below, drawn))
    minute = np.floor(requests.arrival_seconds / 60.0)
    at = np.sort(60.0 * minute + 60.0 * rng.random(len(minute)))
    return Observed(
        start=datetime(2026, 11, 20, tzinfo=UTC),
        seconds=float(edges[-1]),
        requests=replace(requests, arrival_seconds=at),
        source="metrics",
        chunks=pl.DataFrame(schema=CHUNK_SCHEMA),
        busy_windows=MINUTES,
        saturated=False,
        waits=Waits(edges, tuple(rows), 0, np.append(EDGES, np.inf)),
    )


def clumped(observed: Observed) -> Requests:
    """As a calibration may have found them to come, not as they did."""
    return redrawn(observed.requests, np.random.default_rng(0), Arrivals(gap_cv=6.0))


def test_clumps_are_found_and_another_setting_is_forecast_by_them() -> None:
    true = sent(24)
    observed = seen_of(true)
    moved = as_waited(observed, TODAY, LAW, in_bursts=clumped(observed))
    for configuration in (TODAY, OTHER):
        was, even, said = (
            float(np.quantile(ttft(requests, configuration), 0.95))
            for requests in (true, observed.requests, moved.requests)
        )
        assert abs(np.log(said / was)) < 0.7 < 1.5 < abs(np.log(even / was))


def test_nothing_but_times_is_changed_and_no_minute_gets_another_count_by_much() -> None:
    observed = seen_of(sent(24))
    moved = as_waited(observed, TODAY, LAW, in_bursts=clumped(observed)).requests
    before = observed.requests
    assert (np.diff(moved.arrival_seconds) >= 0).all()
    for name in ("prompt_tokens", "generation_tokens"):
        assert sorted(getattr(moved, name)) == sorted(getattr(before, name))
    edges = np.arange(0.0, 60.0 * MINUTES + 1, 60.0)
    counts = [np.histogram(one.arrival_seconds, edges)[0] for one in (before, moved)]
    assert np.abs(counts[1] - counts[0]).max() <= 24  # a clump's first tokens cross an edge


def test_requests_that_came_evenly_are_left_where_they_are() -> None:
    observed = seen_of(sent(1))
    moved = as_waited(observed, TODAY, LAW)
    was, said = np.quantile(ttft(sent(1)), 0.95), np.quantile(ttft(moved.requests), 0.95)
    assert said == pytest.approx(was, rel=0.1)
    drawn = seen_of(sent(1), seed=2).requests
    assert as_waited(observed, TODAY, LAW, in_bursts=drawn).requests is not drawn


def test_a_deep_queue_leaves_arrivals_smooth_under_a_law_that_is_off() -> None:
    true = sent(1, rate=14.0)  # half of it can be served
    observed = seen_of(true)
    slow = replace(LAW, c0_seconds=1.1 * LAW.c0_seconds)
    moved = as_waited(observed, TODAY, slow).requests
    edges = np.arange(0.0, 60.0 * MINUTES + 1, 10.0)
    counts = [np.histogram(one.arrival_seconds, edges)[0] for one in (true, moved)]
    assert counts[1].var() / counts[1].mean() < 4 * counts[0].var() / counts[0].mean()


def test_what_chance_and_a_wandering_engine_explain_moves_nothing() -> None:
    true = sent(1, rate=6.8)  # nearly all that can be served
    observed = seen_of(true)
    evenly = [seen_of(true, seed=seed).requests for seed in (11, 12, 13)]
    # another draw waits so unlike the true one that it would be moved
    assert as_waited(observed, TODAY, LAW).requests is not observed.requests
    kept = as_waited(observed, TODAY, LAW, evenly=evenly, wander_log_sd=0.05)
    assert kept.requests is observed.requests
    # clumps are not explained so
    clumps = seen_of(sent(24))
    evenly = [seen_of(sent(24), seed=seed).requests for seed in (11, 12, 13)]
    found = as_waited(
        clumps, TODAY, LAW, in_bursts=clumped(clumps), evenly=evenly, wander_log_sd=0.05
    )
    assert found.requests is not clumps.requests


@pytest.mark.parametrize("cut", ["waits", "log"])
def test_without_buckets_or_with_a_log_the_calibrations_arrivals_stand(cut: str) -> None:
    observed = seen_of(sent(24))
    drawn = seen_of(sent(24), seed=5).requests
    known = (
        replace(observed, waits=None) if cut == "waits" else replace(observed, source="request log")
    )
    assert as_waited(known, TODAY, LAW).requests is observed.requests
    assert as_waited(known, TODAY, LAW, in_bursts=drawn).requests is drawn


def test_the_end_of_a_long_window_is_moved(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("driftwatch.recommend.traffic.waits._MOST_REQUESTS", 600)
    true = sent(24)
    observed = seen_of(true)
    drawn = clumped(observed)
    moved = as_waited(observed, TODAY, LAW, in_bursts=drawn).requests
    first = len(true) - 600
    assert np.isin(drawn.arrival_seconds[:first], moved.arrival_seconds).all()
    late = true.arrival_seconds > 450.0
    was = np.quantile(ttft(true)[late], 0.95)
    said = np.quantile(ttft(moved)[moved.arrival_seconds > 450.0], 0.95)
    even = np.quantile(ttft(observed.requests)[observed.requests.arrival_seconds > 450.0], 0.95)
    assert abs(np.log(said / was)) < abs(np.log(even / was)) / 2


def test_waits_are_moved_no_further_than_their_buckets_ask() -> None:
    row = RowWaits(np.repeat([0.1, 1.0], 5), np.repeat([0.25, 2.5], 5), np.repeat([0.2, 2.0], 5))
    waits = np.concatenate([np.linspace(0.15, 0.25, 5), np.linspace(1.9, 2.1, 5)])
    assert row.moved(waits) == pytest.approx(waits)  # in their buckets, the mean as well
    assert row.off(waits).sum() == 0.0
    assert row.off(np.full(10, 0.5))[:5] == pytest.approx(np.log(2.0))
    assert row.off(np.full(10, 0.5))[5:] == pytest.approx(np.log(2.0))
    assert len(row.of(3).drawn_seconds) == 3


def test_waits_that_no_replay_gives_are_said_to_be_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    clumps = seen_of(sent(24))
    evenly = [seen_of(sent(24), seed=seed).requests for seed in (11, 12, 13)]
    assert UNLIKE not in as_waited(seen_of(sent(1)), TODAY, LAW, evenly=evenly).notes
    # as where no move reaches them
    monkeypatch.setattr("driftwatch.recommend.traffic.waits._ROUNDS", 0)
    left = as_waited(clumps, TODAY, LAW, evenly=evenly)
    assert left.notes == (*clumps.notes, UNLIKE)
