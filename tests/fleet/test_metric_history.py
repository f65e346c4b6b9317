"""Histories against vLLM's own way of booking, and their two renderings against each other."""

from __future__ import annotations

from datetime import UTC, datetime

import numpy as np
import polars as pl
from booked_by_hand import (
    CONFIGURATION,
    BookedServer,
    outcome,
    run,
)
from hypothesis import example, given, settings
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from driftwatch.collect.pages.foreign import STATS_DISABLED
from driftwatch.collect.pages.parser import PageParser
from driftwatch.fleet.metrics.history import MetricHistory
from driftwatch.fleet.server import Server
from driftwatch.simulate.configuration import SchedulerConfiguration
from driftwatch.simulate.disturbance import Disturbance
from driftwatch.simulate.engine import Engine
from driftwatch.simulate.requests import make_requests
from driftwatch.simulate.state import Options
from driftwatch.simulate.step_time import StepTime

EPOCH = datetime(2026, 3, 1, tzinfo=UTC)


def server(**more: object) -> Server:
    return Server("host:8000", "m", CONFIGURATION, **more)  # type: ignore[arg-type]


def vllm_lines(page: str) -> list[str]:
    """Without what says when it was made, and without what is not the logger's."""
    return [
        line
        for line in page.splitlines()
        if "vllm:" in line and "_created" not in line and "cache_config_info" not in line
    ]


def pages(history: MetricHistory) -> list[str]:
    return [answer.body for answer in history.answers()]


def parsed(history: MetricHistory) -> pl.DataFrame:
    """The scrapes as driftwatch's parser reads their text."""
    batch = PageParser().batch()
    for answer in history.answers():
        if answer.status == 200:
            batch.add(history.server.instance, answer.time, answer.body.encode())
        else:
            batch.fail(history.server.instance, answer.time, f"no answer: {answer.body}")
    found = batch.finish()
    assert not [p for p in found.problems if p.reason != STATS_DISABLED]
    return found.frame


@settings(max_examples=5, deadline=None)
@example(seed=440, every=0.7, custom=False)  # it drew a prompt over max_model_len
@given(
    seed=st.integers(0, 2**32),
    every=st.sampled_from([0.7, 5.0]),
    custom=st.booleans(),
)
def test_a_page_is_what_vllm_books_one_by_one(seed: int, every: float, custom: bool) -> None:
    buckets = {"request_latency": (0.5, 2.0, 9.0), "time_to_first_token_seconds": (0.2, 1.0)}
    s = server(custom_histogram_buckets=buckets if custom else {})
    done = run(seed)
    end = done.steps[-1].end
    times = np.arange(every, end + every, every)
    history = MetricHistory(s, EPOCH)
    middle = float(times[len(times) // 2])  # told in two parts, cut between requests' tokens
    history.add(outcome(done, s, times[times <= middle], -1.0, middle))
    assert len(history) <= np.sum(times <= middle)
    history.add(outcome(done, s, times[times > middle], middle, np.inf))
    assert len(history) == len(times)

    booked, texts = BookedServer(s), pages(history)
    told = iter(done.steps)
    step = next(told, None)
    rejected = list(done.rejected)
    for number, time in enumerate(times):
        while step is not None and step.end <= time:
            booked.record(step)
            step = next(told, None)
        while rejected and rejected[0][0] <= time:
            rejected.pop(0)
            booked.reject("max_num_queued_reqs")
        assert vllm_lines(texts[number]) == vllm_lines(booked.page())


def test_the_text_is_read_as_the_frame() -> None:
    s = server()
    done = run(7)
    history = MetricHistory(s, EPOCH)
    history.add(outcome(done, s, np.arange(1.0, 40.0, 1.5), -1.0, np.inf))
    frame = history.scrape_frame()
    assert frame["ok"].all()
    assert_frame_equal(parsed(history), frame)


def test_a_restart_and_stats_switched_off() -> None:
    first, done = server(), run(1)
    history = MetricHistory(first, EPOCH)
    times = np.arange(1.0, 15.0)
    history.add(outcome(done, first, times, -1.0, np.inf))
    history.fail([15.0, 16.0])
    shorter = SchedulerConfiguration(
        max_num_seqs=4, max_num_batched_tokens=512, num_gpu_blocks=1024, max_model_len=2048
    )
    second = Server(
        "host:8000",
        "m",
        shorter,
        custom_histogram_buckets={"request_tokens": (9, 99), "vllm:request_params_n": (4,)},
    )
    history.restart(second, 16.5)
    later = outcome(done, second, times, -1.0, np.inf)
    later.scrapes = later.scrapes.with_columns(pl.col("time_seconds") + 17.0)
    moved = [name for name in later.requests.columns if name.endswith("_seconds")]
    later.requests = later.requests.with_columns(pl.col(moved) + 17.0)
    history.add(later)
    frame = history.scrape_frame()
    assert_frame_equal(parsed(history), frame)
    assert frame["ok"].to_list() == [True] * 14 + [False] * 2 + [True] * 14
    assert frame["cache_config"].drop_nulls().n_unique() == 2
    started = frame["process_start_time_seconds"].drop_nulls()
    assert started[-1] - started[0] == 16.5 + 60.0
    generated = frame["generation_tokens_total"].drop_nulls().to_list()
    assert generated[14] == generated[0] < generated[13]
    assert frame["prompt_tokens_edges"][-1].to_list() == [9.0, 99.0, np.inf]
    assert 'vllm:request_params_n_bucket{engine="0",le="4.0"' in pages(history)[-1]
    history.drop()
    history.restart(Server("host:8000", "m", shorter, log_stats=False), 40.0)
    history.add(outcome(done, second, times, -1.0, np.inf))
    off = history.scrape_frame()
    assert off["reason"].unique().to_list() == [STATS_DISABLED]
    assert off["engine"].unique().to_list() == ["0"]
    assert not any("vllm:" in answer.body for answer in history.answers())


def simulated(seed: int, chunks: list[float]) -> MetricHistory:
    """A real engine under preemption, time-outs and a queue limit, told chunk by chunk."""
    rng = np.random.default_rng(seed)
    configuration = SchedulerConfiguration(
        max_num_seqs=16, max_num_batched_tokens=256, num_gpu_blocks=130, block_size=16,
        max_model_len=2048, max_num_queued_reqs=14,
    )  # fmt: skip
    s = Server("host:8000", "m", configuration)
    arrivals = np.cumsum(rng.exponential(0.12, 220))
    requests = make_requests(
        arrivals,
        rng.integers(5, 300, 220),
        rng.integers(1, 120, 220),
        prefix_group=rng.integers(-1, 2, 220),
        shared_prefix_tokens=np.full(220, 64),
        cancel_seconds=np.where(rng.random(220) < 0.1, arrivals + 0.8, np.inf),
    )
    engine = Engine(
        configuration,
        StepTime(0.01, 5e-5, 1e-3, 1e-6),
        Options(
            disturbance=Disturbance(jitter_sigma=0.1),
            seed=seed,
            timeout_seconds=15.0,
            itl_edges=s.itl_edges,
            iteration_tokens_edges=s.iteration_tokens_edges,
        ),
    )
    times = np.arange(1.0, 61.0)
    history = MetricHistory(s, EPOCH)
    before = 0.0
    for until in chunks:
        at = requests.arrival_seconds
        engine.offer(requests.take((at >= before) & (at < until)))
        outcome = engine.advance(until, times[(times > before) & (times <= until)])
        history.add(outcome)
        before = until
    history.add(engine.advance())  # as a process ends: its first tokens are known then
    assert len(history) == len(times)
    return history


def test_a_real_engine_in_one_piece_and_in_many() -> None:
    whole = simulated(1, [60.0])
    frame = whole.scrape_frame()
    assert_frame_equal(parsed(whole), frame)
    last = frame.row(-1, named=True)
    assert last["preemptions_total"] > 0
    assert last["rejected_requests_total"] > 0
    assert last["prefix_cache_hits_total"] > 0
    assert last["ttft_seconds_count"] > last["finished_requests_total"] > 50
    assert last["ttft_seconds_count"] + last["itl_seconds_count"] == last["generation_tokens_total"]
    assert last["prompt_tokens_computed_total"] < last["prompt_tokens_total"]
    pieces = simulated(1, [7.5, 7.6, 11.0, 23.25, 40.0, 60.0]).scrape_frame()
    counts = [name for name in frame.columns if name.endswith(("_count", "_buckets", "_total"))]
    assert_frame_equal(pieces.select(counts), frame.select(counts))
