"""Requests that would have left what a server's minutes say, and what came of them."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import numpy as np
import polars as pl

from driftwatch.arrays import Floats
from driftwatch.errors import NoVerdict
from driftwatch.recommend.traffic.arrivals import Flows, flows
from driftwatch.recommend.traffic.lengths import (
    NAMES,
    Lengths,
    histograms_of,
    lengths,
    running_start,
)
from driftwatch.recommend.traffic.observed import Observed, Server
from driftwatch.recommend.traffic.stretch import (
    Clean,
    cached_tokens,
    chunks_of,
    clean,
    hit_ratios,
    p95_of,
    whole_hit_ratio,
)
from driftwatch.recommend.traffic.waits import waits_of
from driftwatch.simulate.requests import NEVER, Requests, make_requests

Source = Literal["metrics", "request log"]
# In most scrapes: a row in which, on average, every second scrape sees one waiting counts.
_WAITING_AT_LEAST = 0.5
_MOST = 0.5
_DEFAULT_BLOCK_TOKENS = 16
# Later than any window: a client that left is known by it, and when he left is not.
WHO_LEFT_SECONDS = 1e15
EVENLY = "arrivals inside a minute: spread evenly"
_PAIRED_BY_CHANCE = "which prompt had which generation: by chance"
_PAIRED_BY_KV = "which prompt had which generation: so that the KV cache is as full as observed"


def observed_from_minutes(minutes: pl.DataFrame, server: Server, *, seed: int = 0) -> Observed:
    """Traffic rebuilt from minutes.

    Arrivals are first tokens less the times to them (:mod:`.flows`), drawn evenly inside a row.
    Lengths are those of the histograms, to the token (:mod:`.lengths`). Requests that ran at the
    start arrive at second 0 with their rest: what they had is a cached prompt. Those that waited
    arrive at second 0 behind them. ``minutes``: :data:`driftwatch.signals.minutes.MINUTE_SCHEMA` of
    one engine; the longest clean stretch up to the last row counts; ``server``: for the longest
    request that can be, and the size of a block. Raises NoVerdict: naming what is missing.
    """
    stretch = clean(minutes)
    rng = np.random.default_rng(seed)
    counts = flows(stretch, rng)
    longest, bound = longest_request(server, stretch)
    rebuilt = lengths(stretch, counts, rng, server=server, longest=longest)
    hits, hits_note = hit_ratios(stretch)
    requests, carried = _requests(stretch, counts, rebuilt, hits, server, rng)
    notes = [
        *stretch.notes,
        *counts.notes,
        EVENLY,
        _PAIRED_BY_KV if rebuilt.paired else _PAIRED_BY_CHANCE,
    ]
    if bound is not None and int(rebuilt.prompt_tokens.max()) > 0:
        notes.append(bound)
    if rebuilt.clipped:
        notes.append(
            f"{rebuilt.clipped} minutes' sums of lengths contradict their buckets: clipped"
        )
    if hits_note is not None:
        notes.append(hits_note)
    observed = observed_of(stretch, requests, carried, "metrics", tuple(notes))
    return replace(observed, waits=waits_of(stretch, counts.waiting_first, seed))


def observed_of(
    stretch: Clean, requests: Requests, carried: int, source: Source, notes: tuple[str, ...]
) -> Observed:
    """Requests beside what the stretch says of them."""
    return Observed(
        start=stretch.start,
        seconds=stretch.seconds,
        requests=requests,
        source=source,
        chunks=chunks_of(stretch),
        busy_windows=busy_minutes(stretch),
        saturated=is_saturated(stretch),
        prefix_hit_ratio=whole_hit_ratio(stretch),
        ttft_p95_seconds=p95_of(stretch, "ttft_seconds"),
        tpot_p95_seconds=p95_of(stretch, "tpot_seconds"),
        notes=notes,
        carried_requests=carried,
    )


def _next_edge(stretch: Clean) -> int | None:
    """The bucket edge that max_model_len does not reach."""
    series = [float(m * 10**k) for k in range(10) for m in (1, 2, 5)]
    edges: set[int] = set()
    for name in NAMES:
        for one in histograms_of(stretch, name):
            many = len(one.edges)
            if not many or many == len(series) or list(one.edges) != series[:many]:
                return None
            if one.total_tokens > one.counts @ np.array(series[: many + 1]):
                return None
            edges.add(int(series[many]))
    return edges.pop() if len(edges) == 1 else None


def longest_request(server: Server, stretch: Clean) -> tuple[int | None, str | None]:
    """Most tokens of one request, and a note where that is not max_model_len.

    vLLM's buckets of lengths rise 1, 2, 5, 10, … as far as max_model_len goes
    (``build_1_2_5_buckets`` in vLLM ``v1/metrics``): it is below the one that would come next.
    """
    if server.serving.max_model_len is not None:
        return int(server.serving.max_model_len.value), None
    following = _next_edge(stretch)
    if following is not None:
        return following - 1, (
            f"max_model_len unknown: below {following:,} tokens, or the buckets of lengths would "
            "go on"
        )
    if server.num_gpu_blocks is not None and server.block_size is not None:
        cache_tokens = (server.num_gpu_blocks - 1) * server.block_size
        return (
            cache_tokens,
            "max_model_len unknown: no request can be longer than the KV cache, "
            f"{cache_tokens:,} tokens",
        )
    return None, None


def is_saturated(stretch: Clean) -> bool:
    """Requests waited for capacity in most scrapes.

    By the rows' means, and, where it is known, by the share of the scrapes themselves.
    """
    capacity = stretch.column("waiting_capacity_requests")
    waiting = np.where(np.isnan(capacity), stretch.column("waiting_requests"), capacity)
    seconds = np.diff(stretch.edges)
    if np.isnan(waiting).all():
        return False
    queued = float(seconds[waiting >= _WAITING_AT_LEAST].sum()) / float(seconds.sum())
    if queued <= _MOST:
        return False
    share = stretch.column("limit_binding_share_10m_ratio")
    # each looks ten minutes back: those of the stretch alone, where it is that long
    inside = share[stretch.edges[1:] >= 600.0]
    inside = inside if len(inside) else share[-1:]
    shares = inside[~np.isnan(inside)]
    return not len(shares) or float(shares.mean()) > _MOST


def _requests(
    stretch: Clean,
    counts: Flows,
    rebuilt: Lengths,
    hits: Floats,
    server: Server,
    rng: np.random.Generator,
) -> tuple[Requests, int]:
    """All requests, and how many of them were there before."""
    block = server.block_size or _DEFAULT_BLOCK_TOKENS
    row = np.clip(
        np.searchsorted(stretch.edges, counts.came_at, side="right") - 1, 0, len(hits) - 1
    )
    carried = counts.running_first + counts.waiting_first
    arrival = np.concatenate((np.zeros(carried), counts.came_at))
    count = min(len(arrival), len(rebuilt.prompt_tokens))
    if count == 0:
        raise NoVerdict("no request came in the window")
    running = len(rebuilt.done_tokens)
    start = running_start(
        rebuilt.prompt_tokens[:running], rebuilt.generation_tokens[:running], rebuilt.done_tokens
    )
    ratio = np.concatenate((np.full(carried - running, hits[0]), hits[row]))
    prompt = rebuilt.prompt_tokens[running:count]
    cached = cached_tokens(prompt, ratio[: len(prompt)], block, rng)
    return make_requests(
        arrival[:count],
        np.concatenate((start.prompt_tokens, prompt)),
        np.concatenate((start.generation_tokens, rebuilt.generation_tokens[running:count])),
        cached_tokens=np.concatenate((start.cached_tokens, cached)),
        cancel_seconds=np.where(rebuilt.abandoned[:count], WHO_LEFT_SECONDS, NEVER),
    ), min(carried, count)


def busy_minutes(stretch: Clean) -> int:
    """Minutes in which a request was served; a roll-up counts as the minutes it stands for."""
    served = stretch.column("generation_tokens_total")
    served = np.where(np.isnan(served), stretch.column("generation_tokens_count"), served)
    minutes = np.maximum(np.rint(np.diff(stretch.edges) / 60.0), 1.0)
    return int(minutes[np.nan_to_num(served) > 0].sum())
