"""A row of ``driftwatch simulate --scrapes`` as the page that it stands for.

The simulator counts seconds from its own beginning, so that its first day is 1970-01-01.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

_LABELS = 'engine="0",model_name="simulated"'
_SCALARS = {
    "running": "num_requests_running",
    "kv_cache_usage_ratio": "kv_cache_usage_perc",
    "prompt_tokens": "prompt_tokens_total",
    "generation_tokens": "generation_tokens_total",
    "preemptions": "num_preemptions_total",
    "prefix_queries_tokens": "prefix_cache_queries_total",
    "prefix_hits_tokens": "prefix_cache_hits_total",
}
_HISTOGRAMS = {
    "iteration_tokens": "iteration_tokens_total",
    "itl_seconds": "inter_token_latency_seconds",
}


def is_simulated(fields: Mapping[str, Any]) -> bool:
    """A row of a simulated server's scrapes, not of recorded pages."""
    return "t" not in fields and {"time_seconds", "running", "steps_all"} <= fields.keys()


def simulated_page(fields: Mapping[str, Any]) -> str:
    """The page, in Prometheus' text format, of what the simulator counts.

    Raises:
        KeyError, TypeError: a column is missing, or no number.
    """
    return "\n".join([*_lines(fields), ""])


def _lines(fields: Mapping[str, Any]) -> Iterator[str]:
    yield "process_start_time_seconds 0"
    yield f"vllm:generation_tokens_created{{{_LABELS}}} 0"
    for column, name in _SCALARS.items():
        if fields[column] is not None:  # KV usage of a cache whose blocks are not known
            yield f"vllm:{name}{{{_LABELS}}} {fields[column]}"
    capacity, deferred = fields["waiting_capacity"], fields["waiting_deferred"]
    yield f"vllm:num_requests_waiting{{{_LABELS}}} {capacity + deferred}"
    for reason, count in (("capacity", capacity), ("deferred", deferred)):
        yield f'vllm:num_requests_waiting_by_reason{{{_LABELS},reason="{reason}"}} {count}'
    computed = fields["prompt_tokens_computed"]
    yield f'vllm:prompt_tokens_by_source_total{{{_LABELS},source="local_compute"}} {computed}'
    finished = fields["request_success_total"]
    yield f'vllm:request_success_total{{{_LABELS},finished_reason="stop"}} {finished}'
    for column in fields:
        if column.endswith("_edges"):
            yield from _histogram(fields, column.removesuffix("_edges"))


def _histogram(fields: Mapping[str, Any], column: str) -> Iterator[str]:
    """Cumulative buckets, the last of them +Inf, then sum and count."""
    name = f"vllm:{_HISTOGRAMS.get(column, column)}"
    edges, buckets = fields[f"{column}_edges"], fields[f"{column}_buckets"]
    for edge, count in zip((*edges, "+Inf"), buckets, strict=True):
        yield f'{name}_bucket{{{_LABELS},le="{edge}"}} {count}'
    yield f"{name}_sum{{{_LABELS}}} {fields[f'{column}_sum']}"
    yield f"{name}_count{{{_LABELS}}} {buckets[-1]}"
