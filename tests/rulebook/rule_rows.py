"""Rows written by hand, and what the shipped rules and the shipped tree say of them."""

from __future__ import annotations

from typing import Any

import polars as pl

from driftwatch.diagnose.tree import walk
from driftwatch.evidence import COLUMNS, DType
from driftwatch.model import Diagnosis
from driftwatch.rulebook.book import Rulebook

DTYPES: dict[DType, Any] = {"float": pl.Float64, "bool": pl.Boolean, "string": pl.String}
SCHEMA = {column.name: DTYPES[column.dtype] for column in COLUMNS if column.dtype in DTYPES}
ALLOWS = {f"allows_{n}": pl.Float64 for n in ("max_num_batched_tokens", "max_num_seqs", "kv_cache")}

QUIET = {
    "seconds_since_last_token": 0.0,
    "waiting_deferred_share_10m_ratio": 0.0,
    "limit_binding_share_10m_ratio": 0.0,
    "limit_binding_share_10m_low_ratio": 0.0,
    "observed_10m_seconds": 595.0,
    "batch_assembly_wait_10m_seconds": 0.01,
    "queue_share_of_ttft_10m_ratio": 0.1,
    "queue_wait_estimate_10m_seconds": 0.01,
    "ttft_10m_seconds": 0.1,
    "preemptions_per_second": 0.0,
    "kv_cache_usage_ratio": 0.2,
    "waiting_requests": 0.0,
    "waiting_capacity_requests": 0.0,
    "binding_limit": "none",
    "prefix_cache_hit_ratio": 0.5,
    "gpus_lost": 0.0,
    "running_requests": 5.0,
    "requests_per_second": 8.0,
    "rejected_requests_per_second": 0.0,
    "reference_batch_assembly_wait_seconds": 0.01,
}
REFERENCE = {
    "prompt_tokens_mean_ratio": 1.0,
    "generation_tokens_mean_ratio": 1.0,
    "prompt_tokens_mean_2m_ratio": 1.0,
    "generation_tokens_mean_2m_ratio": 1.0,
    "prompt_tokens_mean_10m_ratio": 1.0,
    "generation_tokens_mean_10m_ratio": 1.0,
    "prompt_tokens_usual_ratio": 1.2,
    "generation_tokens_usual_ratio": 1.2,
    "requests_per_second_ratio": 1.0,
}
BOUND = {
    "limit_binding_share_10m_ratio": 0.7,
    "limit_binding_share_10m_low_ratio": 0.52,
    "batch_assembly_wait_10m_seconds": 1.7,
    "queue_share_of_ttft_10m_ratio": 0.98,
    "waiting_requests": 30.0,
    "waiting_capacity_requests": 30.0,
    "binding_waiting_requests": 50.0,
    "binding_running_requests": 40.0,
    "binding_limit": "max_num_seqs",
}
WAVES = {"limit_binding_share_10m_low_ratio": 0.49, "slo_missed": True}


def rows(*changes: dict[str, Any]) -> pl.DataFrame:
    return pl.DataFrame([QUIET | change for change in changes], schema=SCHEMA | ALLOWS)


def says(book: Rulebook, rule: str, **change: Any) -> bool | None:
    (found,) = (one for one in book.rules if one.id == rule)
    answer = rows(change).select(found.verdict.alias("answer"))["answer"].to_list()[0]
    assert answer is None or isinstance(answer, bool)
    return answer


def diagnosis(book: Rulebook, **change: Any) -> Diagnosis:
    (found,) = walk(book.trees["batch-size-drift"], rows(change))
    return found


PAST = {
    "slower_at_equal_load": False,
    "speed_at_equal_load_ratio": 1.0,
    "speed_threshold_ratio": 0.87,
    "speed_recovered": True,
    "slower_than_pool": False,
    "latency_creeps": False,
    "traffic_shifted": False,
    "traffic_shift_over": True,
    "traffic_uneven": False,
    "traffic_uneven_over": True,
    "pin_lengths_moved": False,
    "reference_prefix_cache_hit_ratio": 0.5,
    "lost_prefix_hits_prefill_ratio": 1.0,
    "lost_prefix_hits_share_ratio": 0.0,
    "spec_decode_acceptance_ratio": 0.7,
    "reference_spec_decode_acceptance_ratio": 0.7,
    "tokens_per_output": 3.0,
    "reference_tokens_per_output": 3.0,
}
COVERAGE = {
    "coverage_missing_seconds": 0.0,
    "pool_coverage_missing_ratio": 0.0,
    "pool_coverage_missing_targets": 0.0,
}


STORM = {
    "limit_binding_share_10m_ratio": 0.25,
    "limit_binding_share_10m_low_ratio": 0.12,
    "binding_limit": "kv_cache",
    "slo_missed": True,
    "ttft_in_target_10m_ratio": 0.4,
    "preemptions_per_second": 6.0,
}
LOW = {
    "slower_at_equal_load": False,
    "speed_at_equal_load_ratio": 0.7,
    "speed_threshold_ratio": 0.87,
}
