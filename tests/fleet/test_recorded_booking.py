"""A real server's requests, booked as the fleet books them, against what that server showed."""

from __future__ import annotations

import gzip
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import orjson
import polars as pl

from driftwatch.collect.pages.parser import PageParser
from driftwatch.fleet.metrics.history import MetricHistory
from driftwatch.fleet.server import Server
from driftwatch.simulate.configuration import SchedulerConfiguration
from driftwatch.simulate.outcome import Outcome

# A client sees the end of its answer after the server has booked it, by less than this.
LATE_SECONDS = 1.0
EVERY = 12  # one scrape a minute is enough

COLUMNS = ("prompt_tokens", "generation_tokens")


def recorded_pages(folder: Path) -> pl.DataFrame:
    batch = PageParser().batch()
    with gzip.open(folder / "scrapes.jsonl.gz") as file:
        scrapes = [orjson.loads(line) for line in file]
    for scrape in [*scrapes[::EVERY], scrapes[-1]]:
        batch.add("h", datetime.fromtimestamp(scrape["t"], UTC), scrape["body"].encode())
    return batch.finish().frame.unique("time").sort("time")


def booked(folder: Path, times: np.ndarray, epoch: datetime) -> pl.DataFrame:
    """The recorded requests as ended requests; only lengths and ends are known of them."""
    with gzip.open(folder / "requests.jsonl.gz") as file:
        requests = [orjson.loads(line) for line in file]
    start = epoch.timestamp()
    ok = [r for r in requests if r["status"] == 200]
    done = np.array([r["done"] - start for r in ok])
    generated = np.array([r["usage"]["completion_tokens"] for r in ok])
    prompts = np.array([r["usage"]["prompt_tokens"] for r in ok])
    frame = pl.DataFrame(
        {
            "index": np.arange(len(ok)),
            "status": ["finished"] * len(ok),
            **{f"{name}_seconds": done for name in ("arrival", "first_scheduled", "first_token")},
            "end_seconds": done,
            "prompt_tokens": prompts,
            "generation_tokens": generated,
            "generated_tokens": generated,
            "cached_tokens": np.zeros(len(ok), dtype=np.int64),
            "preemptions": np.zeros(len(ok), dtype=np.int64),
        }
    )
    server = Server("h", "m", SchedulerConfiguration(64, 1024, 8192, 32, 8192))
    ended = np.searchsorted(np.sort(done), times, side="right")
    zeros = np.zeros(len(times))
    named = (
        "running waiting_capacity waiting_deferred kv_cache_usage_ratio steps_observed preemptions "
        "prompt_tokens prompt_tokens_computed rejected_reqs rejected_tokens prefix_queries_tokens "
        "prefix_hits_tokens iteration_tokens_sum itl_seconds_sum itl_seconds_count"
    )
    scrapes = pl.DataFrame(
        {
            "time_seconds": times,
            **dict.fromkeys(named.split(), zeros),
            "generation_tokens": ended,
            "itl_seconds_buckets": [[0] * (len(server.itl_edges) + 1)] * len(times),
            "iteration_tokens_buckets": [[0] * (len(server.iteration_tokens_edges) + 1)]
            * len(times),
        }
    )
    history = MetricHistory(server, epoch)
    history.add(Outcome(frame, None, scrapes, {}))
    return history.scrape_frame()


def test_first_tokens_are_the_output_tokens_that_follow_no_other(shared_data: Path) -> None:
    """What tells a history how many first tokens it must know; on a real server's every page."""
    for run in ("run_main", "run_slow"):
        real = recorded_pages(shared_data / "vllm-0.32" / run)
        firsts = real["generation_tokens_total"] - real["itl_seconds_count"]
        assert (firsts == real["ttft_seconds_count"]).all()
        # in flight: a first token is booked before its request finishes
        assert (real["ttft_seconds_count"] >= real["e2e_seconds_count"]).all()
        assert (real["ttft_seconds_count"] > real["e2e_seconds_count"]).any()


def test_lengths_of_the_real_run_are_booked_as_the_real_server_did(shared_data: Path) -> None:
    folder = shared_data / "vllm-0.32" / "run_slow"
    real = recorded_pages(folder)
    epoch = real["time"][0] - timedelta(seconds=120)
    assert isinstance(epoch, datetime)
    at = np.array([(time - epoch).total_seconds() for time in real["time"]])
    every = np.unique(np.concatenate([at, at + LATE_SECONDS]))
    mine = booked(folder, every, epoch)
    now, later = np.searchsorted(every, at), np.searchsorted(every, at + LATE_SECONDS)
    assert len(at) > 30
    for column in COLUMNS:
        for part in ("sum", "count", "buckets"):
            name = f"{column}_{part}"
            shown = np.array(real[name].to_list())
            least, most = (np.array(mine[name].to_list())[rows] for rows in (now, later))
            assert (least <= shown).all(), name
            assert (shown <= most).all(), name
            assert (shown[-1] == least[-1]).all(), name  # idle at the end: equal
        assert real[f"{column}_edges"][0].to_list() == mine[f"{column}_edges"][0].to_list()
        assert real[f"{column}_count"][-1] > 10_000
