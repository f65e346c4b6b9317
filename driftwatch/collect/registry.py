"""What vLLM calls each metric, by version: the only place that knows wire names.

Sources: vLLM 0.32 ``v1/metrics/loggers.py`` and recorded pages; renames from PR#18354, #29330
(``gpu_cache_usage_perc``), #24110, #32661 (``time_per_output_token_seconds``), #12383.
Wire names are as on the wire: the client library appends ``_total`` to counters, and
``vllm:iteration_tokens_total`` is a histogram in spite of its name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

MetricType = Literal["counter", "gauge", "histogram", "info"]


@dataclass(frozen=True, slots=True)
class OldName:
    """A name the same quantity had."""

    wire_name: str  # name on the wire
    until: str  # last vLLM release line that served it


@dataclass(frozen=True, slots=True)
class Metric:
    """One quantity that driftwatch reads."""

    # its column in the scrape table; a histogram has ``<column>_sum``, ``_count``, ``_buckets`` and
    # ``_edges``
    column: str
    wire_name: str  # name on the wire (a histogram's family name)
    type: MetricType  # Prometheus type
    unit: str  # base unit of the value
    meaning: str  # one line
    since: str = "0.6"  # first vLLM release with this name, ``0.6`` where it was always there.
    until: str | None = None  # last release with it, None while it is served
    old_names: tuple[OldName, ...] = ()  # names it had before, newest first
    labels: tuple[tuple[str, str], ...] = ()  # only series with these label values count
    sum_over: tuple[str, ...] = ()  # labels that are summed away (one column for all their values)
    per_engine: bool = True  # False where the series carries no ``engine`` label

    @property
    def largest(self) -> float:
        """Above it a number is none of this metric's: see :data:`LARGEST`."""
        return LARGEST.get(self.unit, LARGEST_EXACT)


# Above 2**53 a float64 skips whole numbers: two scrapes of a counter have no difference.
LARGEST_EXACT = 2.0**53
# Largest value that a unit leaves room for: unix seconds end with the year 9999, as datetimes do.
LARGEST: Mapping[str, float] = {"unix seconds": 253_402_300_799.0}

_KV_OLD = (OldName("vllm:gpu_cache_usage_perc", "0.11"),)

REGISTRY: tuple[Metric, ...] = (
    # gauges: updated once per engine step, after finished requests have left
    Metric(
        "running_requests",
        "vllm:num_requests_running",
        "gauge",
        "requests",
        "requests in the scheduler's running set after the step",
    ),
    Metric(
        "waiting_requests",
        "vllm:num_requests_waiting",
        "gauge",
        "requests",
        "requests not yet scheduled, for any reason",
    ),
    Metric(
        "waiting_capacity_requests",
        "vllm:num_requests_waiting_by_reason",
        "gauge",
        "requests",
        "requests waiting for scheduling capacity",
        since="0.15",
        labels=(("reason", "capacity"),),
    ),
    Metric(
        "waiting_deferred_requests",
        "vllm:num_requests_waiting_by_reason",
        "gauge",
        "requests",
        "requests deferred by LoRA slots, KV transfer or grammar",
        since="0.15",
        labels=(("reason", "deferred"),),
    ),
    Metric(
        "kv_cache_usage_ratio",
        "vllm:kv_cache_usage_perc",
        "gauge",
        "ratio",
        "share of KV blocks in use; cached but unreferenced blocks count as free",
        since="0.9",
        old_names=_KV_OLD,
    ),
    Metric(
        "engine_awake",
        "vllm:engine_sleep_state",
        "gauge",
        "1",
        "1 while the engine is awake, 0 while it sleeps (weights offloaded or discarded)",
        since="0.11",
        labels=(("sleep_state", "awake"),),
    ),
    # counters
    Metric(
        "prompt_tokens_total",
        "vllm:prompt_tokens_total",
        "counter",
        "tokens",
        "prompt tokens, cache hits included, booked at the first token",
    ),
    Metric(
        "prompt_tokens_computed_total",
        "vllm:prompt_tokens_by_source_total",
        "counter",
        "tokens",
        "prompt tokens computed, cache hits excluded",
        since="0.13",
        labels=(("source", "local_compute"),),
    ),
    Metric(
        "prompt_tokens_transferred_total",
        "vllm:prompt_tokens_by_source_total",
        "counter",
        "tokens",
        "prompt tokens whose KV cache came from a KV connector",
        since="0.13",
        labels=(("source", "external_kv_transfer"),),
    ),
    Metric(
        "generation_tokens_total",
        "vllm:generation_tokens_total",
        "counter",
        "tokens",
        "generated tokens",
    ),
    Metric(
        "finished_requests_total",
        "vllm:request_success_total",
        "counter",
        "requests",
        "finished requests, every reason",
        sum_over=("finished_reason",),
    ),
    Metric(
        "aborted_requests_total",
        "vllm:request_success_total",
        "counter",
        "requests",
        "requests finished by abort (client disconnects are mostly not counted by vLLM)",
        labels=(("finished_reason", "abort"),),
    ),
    Metric(
        "rejected_requests_total",
        "vllm:admission_rejections_total",
        "counter",
        "requests",
        "503 answers of max_num_queued_reqs and max_num_queued_tokens",
        since="0.31",
        sum_over=("reason",),
        per_engine=False,
    ),
    Metric(
        "preemptions_total",
        "vllm:num_preemptions_total",
        "counter",
        "preemptions",
        "requests thrown out of the running set and recomputed",
    ),
    Metric(
        "prefix_cache_queries_total",
        "vllm:prefix_cache_queries_total",
        "counter",
        "tokens",
        "prompt tokens looked up in the prefix cache",
        since="0.9",
        old_names=(OldName("vllm:gpu_prefix_cache_queries_total", "0.11"),),
    ),
    Metric(
        "prefix_cache_hits_total",
        "vllm:prefix_cache_hits_total",
        "counter",
        "tokens",
        "prompt tokens found in the prefix cache",
        since="0.9",
        old_names=(OldName("vllm:gpu_prefix_cache_hits_total", "0.11"),),
    ),
    Metric(
        "external_prefix_cache_hits_total",
        "vllm:external_prefix_cache_hits_total",
        "counter",
        "tokens",
        "prompt tokens that a KV connector found outside of the engine's own prefix cache",
        since="0.11",
    ),
    Metric(
        "spec_decode_draft_tokens_total",
        "vllm:spec_decode_num_draft_tokens_total",
        "counter",
        "tokens",
        "tokens drafted by speculative decoding; absent without it",
        since="0.9",
    ),
    Metric(
        "spec_decode_accepted_tokens_total",
        "vllm:spec_decode_num_accepted_tokens_total",
        "counter",
        "tokens",
        "drafted tokens that were accepted",
        since="0.9",
    ),
    # histograms
    Metric(
        "iteration_tokens",
        "vllm:iteration_tokens_total",
        "histogram",
        "tokens",
        "tokens of an engine step; steps that only prefill are not observed, buckets are "
        "wrong under chunked prefill, the sum is right",
    ),
    Metric(
        "prompt_tokens",
        "vllm:request_prompt_tokens",
        "histogram",
        "tokens",
        "prompt length, observed when the request finishes",
    ),
    Metric(
        "generation_tokens",
        "vllm:request_generation_tokens",
        "histogram",
        "tokens",
        "generation length, observed when the request finishes",
    ),
    Metric(
        "ttft_seconds",
        "vllm:time_to_first_token_seconds",
        "histogram",
        "seconds",
        "time to first token, observed at the first token",
    ),
    Metric(
        "itl_seconds",
        "vllm:inter_token_latency_seconds",
        "histogram",
        "seconds",
        "time between two outputs of a request",
        since="0.11",
        old_names=(OldName("vllm:time_per_output_token_seconds", "0.12"),),
    ),
    Metric(
        "tpot_seconds",
        "vllm:request_time_per_output_token_seconds",
        "histogram",
        "seconds",
        "mean time per output token of a finished request",
        since="0.11",
    ),
    Metric(
        "e2e_seconds",
        "vllm:e2e_request_latency_seconds",
        "histogram",
        "seconds",
        "end-to-end time of a finished request",
    ),
    Metric(
        "queue_seconds",
        "vllm:request_queue_time_seconds",
        "histogram",
        "seconds",
        "first queued to first scheduled; re-queueing after preemption is not in it",
    ),
    Metric(
        "prefill_seconds",
        "vllm:request_prefill_time_seconds",
        "histogram",
        "seconds",
        "first scheduled to first token",
    ),
    Metric(
        "decode_seconds",
        "vllm:request_decode_time_seconds",
        "histogram",
        "seconds",
        "first token to last token",
    ),
    # info: labels are the value
    Metric(
        "cache_config",
        "vllm:cache_config_info",
        "info",
        "labels",
        "KV cache configuration as labels; the newest series counts, a changed set is a "
        "configuration change",
    ),
    # the process, not the engine
    Metric(
        "process_start_time_seconds",
        "process_start_time_seconds",
        "gauge",
        "unix seconds",
        "start of the API server process; absent with several API servers",
        per_engine=False,
    ),
    Metric(
        "created_seconds",
        "vllm:generation_tokens_created",
        "gauge",
        "unix seconds",
        "when the engine's counters were made; absent with several API servers",
    ),
)

BY_COLUMN: dict[str, Metric] = {metric.column: metric for metric in REGISTRY}


def wire_names() -> dict[str, tuple[Metric, ...]]:
    """Every family name on the wire, current or old → the metrics read from it."""
    found: dict[str, tuple[Metric, ...]] = {}
    for metric in REGISTRY:
        for name in (metric.wire_name, *(old.wire_name for old in metric.old_names)):
            found[name] = (*found.get(name, ()), metric)
    return found


GAUGES = tuple(m.column for m in REGISTRY if m.type == "gauge")
COUNTERS = tuple(m.column for m in REGISTRY if m.type == "counter")
HISTOGRAMS = tuple(m.column for m in REGISTRY if m.type == "histogram")
