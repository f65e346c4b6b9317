"""Old pages: vLLM 0.8 with the V1 engine, and the V0 engine that it replaced.

Facts from vLLM's own sources: ``v1/metrics/loggers.py`` of the 0.8 line, and
``engine/metrics.py`` (V0; commit 00c33e8). V0 has no ``engine`` label, no queue, prefill or
decode times, no step histogram, and switches ``_created`` off.
"""

from __future__ import annotations

from driftwatch.fleet.families import GROUPS, ZERO, Family, Style
from driftwatch.fleet.families_0_32 import V0_32

_NEW = {family.name.removeprefix("vllm:"): family for family in V0_32.families}


def _gauge(name: str, told: str, column: str) -> Family:
    return Family(f"vllm:{name}", "gauge", told, (column,), created=False)


def _counter(name: str, told: str, column: str) -> Family:
    return Family(f"vllm:{name}", "counter", told, (column,))


def _histogram(name: str, told: str, column: str, group: str) -> Family:
    return Family(f"vllm:{name}", "histogram", told, (column,), group=group)


def _success(reasons: tuple[str, ...]) -> Family:
    columns = {"stop": "finished_stop", "length": "finished_length"}
    return Family(
        "vllm:request_success",
        "counter",
        _NEW["request_success"].help,
        tuple(columns.get(reason, ZERO) for reason in reasons),
        "finished_reason",
        reasons,
    )


_KV = _gauge(
    "gpu_cache_usage_perc",
    "GPU KV-cache usage. 1 means 100 percent usage.",
    "kv_cache_usage_ratio",
)
_TPOT = "Histogram of time per output token in seconds."

# 0.8 counts blocks of the prefix cache, not tokens (tokens since 0.9)
V0_8 = Style(
    "0.8",
    (
        _NEW["num_requests_running"],
        _NEW["num_requests_waiting"],
        _KV,
        _counter(
            "gpu_prefix_cache_queries",
            "GPU prefix cache queries, in terms of number of queried blocks.",
            "prefix_queries",
        ),
        _counter(
            "gpu_prefix_cache_hits",
            "GPU prefix cache hits, in terms of number of cached blocks.",
            "prefix_hits",
        ),
        _NEW["num_preemptions"],
        _NEW["prompt_tokens"],
        _NEW["generation_tokens"],
        _success(("stop", "length", "abort")),
        _NEW["request_prompt_tokens"],
        _NEW["request_generation_tokens"],
        _NEW["iteration_tokens_total"],
        _NEW["request_max_num_generation_tokens"],
        _NEW["request_params_n"],
        _NEW["request_params_max_tokens"],
        _NEW["time_to_first_token_seconds"],
        _histogram("time_per_output_token_seconds", _TPOT, "itl_seconds", "inter_token_latency"),
        _NEW["e2e_request_latency_seconds"],
        _NEW["request_queue_time_seconds"],
        _NEW["request_inference_time_seconds"],
        _NEW["request_prefill_time_seconds"],
        _NEW["request_decode_time_seconds"],
        _counter("spec_decode_num_draft_tokens", "Number of draft tokens.", ZERO),
        _counter("spec_decode_num_accepted_tokens", "Number of accepted tokens.", ZERO),
    ),
    # the default CUDA graph sizes, which 0.8 takes for the edges of iteration_tokens_total
    groups={
        **GROUPS,
        "iteration_tokens": (1.0, 2.0, 4.0, *(float(size) for size in range(8, 513, 8))),
    },
    info_labels={
        "cache_dtype": "auto",
        "calculate_kv_scales": "False",
        "cpu_offload_gb": "0",
        "gpu_memory_utilization": "0.9",
        "is_attention_free": "False",
        "num_cpu_blocks": "None",
        "num_gpu_blocks_override": "None",
        "sliding_window": "None",
        "swap_space_bytes": "4294967296",
    },
    info_engine_label=False,
    cached_in_iteration=True,
    prefix_in_blocks=True,
    custom_buckets=False,
)

V0 = Style(
    "V0",
    (
        _gauge("num_requests_running", "Number of requests currently running on GPU.", "running"),
        _NEW["num_requests_waiting"],
        _gauge("num_requests_swapped", "Number of requests swapped to CPU.", ZERO),
        _KV,
        _gauge("cpu_cache_usage_perc", "CPU KV-cache usage. 1 means 100 percent usage.", ZERO),
        _NEW["num_preemptions"],
        _NEW["prompt_tokens"],
        _NEW["generation_tokens"],
        _NEW["time_to_first_token_seconds"],
        _histogram("time_per_output_token_seconds", _TPOT, "itl_seconds", "inter_token_latency"),
        _histogram(
            "e2e_request_latency_seconds",
            "Histogram of end to end request latency in seconds.",
            "e2e_seconds",
            "request_latency",
        ),
        _NEW["request_prompt_tokens"],
        _NEW["request_generation_tokens"],
        _histogram(
            "request_params_best_of",
            "Histogram of the best_of request parameter.",
            "request_params_best_of",
            "request_params_n",
        ),
        _NEW["request_params_n"],
        _success(("stop", "length")),
        _gauge(
            "avg_prompt_throughput_toks_per_s",
            "Average prefill throughput in tokens/s.",
            "prompt_tokens_per_second",
        ),
        _gauge(
            "avg_generation_throughput_toks_per_s",
            "Average generation throughput in tokens/s.",
            "generation_tokens_per_second",
        ),
    ),
    groups={
        "request_params_n": GROUPS["request_params_n"],
        "time_to_first_token": GROUPS["time_to_first_token"][:16],
        "inter_token_latency": GROUPS["inter_token_latency"][:13],
        "request_latency": (1.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0),
        "http_highr": GROUPS["http_highr"],
        "http_by_handler": GROUPS["http_by_handler"],
    },
    info_labels={
        "cache_dtype": "auto",
        "cpu_offload_gb": "0",
        "gpu_memory_utilization": "0.9",
        "is_attention_free": "False",
        "num_cpu_blocks": "2048",
        "num_gpu_blocks_override": "None",
        "sliding_window": "None",
        "swap_space_bytes": "4294967296",
    },
    engine_label=False,
    info_engine_label=False,
    created=False,
    info_first=True,
    cached_in_iteration=True,
    custom_buckets=False,
)

STYLES = {style.version: style for style in (V0_32, V0_8, V0)}
