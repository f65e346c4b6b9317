"""A server-day of metrics: 2,880 scrapes of 300,000 requests, booked and rendered.

Run: ``python bench/metric_history.py``. Seconds are of the process, so that neighbours on the
machine do not count. The requests are made up: only how many there are matters here.
"""

from __future__ import annotations

import argparse
import time
from datetime import UTC, datetime
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from driftwatch.fleet.metrics.history import MetricHistory
from driftwatch.fleet.server import Server
from driftwatch.simulate.configuration import SchedulerConfiguration
from driftwatch.simulate.outcome import Outcome

DAY_SECONDS = 86_400.0
SERVER = Server("h:8000", "m", SchedulerConfiguration(256, 8192, 40_000, 16, 32_768))
TOLD = [
    "running",
    "waiting_capacity",
    "waiting_deferred",
    "kv_cache_usage_ratio",
    "preemptions",
    "prefix_hits_tokens",
    "rejected_reqs",
    "rejected_tokens",
]
GROWING = [
    "steps_observed",
    "iteration_tokens_sum",
    "itl_seconds_sum",
    "itl_seconds_count",
    "prompt_tokens",
    "prompt_tokens_computed",
    "prefix_queries_tokens",
]


def day(number: int, requests: int, scrapes: int) -> Outcome:
    """One day of an engine that serves at an even rate."""
    rng = np.random.default_rng(number)
    start = number * DAY_SECONDS
    arrival = np.sort(rng.uniform(start, start + DAY_SECONDS - 60.0, requests))
    generated = rng.integers(1, 800, requests)
    scheduled = arrival + rng.exponential(0.05, requests)
    token = scheduled + rng.exponential(0.1, requests)
    frame = pl.DataFrame(
        {
            "index": np.arange(requests) + number * requests,
            "status": ["finished"] * requests,
            "arrival_seconds": arrival,
            "first_scheduled_seconds": scheduled,
            "first_token_seconds": token,
            "end_seconds": np.minimum(token + (generated - 1) * 0.02, start + DAY_SECONDS),
            "prompt_tokens": rng.integers(1, 4000, requests),
            "generation_tokens": generated,
            "generated_tokens": generated,
            "cached_tokens": np.zeros(requests, dtype=np.int64),
            "preemptions": np.zeros(requests, dtype=np.int64),
        }
    )
    at = start + DAY_SECONDS / scrapes * np.arange(1, scrapes + 1)
    grown = 1e4 * (np.arange(1, scrapes + 1) + number * scrapes)
    firsts = np.searchsorted(np.sort(token), at, side="right") + number * requests
    rows: dict[str, npt.NDArray[np.floating[Any]] | pl.Series] = {
        "time_seconds": at,
        **{name: np.zeros(scrapes) for name in TOLD},
        **dict.fromkeys(GROWING, grown),
        "generation_tokens": grown + firsts,
    }
    for name, edges in (
        ("itl_seconds", SERVER.itl_edges),
        ("iteration_tokens", SERVER.iteration_tokens_edges),
    ):
        buckets = np.repeat(grown[:, None], len(edges) + 1, axis=1)
        rows[f"{name}_buckets"] = pl.Series(buckets).cast(pl.List(pl.Int64))
    return Outcome(frame, None, pl.DataFrame(rows), {})


def main() -> None:
    """Print the seconds of each day and of a page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--days", type=int, default=4)
    parser.add_argument("--requests", type=int, default=300_000, help="a day")
    parser.add_argument("--scrapes", type=int, default=2_880, help="a day")
    asked = parser.parse_args()
    history = MetricHistory(SERVER, datetime(2026, 3, 1, tzinfo=UTC))
    for number in range(asked.days):
        told = day(number, asked.requests, asked.scrapes)
        begin = time.process_time()
        history.add(told)
        booked = time.process_time()
        frame = history.scrape_frame()
        done = time.process_time()
        pages = history.answers()
        text = (time.process_time() - done) / len(pages)
        print(
            f"day {number}: {len(frame):,} rows, booked {booked - begin:.3f} s, "
            f"frame {done - booked:.3f} s, together {done - begin:.3f} s; "
            f"a page {1e3 * text:.2f} ms"
        )
        history.drop()


if __name__ == "__main__":
    main()
