"""Which evidence columns a page carries, and what they are called in a line of text.

As data: a page with all hundred columns is read by nobody. Besides these a page carries every
column that its path was decided on.
"""

from __future__ import annotations

from collections.abc import Mapping

from driftwatch.evidence import COLUMNS

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
SHORT: Mapping[str, str] = {column.name: column.short for column in COLUMNS if column.short}
