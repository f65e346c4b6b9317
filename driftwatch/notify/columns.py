"""Which evidence columns a page carries, and what they are called in a line of text.

As data: a page with all hundred columns is read by nobody. Besides these a page carries every
column that its path was decided on.
"""

from __future__ import annotations

from collections.abc import Mapping

_ALWAYS = (
    "duration_seconds",
    "observed_10m_seconds",
    "scrapes",
    "requests_per_second",
    "running_requests",
    "effective_batch_size",
    "requests_per_forward_pass",
    "waiting_requests",
    "kv_cache_usage_ratio",
    "prompt_tokens_mean",
    "generation_tokens_mean",
    "finished_requests",
    "max_num_seqs",
    "max_num_seqs_inferred",
    "max_num_batched_tokens",
    "restarted",
)
_LENGTHS = (
    "prompt_tokens_mean_ratio",
    "prompt_tokens_mean_2m_ratio",
    "generation_tokens_mean_ratio",
    "generation_tokens_mean_2m_ratio",
    "finished_requests_2m",
    "requests_per_second_ratio",
)
_USUAL = ("prompt_tokens_usual_ratio", "generation_tokens_usual_ratio")
_COST = (
    "batch_assembly_wait_10m_seconds",
    "ttft_10m_seconds",
    "queue_wait_estimate_10m_seconds",
    "queue_share_of_ttft_10m_ratio",
    "slo_missed",
    "ttft_in_target_10m_ratio",
    "tpot_in_target_10m_ratio",
    "itl_seconds_mean",
    "tpot_seconds_mean",
    "generation_tokens_per_second",
    "tokens_per_second_per_gpu",
)
_LIMITS = (
    "binding_limit",
    "binding_margin_ratio",
    "limit_binding_share_10m_ratio",
    "scrapes_10m",
    "binding_running_requests",
    "binding_waiting_requests",
    "binding_kv_cache_usage_ratio",
    "sequence_utilization",
    "batch_utilization",
    "tokens_per_forward_pass",
    "forward_passes_overcounted",
    "waiting_capacity_requests",
    "preemptions_per_second",
    "kv_cache_tokens",
    "prefix_cache_hit_ratio",
)
_DEFERRED = (
    "waiting_deferred_requests",
    "deferred_requests_10m",
    "waiting_deferred_share_10m_ratio",
)
_STUCK = ("seconds_since_last_token", "generation_tokens_per_second")
_COVERAGE = (
    "coverage_missing_seconds",
    "coverage_missing_inputs",
    "pool_coverage_missing_ratio",
    "pool_coverage_missing_targets",
)
_CAPACITY = ("capacity_ratio", "utilization_ratio", "capacity_requests_per_second")
_GPU = (
    "gpu_count",
    "gpu_count_source",
    "gpu_utilization_ratio",
    "gpu_tensor_active_ratio",
    "gpu_dram_active_ratio",
    "gpu_power_watts",
    "gpu_sm_clock_hertz",
    "gpu_sm_clock_ratio",
    "gpu_clock_event_reasons",
    "gpus_lost",
    "tokens_per_second_per_gpu_ratio",
)
_SPEED = (
    "slower_at_equal_load",
    "speed_at_equal_load_ratio",
    "speed_at_equal_demand_ratio",
    "speed_reference",
    "speed_calibration",
    "speed_unknown_reason",
)
_TWINS = ("slower_than_pool", "speed_against_pool_ratio", "pool_speed_at_equal_load_ratio")
# what a change of throughput is made of, and what moved: on every page (evidence.md)
_MADE_OF = (
    *(
        f"throughput_factor_{name}_ratio"
        for name in ("batch", "load", "speed", "first_tokens", "gpus")
    ),
    "slower_at_equal_load",
    "speed_at_equal_load_ratio",
    "speed_at_equal_demand_ratio",
    "generation_tokens_per_second",
    "tokens_per_second_per_gpu",
    "itl_seconds_mean",
    "batch_assembly_wait_10m_seconds",
    "prompt_tokens_moved",
    "generation_tokens_moved",
)
# how small a change would be seen: beside every "as before" and every end
_DETECTABLE = (
    "prompt_tokens_smallest_detectable_ratio",
    "generation_tokens_smallest_detectable_ratio",
    "speed_smallest_detectable_loss_ratio",
)
_TREND = tuple(
    f"{name}_slope_14d_{part}ratio"
    for name in ("speed", "e2e_p50", "e2e_p99")
    for part in ("", "lower_", "upper_")
)


def _against(which: str) -> tuple[str, ...]:
    return tuple(
        f"{stem}_{which}_{what}"
        for stem in ("prompt_tokens", "generation_tokens")
        for what in ("score", "ratio")
    )


_PAST = ("prompt_tokens_calibration", "generation_tokens_calibration")
_EVERYTHING = (*_LENGTHS, *_COST, *_LIMITS, *_CAPACITY, *_DEFERRED, *_GPU)

# alert → what its page carries besides _ALWAYS; an alert not named here carries _EVERYTHING
_BY_ALERT: Mapping[str, tuple[str, ...]] = {
    "BatchLimitBinding": (*_LENGTHS, *_COST, *_LIMITS, *_CAPACITY, *_GPU),
    "BatchDrift": (*_LENGTHS, *_COST, *_LIMITS, *_CAPACITY, *_GPU),
    "SlowerAtEqualLoad": (*_SPEED, *_TWINS, *_LENGTHS, *_COST, *_GPU),
    "ReplicaSlow": (*_TWINS, *_SPEED, *_LENGTHS, *_COST, *_GPU),
    "LatencyCreep": (*_TREND, *_SPEED),
    "TrafficShift": (*_against("drift"), *_PAST, *_LENGTHS),
    "UnevenTraffic": (*_against("peer"), *_PAST, *_LENGTHS),
    "RetuneAdvised": (*_against("pin"), "pin_age_seconds", *_PAST, *_LENGTHS, *_COST, *_CAPACITY),
    "DeferredAdmission": (*_COST, *_DEFERRED, "binding_limit"),
    "EngineStuck": (*_STUCK, "waiting_capacity_requests", *_DEFERRED, *_GPU),
    "GpuLost": (*_STUCK, *_GPU),
    "CoverageLost": _COVERAGE,
    "LengthDrift": (*_LENGTHS, *_USUAL, "binding_limit", "slo_missed", "prompt_tokens_per_second"),
}


def page_columns(alert: str) -> frozenset[str]:
    """The evidence columns a page of this alert carries besides those of its path."""
    more = () if alert == "CoverageLost" else (*_MADE_OF, *_DETECTABLE)
    return frozenset((*_ALWAYS, *more, *_BY_ALERT.get(alert, _EVERYTHING)))


# column → how a line of text calls it; without an entry the column's own name is printed
SHORT: Mapping[str, str] = {
    "batch_assembly_wait_10m_seconds": "wait",
    "batch_assembly_wait_seconds": "wait",
    "ttft_10m_seconds": "TTFT",
    "queue_wait_estimate_10m_seconds": "the queue alone",
    "ttft_seconds_mean": "TTFT",
    "itl_seconds_mean": "ITL",
    "tpot_seconds_mean": "TPOT",
    "queue_share_of_ttft_10m_ratio": "wait is {} of TTFT",
    "queue_share_of_ttft_ratio": "wait is {} of TTFT",
    "slo_missed": "target missed:",
    "ttft_missed": "TTFT target missed:",
    "tpot_missed": "TPOT target missed:",
    "ttft_in_target_10m_ratio": "TTFT in target",
    "tpot_in_target_10m_ratio": "TPOT in target",
    "binding_limit": "binding limit",
    "binding_margin_ratio": "margin",
    "limit_binding_share_10m_ratio": "a limit binds in {} of scrapes",
    "binding_running_requests": "{} running while it bound",
    "binding_waiting_requests": "{} waiting while it bound",
    "binding_kv_cache_usage_ratio": "KV {} while it bound",
    "scrapes_10m": "{} scrapes",
    "observed_10m_seconds": "observed",
    "running_requests": "{} running",
    "waiting_requests": "{} waiting",
    "waiting_capacity_requests": "{} waiting for capacity",
    "waiting_deferred_requests": "{} deferred",
    "deferred_requests_10m": "{} deferred where any is",
    "waiting_deferred_share_10m_ratio": "deferred in {} of scrapes",
    "kv_cache_usage_ratio": "KV",
    "preemptions_per_second": "preemptions",
    "prompt_tokens_mean": "prompt tokens",
    "generation_tokens_mean": "generation tokens",
    "prompt_tokens_mean_ratio": "prompts",
    "prompt_tokens_mean_2m_ratio": "prompts, last 2 min",
    "prompt_tokens_mean_10m_ratio": "prompts, last 10 min",
    "prompt_tokens_usual_ratio": "prompts swing by up to",
    "generation_tokens_mean_ratio": "generations",
    "generation_tokens_mean_10m_ratio": "generations, last 10 min",
    "generation_tokens_usual_ratio": "generations swing by up to",
    "generation_tokens_mean_2m_ratio": "generations, last 2 min",
    "requests_per_second": "{} completed",
    "requests_per_second_ratio": "completed requests",
    "finished_requests": "n",
    "finished_requests_2m": "n, last 2 min",
    "effective_batch_size": "batch",
    "requests_per_forward_pass": "{} requests a pass",
    "tokens_per_forward_pass": "{} tokens a step",
    "sequence_utilization": "{} of max_num_seqs",
    "batch_utilization": "{} of the token budget",
    "speed_at_equal_load_ratio": "speed at equal load",
    "pool_speed_at_equal_load_ratio": "the pool's",
    "speed_at_equal_demand_ratio": "speed at equal demand",
    "slower_at_equal_load": "slower at equal load:",
    "slower_than_pool": "slower than its twins:",
    "speed_against_pool_ratio": "against its twins",
    "requests_per_second_low_ratio": "of the quiet hours' rate",
    "release_changed_since_pin": "release changed since the baseline:",
    "release_comparison": "{}",
    "capacity_ratio": "capacity",
    "utilization_ratio": "load of capacity",
    "capacity_requests_per_second": "capacity",
    "tokens_per_second_per_gpu": "tokens/s/GPU",
    "tokens_per_second_per_gpu_ratio": "tokens/s/GPU",
    "generation_tokens_per_second": "{}",
    "seconds_since_last_token": "silent for",
    "prefix_cache_hit_ratio": "prefix hits",
    "reference_prefix_cache_hit_ratio": "prefix hits before",
    "computed_prompt_tokens_ratio": "computed prompt tokens",
    "lost_prefix_hits_prefill_ratio": "by lost prefix hits",
    "lost_prefix_hits_share_ratio": "lost prefix hits are {} of the rise",
    "engine_kind": "engine",
    "spec_decode_acceptance_ratio": "{} of drafted tokens accepted",
    "reference_spec_decode_acceptance_ratio": "{} of drafted tokens accepted before",
    "tokens_per_output": "{} tokens an output",
    "reference_tokens_per_output": "{} tokens an output before",
    "gpu_sm_clock_ratio": "SM clock",
    "gpus_lost": "GPUs lost",
    "pool_idle_ratio": "{} of twins idle",
    "prefill_share_of_e2e_ratio": "prefill is {} of a request",
    "decode_share_of_e2e_ratio": "decode is {} of a request",
    "rejected_requests_per_second": "turned away",
    "aborted_requests_per_second": "given up",
    "gpu_utilization_ratio": "GPU_UTIL",
    "gpu_tensor_active_ratio": "tensor",
    "gpu_dram_active_ratio": "DRAM",
    "gpu_power_watts": "power",
    "forward_passes_per_second": "{}",
    "throughput_factor_batch_ratio": "throughput by batch",
    "throughput_factor_load_ratio": "by load a step",
    "throughput_factor_speed_ratio": "by speed",
    "speed_smallest_detectable_loss_ratio": "smallest loss that shows",
    "release_changed": "release changed",
    "configuration_changed": "knobs changed",
}
