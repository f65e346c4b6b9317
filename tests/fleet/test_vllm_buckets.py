"""The edges of vLLM's histograms."""

from __future__ import annotations

import re
from pathlib import Path

from driftwatch.fleet import vllm_buckets


def test_edges_are_those_of_the_recorded_server(shared_data: Path) -> None:
    """le of the real pages, so that what is written reads like what is scraped."""

    page = (shared_data / "vllm-0.32" / "metrics_after_load.txt").read_text()
    for family, edges in {
        "time_to_first_token_seconds": vllm_buckets.TIME_TO_FIRST_TOKEN_SECONDS,
        "inter_token_latency_seconds": vllm_buckets.INTER_TOKEN_LATENCY_SECONDS,
        "e2e_request_latency_seconds": vllm_buckets.REQUEST_LATENCY_SECONDS,
        "request_queue_time_seconds": vllm_buckets.REQUEST_LATENCY_SECONDS,
        "request_time_per_output_token_seconds": vllm_buckets.INTER_TOKEN_LATENCY_SECONDS,
        "iteration_tokens_total": vllm_buckets.ITERATION_TOKENS,
        "request_num_preemptions": vllm_buckets.NUM_PREEMPTIONS,
        "request_prompt_tokens": vllm_buckets.request_tokens(8192),
        "request_params_n": vllm_buckets.PARAMS_N,
    }.items():
        recorded = re.findall(rf'^vllm:{family}_bucket{{.*le="([0-9.]+)"', page, re.M)
        assert tuple(map(float, recorded)) == edges, family
