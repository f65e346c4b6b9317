"""A run in pieces is the run at once, to the bit."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal

from driftwatch.errors import ImpossibleConfiguration, NoVerdict, UsageError
from driftwatch.simulate import long_run, vllm_buckets
from driftwatch.simulate.configuration import SchedulerConfiguration
from driftwatch.simulate.engine import Observe, simulate
from driftwatch.simulate.long_run import LongRun, Piece
from driftwatch.simulate.request_histograms import Histograms, edges_of
from driftwatch.simulate.requests import Requests, make_requests
from driftwatch.simulate.run_summary import RunTally, with_itl
from driftwatch.simulate.step_time import StepTime

LAW = StepTime(0.009, 6e-5, 6.5e-5, 4e-7)


def workload(count: int) -> Requests:
    """Bursts with equal times, prefixes, cancellations; more than the server can take."""
    rng = np.random.default_rng(3)
    arrival = np.repeat(np.cumsum(rng.exponential(0.2, count // 4)), 4)
    shared = rng.random(count) < 0.4
    return make_requests(
        arrival,
        rng.integers(40, 900, count),
        rng.integers(1, 120, count),
        prefix_group=np.where(shared, rng.integers(0, 3, count), -1),
        shared_prefix_tokens=np.where(shared, 40, 0),
        cancel_seconds=np.where(rng.random(count) < 0.1, arrival + 1.5, np.inf),
    )


def in_pieces(run: LongRun) -> tuple[list[Piece], dict[str, float | int]]:
    pieces: list[Piece] = []
    return pieces, run.run(pieces.clear, pieces.append)


def requests_of(pieces: list[Piece]) -> pl.DataFrame:
    return pl.concat([piece.requests for piece in pieces]).sort("index")


@pytest.mark.parametrize(("piece", "steps"), [(1, 300), (1000, 40)])
@pytest.mark.parametrize("concurrency", [None, 20])
@pytest.mark.parametrize("async_scheduling", [False, True])
def test_pieces_change_nothing(
    piece: int, steps: int, concurrency: int | None, async_scheduling: bool
) -> None:
    requests = workload(120)
    settings = SchedulerConfiguration(12, 256, 200, async_scheduling=async_scheduling)
    run = LongRun(requests, settings, LAW, concurrency, 20.0, None, piece, steps)
    whole = simulate(
        requests, settings, LAW, concurrency=concurrency, timeout_seconds=20.0, per_step=True
    )
    pieces, summary = in_pieces(run)
    if concurrency is None:
        assert whole.requests["preemptions"].sum() > 0
    assert len(pieces) > 3
    assert requests_of(pieces).equals(whole.requests)
    assert whole.steps is not None
    assert pl.concat([piece.steps for piece in pieces]).equals(whole.steps)
    assert summary == whole.summary
    # and so do the figures
    said = []
    for parts in (pieces, [Piece(whole.requests, None, whole.steps, None)]):
        tally = RunTally(requests, settings)
        for part in parts:
            tally.take(with_itl(part.requests), part.steps)
        said.append(tally.summary(summary))
    assert said[0].waited == pytest.approx(said[1].waited, rel=1e-9)
    assert replace(said[0], waited={}) == replace(said[1], waited={})
    assert sum(said[0].waited.values()) > 0.1


@pytest.mark.parametrize(
    ("piece", "steps", "start"), [(1, 10_000, 0.0), (64, 40, 0.0), (64, 40, 1_700_000_000.0)]
)
def test_scrapes_in_pieces_are_those_of_one_look(piece: int, steps: int, start: float) -> None:
    requests = workload(160)
    requests = replace(
        requests,
        arrival_seconds=requests.arrival_seconds + start,
        cancel_seconds=requests.cancel_seconds + start,
    )
    # nothing is preempted: begun once
    settings = SchedulerConfiguration(12, 256, 4000)
    pieces, summary = in_pieces(
        LongRun(
            requests, settings, LAW, scrape_interval_seconds=2.0, piece_requests=piece,
            wanted_steps=steps,
        )
    )  # fmt: skip
    end = summary["end_seconds"]
    times = 2.0 * np.arange(math.ceil((requests.arrival_seconds[0] + 1e-9) / 2), end // 2 + 2)
    assert len(times) > 5
    observe = Observe(
        times, vllm_buckets.INTER_TOKEN_LATENCY_SECONDS, vllm_buckets.ITERATION_TOKENS
    )
    whole = simulate(requests, settings, LAW, observe=observe)
    assert whole.scrapes is not None
    scrapes = pl.concat([piece.scrapes for piece in pieces if piece.scrapes is not None])
    assert_frame_equal(scrapes, whole.scrapes, rel_tol=1e-12)
    edges = edges_of(None, int((requests.prompt_tokens + requests.generation_tokens).max()))
    histograms = Histograms(edges)
    booked = []
    for one in pieces:
        assert one.scrapes is not None
        assert one.first_tokens is not None
        seen = one.scrapes["time_seconds"].to_numpy()
        booked.append(histograms.take(one.requests, one.first_tokens, seen))
    first_tokens = whole.requests.filter(pl.col("first_token_seconds").is_not_null())
    at_once = Histograms(edges).take(whole.requests, first_tokens, times)
    assert_frame_equal(pl.concat(booked), at_once, rel_tol=1e-9)
    assert booked[-1]["time_to_first_token_seconds_count"][-1] > 100


def test_a_server_that_falls_ever_further_behind_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(long_run, "MOST_INSIDE", 100)
    run = LongRun(workload(160), SchedulerConfiguration(2, 256, 200), LAW, piece_requests=20)
    with pytest.raises(NoVerdict, match="more than 100 requests are sent and not served"):
        in_pieces(run)
    with pytest.raises(UsageError, match="a closed loop of 160 requests") as told:
        in_pieces(replace(run, concurrency=5))
    assert told.value.help_text == "--limit 100"


def test_too_many_scrapes_are_told_with_what_would_do() -> None:
    requests = make_requests([1e9, 1e9 + 60], [5, 5], [5, 5])
    run = LongRun(requests, SchedulerConfiguration(8, 256), LAW, scrape_interval_seconds=1e-4)
    with pytest.raises(UsageError, match=r"600,000 scrapes over 60 s") as told:
        in_pieces(run)
    assert told.value.help_text == "--scrape-interval 0.000606 or longer"


def test_what_never_fits_is_told_before_anything_runs() -> None:
    requests = make_requests([0.0, 1.0, 2.0], [5, 5, 9000], [5, 5, 5])
    with pytest.raises(ImpossibleConfiguration):
        in_pieces(LongRun(requests, SchedulerConfiguration(8, 256, 100), LAW, piece_requests=1))
