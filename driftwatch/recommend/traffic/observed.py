"""The server and the observed traffic of one engine: requests that can be simulated, and what came
of them.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import datetime
from typing import Any, Literal

import numpy as np
import polars as pl

from driftwatch.arrays import Floats, Integers
from driftwatch.model import Serving
from driftwatch.simulate.requests import NO_GROUP, Requests
from driftwatch.simulate.workload.histograms import LengthHistogram, sample_lengths


@dataclass(frozen=True, slots=True)
class Server:
    """One engine, as it runs; None = unknown.

    ``serving`` has an inferred max_num_seqs among its settings; ``weight_bytes``: of one weight (2
    = bf16, 1 = fp8); ``num_gpu_blocks``: vLLM's null block included; ``flags``: other engine flags
    by vLLM's own name, what is not in it is unknown; ``unsupported``: what runs that no simulation
    here knows, in words.
    """

    serving: Serving = field(default_factory=Serving)
    model: str | None = None
    gpu: str | None = None
    gpus: float | None = None
    tensor_parallel: int | None = None
    weight_bytes: float | None = None
    kv_cache_dtype: str | None = None
    num_gpu_blocks: int | None = None
    block_size: int | None = None
    gpu_memory_utilization: float | None = None
    prefix_caching: bool | None = None
    release: str | None = None
    unsupported: tuple[str, ...] = ()
    flags: Mapping[str, str] = field(default_factory=dict)


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


def moved(requests: Requests, arrival_seconds: Floats) -> Requests:
    """The same requests at other times; clients that leave are as patient as before."""
    patience = requests.cancel_seconds - requests.arrival_seconds
    cancel = arrival_seconds + patience
    return replace(requests, arrival_seconds=arrival_seconds, cancel_seconds=cancel)


def joined(parts: Sequence[Requests]) -> Requests:
    """Requests one behind the other."""
    names = [one.name for one in fields(Requests)]
    return Requests(
        **{name: np.concatenate([getattr(part, name) for part in parts]) for name in names}
    )


# times are drawn as whole numbers of these
UNIT_SECONDS = 1e-3


@dataclass(frozen=True, slots=True, eq=False)
class RowWaits:
    """The times to first token of one row, from the shortest to the longest."""

    above_seconds: Floats
    below_seconds: Floats
    drawn_seconds: Floats  # a time inside each bucket, so that their sum is the histogram's

    def of(self, many: int) -> RowWaits:
        """So many of them, evenly chosen: the others belong to requests that are not simulated."""
        have = len(self.drawn_seconds)
        if many == have or not have:
            return self
        at = np.minimum(((np.arange(many) + 0.5) * have / many).astype(np.int64), have - 1)
        return RowWaits(self.above_seconds[at], self.below_seconds[at], self.drawn_seconds[at])

    def moved(self, simulated: Floats) -> Floats:
        """The least that simulated waits must be moved so that the row's buckets hold them.

        All are shifted by what their mean is off; those that the shift leaves in the wrong bucket
        are spread over it. ``simulated``: as many as the row has, sorted.
        """
        shifted = simulated + (self.drawn_seconds.mean() - simulated.mean())
        waits = self.drawn_seconds.copy()
        for low in np.unique(self.above_seconds):
            inside = self.above_seconds == low
            high = float(self.below_seconds[inside][0])
            first, last = float(shifted[inside].min()), float(shifted[inside].max())
            if last <= low or first >= high:
                continue
            begin, end = max(low, first), min(high, last)
            scale = (end - begin) / (last - first) if last > first else 0.0
            waits[inside] = begin + (shifted[inside] - first) * scale
        return np.sort(waits)

    def off(self, simulated: Floats) -> Floats:
        """By how much each simulated wait misses its bucket, as the size of its logarithm."""
        least = UNIT_SECONDS / 10.0
        wait = np.maximum(simulated, least)
        nearest = np.clip(wait, np.maximum(self.above_seconds, least), self.below_seconds)
        return np.asarray(np.abs(np.log(wait / nearest)))


@dataclass(frozen=True, slots=True, eq=False)
class Waits:
    """Times to first token of a stretch."""

    edges: Floats  # seconds at each edge of the rows
    rows: tuple[RowWaits, ...]
    # how many of the first row's first tokens belong to requests that waited when the stretch began
    waiting_first: int
    bucket_edges: Floats  # seconds, from 0 to inf

    def as_if(self, arrival: Floats, token: Floats) -> Waits:
        """What the same pages would have told of other requests.

        ``arrival``: of each request; those at 0 were there before and are not counted; ``token``:
        when each got its first token; inf = not in the window.
        """
        waited, rows = token - arrival, []
        for low, high in itertools.pairwise(self.edges):
            inside = (arrival > 0) & (token > low) & (token <= high)
            own = np.sort(waited[inside])
            cell = np.searchsorted(self.bucket_edges, own, side="left") - 1
            cell = np.clip(cell, 0, len(self.bucket_edges) - 2)
            rows.append(RowWaits(self.bucket_edges[cell], self.bucket_edges[cell + 1], own))
        return replace(self, rows=tuple(rows), waiting_first=0)


@dataclass(frozen=True, slots=True, eq=False)
class Observed:
    """Traffic of one engine in one window."""

    start: datetime  # when second 0 of the requests' clock was, UTC
    seconds: float
    # sorted by arrival; those that waited or ran at the start arrive at second 0
    requests: Requests
    source: Literal["metrics", "request log"]
    chunks: pl.DataFrame  # :data:`CHUNK_SCHEMA`, in order
    busy_windows: int
    saturated: bool  # requests waited in most scrapes: TTFT cannot be simulated from counts
    prefix_hit_ratio: float | None = None  # hits over queries; None = unknown
    # of the window's buckets, with its cell, as PromQL has it; None = unknown
    ttft_p95_seconds: float | None = None
    tpot_p95_seconds: float | None = None
    notes: tuple[str, ...] = ()  # what is not known and what was taken instead, in words
    # the first so many requests waited or ran at the start; their own TTFT is not that of the
    # server
    carried_requests: int = 0
    # when these came, on the same clock, before second 0; NaN = they had been admitted by then.
    # None = unknown of all.
    came_seconds: Floats | None = None
    waits: Waits | None = None

    @property
    def offered_requests_per_second(self) -> float:
        """Arrivals over the window; those that were there before are none."""
        return (len(self.requests) - self.carried_requests) / self.seconds


_NEXT_EDGE = 2.5
_NAMES = ("prompt_tokens", "generation_tokens")


def reference_requests(
    observed: Observed, reference: Mapping[str, Any], *, seed: int = 0
) -> Requests | None:
    """The requests of a window with the lengths of the reference.

    Where the reference has a histogram, lengths are drawn from it, with its mean; where it has a
    mean alone (``tuned_for``), today's lengths are scaled to it; what it does not have stays as it
    is today. Those that were there at the start, half done, are left out. Prefix hits keep their
    share of the prompt. ``reference``: ``reference_*`` columns; ``reference_prompt_tokens_buckets``
    are cumulative counts by ``reference_prompt_tokens_edges``, +Inf last. Returns None where the
    reference has no length at all.
    """
    arrived = observed.requests.take(slice(observed.carried_requests, None))
    if not len(arrived):
        return None
    rng = np.random.default_rng([seed, 1])
    by_name: dict[str, Integers] = {}
    for name in _NAMES:
        today: Integers = getattr(arrived, name)
        lengths = _lengths(reference, name, today, rng)
        if lengths is not None:
            by_name[name] = lengths
    if not by_name:
        return None
    prompt = by_name.get("prompt_tokens", arrived.prompt_tokens)
    has_count = arrived.cached_tokens >= 0
    share = np.where(has_count, arrived.cached_tokens, 0) / arrived.prompt_tokens
    cached = np.minimum(np.rint(prompt * share).astype(np.int64), prompt - 1)
    shared = np.minimum(arrived.shared_prefix_tokens, prompt)
    return replace(
        arrived,
        prompt_tokens=prompt,
        generation_tokens=by_name.get("generation_tokens", arrived.generation_tokens),
        cached_tokens=np.where(has_count, cached, arrived.cached_tokens),
        shared_prefix_tokens=np.where(arrived.prefix_group == NO_GROUP, 0, shared),
    )


def _lengths(
    reference: Mapping[str, Any], name: str, today: Integers, rng: np.random.Generator
) -> Integers | None:
    """As many lengths of the reference as there are today; None where it has none."""
    mean = reference.get(f"reference_{name}_mean")
    shape = _histogram(reference, name, mean)
    if shape is not None:
        # above the last edge: the next one of vLLM's 1-2-5 series, or what is seen today
        edge = _NEXT_EDGE * shape.edges[-1] if len(shape.edges) else 1.0
        longest = int(max(edge, today.max(), mean or 1))
        return np.maximum(sample_lengths(shape, len(today), rng, longest=longest), 1)
    if mean is None or not mean > 0:
        return None
    scaled = today * (float(mean) / float(today.mean()))
    return np.maximum(np.floor(scaled + rng.random(len(today))).astype(np.int64), 1)


def _histogram(
    reference: Mapping[str, Any], name: str, mean: float | None
) -> LengthHistogram | None:
    buckets = reference.get(f"reference_{name}_buckets")
    edges = reference.get(f"reference_{name}_edges")
    if buckets is None or edges is None or mean is None or len(buckets) != len(edges):
        return None
    counts = np.rint(np.diff(np.asarray(list(buckets), dtype=np.float64), prepend=0.0))
    whole = np.maximum(counts, 0).astype(np.int64)
    if not whole.sum():
        return None
    finite = np.asarray(list(edges)[:-1], dtype=np.float64)
    return LengthHistogram(finite, whole, float(mean) * float(whole.sum()))
