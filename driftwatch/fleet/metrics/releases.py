"""What vLLM 0.32 puts on its page, as recorded from a server."""

from __future__ import annotations

from driftwatch.fleet.metrics.families import GROUPS, ONE, REQUEST_TOKENS, ZERO, Family, Style

_TIERS_HELP = (
    "Prefix-cache hit tokens by the cache tier that supplied them: device (local HBM), host "
    "(offloaded to DRAM), disk, p2p (transferred from another vLLM instance) or "
    "external_unspecified. Counted at admission; sums to vllm:prefix_cache_hits + "
    "vllm:external_prefix_cache_hits."
)
_WAITING_HELP = (
    "Number of waiting requests by reason. Reason labels: 'capacity' = waiting for scheduling "
    "capacity; 'deferred' = deferred by transient constraints (LoRA budget, KV transfer, "
    "blocked status). Sum of all reasons equals vllm:num_requests_waiting."
)
_SLEEP_HELP = (
    "Engine sleep state; awake = 0 means engine is sleeping; awake = 1 means engine is awake; "
    "weights_offloaded = 1 means sleep level 1; discard_all = 1 means sleep level 2."
)
_REJECTED_HELP = "Number of admission attempts rejected by a queue limit, by reason."
_SUCCESS_HELP = "Count of successfully processed requests."
_KV_COMPUTED_HELP = "Histogram of new KV tokens computed during prefill (excluding cached tokens)."
_QUEUED = "in terms of number of queried"
_CACHED = "in terms of number of cached"
_PER_GPU = "per GPU (for Model Flops Utilization calculations)."
_EXTERNAL = "External prefix cache {} from KV connector cross-instance cache sharing, "
_PHASE = "Histogram of time spent in {} phase for request."


def _counter(name: str, text: str, *columns: str, label: str = "", values: str = "") -> Family:
    labels = tuple(values.split()) or ("",)
    return Family(f"vllm:{name}", "counter", text, columns, label, labels)


def _gauge(name: str, text: str, *columns: str, label: str = "", values: str = "") -> Family:
    labels = tuple(values.split()) or ("",)
    return Family(f"vllm:{name}", "gauge", text, columns, label, labels, created=False)


def _histogram(name: str, text: str, column: str, group: str) -> Family:
    return Family(f"vllm:{name}", "histogram", text, (column,), group=group)


def _success(reasons: str) -> Family:
    columns = {"stop": "finished_stop", "length": "finished_length"}
    of_reason = (columns.get(reason, ZERO) for reason in reasons.split())
    return _counter(
        "request_success", _SUCCESS_HELP, *of_reason, label="finished_reason", values=reasons
    )


# families in the order of the page: name, HELP, columns; of histograms the group of edges
# fmt: off
_FAMILIES = (
    *(
        _counter(f"estimated_{name}_per_gpu", f"Estimated number of {text} {_PER_GPU}", ZERO)
        for name, text in (
            ("flops", "floating point operations"),
            ("read_bytes", "bytes read from memory"),
            ("write_bytes", "bytes written to memory"),
        )
    ),
    _gauge("num_requests_running", "Number of requests in model execution batches.", "running"),
    _gauge("num_requests_waiting", "Number of requests waiting to be processed.", "waiting"),
    _gauge("num_requests_waiting_by_reason", _WAITING_HELP, "waiting_capacity", "waiting_deferred",
        label="reason", values="capacity deferred"),
    _gauge("engine_sleep_state", _SLEEP_HELP, ONE, ZERO, ZERO,
        label="sleep_state", values="awake weights_offloaded discard_all"),
    _gauge("kv_cache_usage_perc", "KV-cache usage. 1 means 100 percent usage.",
        "kv_cache_usage_ratio"),
    _counter("prefix_cache_queries", f"Prefix cache queries, {_QUEUED} tokens.", "prefix_queries"),
    _counter("prefix_cache_hits", f"Prefix cache hits, {_CACHED} tokens.", "prefix_hits"),
    _counter("external_prefix_cache_queries", f"{_EXTERNAL.format('queries')}{_QUEUED} tokens.",
        ZERO),
    _counter("external_prefix_cache_hits", f"{_EXTERNAL.format('hits')}{_CACHED} tokens.", ZERO),
    _counter("mm_cache_queries", f"Multi-modal cache queries, {_QUEUED} items.", ZERO),
    _counter("mm_cache_hits", f"Multi-modal cache hits, {_CACHED} items.", ZERO),
    _counter("num_preemptions", "Cumulative number of preemption from the engine.", "preemptions"),
    _counter("prompt_tokens", "Number of prefill tokens processed.", "prompt_tokens"),
    _counter("prompt_tokens_by_source", "Number of prompt tokens by source.",
        "prompt_tokens_computed", "prompt_tokens_cached", ZERO,
        label="source", values="local_compute local_cache_hit external_kv_transfer"),
    _counter("prompt_tokens_cached", "Number of cached prompt tokens (local + external).",
        "prompt_tokens_cached"),
    _counter("prompt_tokens_cached_by_source", _TIERS_HELP, "prefix_hits", ZERO, ZERO, ZERO, ZERO,
        label="source", values="device host p2p disk external_unspecified"),
    _counter("generation_tokens", "Number of generation tokens processed.", "generation_tokens"),
    _success("stop length abort error repetition"),
    Family("vllm:admission_rejections", "counter", _REJECTED_HELP,
        ("rejected_reqs", "rejected_tokens"), "reason",
        ("max_num_queued_reqs", "max_num_queued_tokens"), scope="model"),
    _histogram("request_prompt_tokens", "Number of prefill tokens processed.",
        "request_prompt_tokens", REQUEST_TOKENS),
    _histogram("request_generation_tokens", "Number of generation tokens processed.",
        "request_generation_tokens", REQUEST_TOKENS),
    _histogram("iteration_tokens_total", "Histogram of number of tokens per engine_step.",
        "iteration_tokens", "iteration_tokens"),
    _histogram("request_max_num_generation_tokens",
        "Histogram of maximum number of requested generation tokens.",
        "request_max_num_generation_tokens", REQUEST_TOKENS),
    _histogram("request_params_n", "Histogram of the n request parameter.",
        "request_params_n", "request_params_n"),
    _histogram("request_params_max_tokens", "Histogram of the max_tokens request parameter.",
        "request_params_max_tokens", REQUEST_TOKENS),
    _histogram("time_to_first_token_seconds", "Histogram of time to first token in seconds.",
        "ttft_seconds", "time_to_first_token"),
    _histogram("inter_token_latency_seconds", "Histogram of inter-token latency in seconds.",
        "itl_seconds", "inter_token_latency"),
    _histogram("request_time_per_output_token_seconds",
        "Histogram of time_per_output_token_seconds per request.",
        "tpot_seconds", "inter_token_latency"),
    _histogram("e2e_request_latency_seconds", "Histogram of e2e request latency in seconds.",
        "e2e_seconds", "request_latency"),
    *(
        _histogram(f"request_{name}_time_seconds", _PHASE.format(phase), f"{name}_seconds",
            "request_latency")
        for name, phase in (
            ("queue", "WAITING"),
            ("inference", "RUNNING"),
            ("prefill", "PREFILL"),
            ("decode", "DECODE"),
        )
    ),
    _histogram("request_num_preemptions",
        "Histogram of the number of times a request was preempted.",
        "request_num_preemptions", "request_num_preemptions"),
    _histogram("request_prefill_kv_computed_tokens", _KV_COMPUTED_HELP,
        "request_prefill_kv_computed_tokens", REQUEST_TOKENS),
)
# fmt: on


# labels of cache_config_info that do not follow from the scheduler's settings
_INFO = {
    "_block_size_resolved": "True",
    "cache_dtype": "auto",
    "enable_mamba_shared_prefix_checkpoint": "False",
    "gpu_memory_utilization": "0.92",
    "is_attention_free": "False",
    "kv_cache_dtype_skip_layers": "[]",
    "kv_offloading_backend": "native",
    "kv_sharing_fast_prefill": "False",
    "mamba_cache_dtype": "auto",
    "mamba_cache_mode": "none",
    "mamba_ssm_cache_dtype": "float32",
    "prefix_cache_retention_interval": "0",
    "prefix_caching_hash_algo": "sha256",
    "replayssm_buffer_len": "16",
    "swa_bounded_replay": "True",
    "use_kda_recoverssm": "False",
    "use_replayssm": "False",
    "user_specified_block_size": "True",
} | dict.fromkeys(
    (
        *("cache_hit_alignment_tokens", "hash_block_size", "kv_cache_layout", "sliding_window"),
        *("kv_cache_memory_bytes", "kv_offloading_size", "mamba_block_size", "num_cpu_blocks"),
        *("mamba_page_size_padded", "num_gpu_blocks_override", "prefix_match_unit"),
        "skip_page_size_padded",
    ),
    "None",
)

V0_32 = Style("0.32", _FAMILIES, groups=GROUPS, info_labels=_INFO)
