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
from driftwatch.recommend.traffic.waits import RowWaits, Waits, as_waited
from driftwatch.simulate.configuration import SchedulerConfiguration
from driftwatch.simulate.requests import Requests, make_requests
from driftwatch.simulate.step_time import StepTime
from driftwatch.simulate.trial import simulate

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


@pytest.mark.parametrize("cut", ["waits", "log"])
def test_without_buckets_or_with_a_log_the_calibrations_arrivals_stand(cut: str) -> None:
    observed = seen_of(sent(24))
    drawn = seen_of(sent(24), seed=5).requests
    known = (
        replace(observed, waits=None) if cut == "waits" else replace(observed, source="request log")
    )
    assert as_waited(known, TODAY, LAW).requests is observed.requests
    assert as_waited(known, TODAY, LAW, in_bursts=drawn).requests is drawn
