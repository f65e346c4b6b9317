"""Tokens, steps and finished requests per second."""

from __future__ import annotations

from driftwatch.evidence.schema import NO_REFERENCE, Column, column

THROUGHPUT: tuple[Column, ...] = (
    column(
        "finished_requests",
        "requests",
        "requests finished in the window",
        "prompt_tokens",
        alias=("n",),
    ),
    column(
        "finished_requests_2m", "requests", "requests finished in the last 2 min", "prompt_tokens"
    ),
    column(
        "prefill_decode_ratio",
        "1",
        "computed prompt tokens (cache hits excluded) per generated token",
        "prompt_tokens_computed_total",
        "generation_tokens_total",
    ),
    column(
        "tokens_per_second_per_gpu",
        "tokens/s",
        "generated tokens per second and GPU",
        "generation_tokens_total",
        "DCGM",
        "NVML",
        off="no GPU count: gpus_per_replica not declared, no GPU joined to the target",
        alias=("throughput",),
        needs=("gpu_count",),
    ),
    column(
        "tokens_per_second_per_gpu_ratio",
        "1",
        "the same over the reference; moves with demand, never pages alone",
        "generation_tokens_total",
        off=NO_REFERENCE,
        alias=("throughput",),
        needs=("baseline", "gpu_count"),
    ),
    column(
        "generation_tokens_per_second",
        "tokens/s",
        "generated tokens per second, whole target",
        "generation_tokens_total",
        alias=("throughput",),
    ),
    column(
        "prompt_tokens_per_second",
        "tokens/s",
        "prompt tokens per second, cache hits included",
        "prompt_tokens_total",
    ),
    column(
        "forward_passes_per_second",
        "steps/s",
        "engine steps with an output per second",
        "iteration_tokens",
        alias=("steps per second",),
    ),
    column(
        "forward_passes_overcounted",
        "1",
        "steps are counted once per API server: per-step values are lower bounds",
        "several_api_servers",
        dtype="bool",
    ),
    column(
        "seconds_since_last_token",
        "seconds",
        "how long requests have been present without any work: no token, generated or of a prompt "
        "that was computed, nobody admitted or preempted, running requests and KV cache unmoved; 0 "
        "while none is present or the engine sleeps; unknown where the queue alone moves and no "
        "prefix cache shows who was admitted",
        "generation_tokens_total",
        "prompt_tokens_total",
        "prefix_cache_queries_total",
        "preemptions_total",
        "running_requests",
        "waiting_requests",
        "kv_cache_usage_ratio",
        "engine_awake",
        alias=("stuck",),
        optional=(
            "prompt_tokens_total",
            "prefix_cache_queries_total",
            "preemptions_total",
            "waiting_requests",
            "kv_cache_usage_ratio",
            "engine_awake",
        ),
    ),
)
