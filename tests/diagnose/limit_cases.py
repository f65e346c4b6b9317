"""Scrapes and rows for the tests of the limits model."""

from __future__ import annotations

import math
from typing import Any

from pipeline_cases import evidence, scrapes, serving, windows


def page(i: int, **changes: Any) -> dict[str, Any]:
    """One of a scrape every 15 s; queued below its limits unless changed."""
    return {
        "t": 15.0 * i,
        "running_requests": 8.0,
        "waiting_requests": 5.0,
        "waiting_capacity_requests": 5.0,
        "waiting_deferred_requests": 0.0,
        "kv_cache_usage_ratio": 0.2,
        "preemptions_total": 0.0,
        "iteration_tokens_count": 100.0 * i,
        "iteration_tokens_sum": 2000.0 * i,
        "generation_tokens_total": 500.0 * i,
    } | changes


IDLE = {"waiting_requests": 0.0, "waiting_capacity_requests": 0.0, "running_requests": 1.0}
AT_CAP = {"running_requests": 64.0}


def row(parts: list[tuple[int, dict[str, Any]]], **settings: Any) -> dict[str, Any]:
    """Ten minutes of scrapes, so many of each kind, as one evidence row."""
    pages: list[dict[str, Any]] = []
    tokens = 0.0
    for n, changes in parts:
        changes = dict(changes)
        per_step = changes.pop("iteration_tokens_sum_per_step", 20.0)
        for _ in range(n):
            tokens += 100.0 * per_step
            pages.append(page(len(pages), iteration_tokens_sum=tokens, **changes))
    frame = scrapes(pages)
    settings = {"max_num_seqs": 64.0, "max_num_batched_tokens": 1024.0} | settings
    found = evidence(frame, windows((0.0, 600.0)), serving(frame, **settings)).to_dicts()
    return dict(found[0])


EDGES = [10.0, 100.0, 1000.0, math.inf]


def lengths(n: int, **changes: Any) -> list[tuple[int, dict[str, Any]]]:
    """n finished requests of 500 prompt and 50 generated tokens over ten minutes."""
    buckets = {"prompt_tokens": [0.0, 0.0, 1.0, 1.0], "generation_tokens": [0.0, 1.0, 1.0, 1.0]}
    of_each = {
        "prompt_tokens_sum": 500.0,
        "prompt_tokens_count": 1.0,
        "generation_tokens_sum": 50.0,
        "generation_tokens_count": 1.0,
        "prefix_cache_queries_total": 500.0,
        "prefix_cache_hits_total": 100.0,
    }
    edges = {f"{name}_edges": EDGES for name in buckets}
    parts = []
    for done in (n * i / 39 for i in range(40)):
        sums = {name: value * done for name, value in of_each.items()}
        cells = {f"{name}_buckets": [one * done for one in b] for name, b in buckets.items()}
        parts.append((1, {**sums, **cells, **edges, **AT_CAP, **changes}))
    return parts
