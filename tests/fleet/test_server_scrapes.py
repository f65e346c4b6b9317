"""Simulated scrapes against vLLM's own way of booking and a recorded page."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import polars as pl
from polars.testing import assert_frame_equal

from driftwatch.collect.pages import PageParser
from driftwatch.fleet.metrics import ServerScrapes
from driftwatch.fleet.server import Server
from driftwatch.simulate.configuration import SchedulerConfiguration
from driftwatch.simulate.engine import Disturbance, Observe, Options
from driftwatch.simulate.requests import make_requests
from driftwatch.simulate.step_time import StepTime
from driftwatch.simulate.trial import Engine

EPOCH = datetime(2026, 3, 1, tzinfo=UTC)


def test_a_recorded_server_shows_what_a_simulated_one_does(shared_data: Path) -> None:
    """The page of a real vLLM 0.32: the same columns, edges and labels of its configuration."""
    body = (shared_data / "vllm-0.32" / "metrics_after_main_run.txt").read_bytes()
    (real,) = PageParser().parse("host:8000", EPOCH, body).scrapes.iter_rows(named=True)
    labels = json.loads(real["cache_config"])
    size = int(labels["block_size"])
    blocks = int(labels["kv_cache_size_tokens"]) // size
    length = int(blocks / float(labels["kv_cache_max_concurrency"]) * size)
    configuration = SchedulerConfiguration(
        64, 1024, num_gpu_blocks=blocks, block_size=size, max_model_len=length
    )
    like = Server("host:8000", real["model_name"], configuration)
    made = simulated(3, [60.0], like).row(-1, named=True)
    assert {n for n, v in made.items() if v is None} == {n for n, v in real.items() if v is None}
    for name in (n for n in made if n.endswith("_edges")):
        assert made[name] == real[name], name
    same = json.loads(made["cache_config"])
    differ = {name for name in labels.keys() | same.keys() if labels.get(name) != same.get(name)}
    assert differ == {"kv_cache_memory_bytes"}  # how much memory it was given


_CONFIGURATION = SchedulerConfiguration(
    max_num_seqs=16, max_num_batched_tokens=256, num_gpu_blocks=130, block_size=16,
    max_model_len=2048, max_num_queued_reqs=14,
)  # fmt: skip
CROWDED = Server("host:8000", "m", _CONFIGURATION)


def simulated(seed: int, chunks: list[float], s: Server = CROWDED) -> pl.DataFrame:
    """A real engine, under preemption, time-outs and a queue limit, told chunk by chunk."""
    rng = np.random.default_rng(seed)
    arrivals = np.cumsum(rng.exponential(0.12, 220))
    requests = make_requests(
        arrivals,
        rng.integers(20, 300, 220),
        rng.integers(1, 120, 220),
        cached_tokens=16 * rng.integers(0, 2, 220),
        cancel_seconds=np.where(rng.random(220) < 0.1, arrivals + 0.8, np.inf),
    )
    engine = Engine(
        s.configuration,
        StepTime(0.01, 5e-5, 1e-3, 1e-6),
        Options(
            Observe(
                itl_edges=s.edges()["itl_seconds"],
                iteration_tokens_edges=s.edges()["iteration_tokens"],
            ),
            disturbance=Disturbance(jitter_sigma=0.1),
            seed=seed,
            timeout_seconds=15.0,
        ),
    )
    times = np.arange(1.0, 61.0)
    history = ServerScrapes(s, EPOCH)
    before = 0.0
    for until in [*chunks, np.inf]:  # as a process ends: its first tokens are known then
        at = requests.arrival_seconds
        engine.offer(requests.take((at >= before) & (at < until)))
        ran = engine.advance(until, times[(times > before) & (times <= until)])
        history.add(ran.requests.filter(pl.col("status") != "unfinished"), ran.scrapes)
        before = until
    rows = history.take()
    assert len(rows) == len(times)
    return rows


def test_a_real_engine_in_one_piece_and_in_many() -> None:
    frame = simulated(1, [60.0])
    last = frame.row(-1, named=True)
    assert last["preemptions_total"] > 0
    assert last["rejected_requests_total"] > 0
    assert last["prefix_cache_hits_total"] > 0
    assert last["ttft_seconds_count"] > last["finished_requests_total"] > 50
    assert last["ttft_seconds_count"] + last["itl_seconds_count"] == last["generation_tokens_total"]
    assert last["prompt_tokens_computed_total"] < last["prompt_tokens_total"]
    pieces = simulated(1, [7.5, 7.6, 11.0, 23.25, 40.0, 60.0])
    counts = [name for name in frame.columns if name.endswith(("_count", "_buckets", "_total"))]
    assert_frame_equal(pieces.select(counts), frame.select(counts))
