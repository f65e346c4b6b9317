"""The observed traffic of one engine: requests that can be replayed, and what came of them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

import numpy as np
import numpy.typing as npt
import polars as pl

from driftwatch.recommend.observed.waits import Waits
from driftwatch.simulate.requests import Requests

Floats = npt.NDArray[np.float64]

# A row a chunk of the window; NULL = not observed. Means are over the chunk.
CHUNK_SCHEMA: dict[str, pl.DataType | type[pl.DataType]] = {
    "start_seconds": pl.Float64,  # on the requests' clock
    "end_seconds": pl.Float64,
    "generation_tokens_per_second": pl.Float64,
    "first_tokens_per_second": pl.Float64,
    "finished_per_second": pl.Float64,
    "itl_seconds": pl.Float64,  # mean over tokens
    "steps_per_generation_token": pl.Float64,  # forward passes that brought a token, over tokens
    "tokens_per_step": pl.Float64,
    "ttft_seconds": pl.Float64,  # mean over first tokens
    "queue_seconds": pl.Float64,
    "prefill_seconds": pl.Float64,  # first schedule to first token, of those that finished
    "running_requests": pl.Float64,
    "waiting_requests": pl.Float64,
    "kv_cache_usage_ratio": pl.Float64,
    "preemptions_per_second": pl.Float64,
}


@dataclass(frozen=True, slots=True, eq=False)
class Observed:
    """Traffic of one engine in one window.

    Attributes:
        start: when second 0 of the requests' clock was, UTC.
        seconds: length of the window.
        requests: sorted by arrival; those that waited or ran at the start arrive at second 0.
        source: where arrivals and lengths come from.
        chunks: :data:`CHUNK_SCHEMA`, in order.
        busy_windows: minutes in which a request was served.
        finished_requests: in the window.
        saturated: requests waited in most scrapes: TTFT cannot be replayed from counts.
        prefix_hit_ratio: hits over queries; None = unknown.
        ttft_p95_seconds: of the window's buckets, with its cell, as PromQL has it; None = unknown.
        tpot_p95_seconds: the same.
        notes: what is not known and what was taken instead, in words.
        carried_requests: the first so many requests waited or ran at the start; their own TTFT is
            not that of the server.
        came_seconds: when these came, on the same clock, before second 0; NaN = they had been
            admitted by then. None = unknown of all.
    """

    start: datetime
    seconds: float
    requests: Requests
    source: Literal["metrics", "request log"]
    chunks: pl.DataFrame
    busy_windows: int
    finished_requests: int
    saturated: bool
    prefix_hit_ratio: float | None = None
    ttft_p95_seconds: float | None = None
    tpot_p95_seconds: float | None = None
    notes: tuple[str, ...] = ()
    carried_requests: int = 0
    came_seconds: Floats | None = None
    waits: Waits | None = None

    @property
    def offered_requests_per_second(self) -> float:
        """Arrivals over the window; those that were there before are none."""
        return (len(self.requests) - self.carried_requests) / self.seconds
