"""Rows and the tree for the tests of the walk."""

from __future__ import annotations

from typing import Any

import polars as pl

from driftwatch.diagnose.not_a_knob import no_knob_because
from driftwatch.diagnose.states import DTYPES, with_states
from driftwatch.diagnose.tree import Tree, walk
from driftwatch.evidence import COLUMNS, TEXTS
from driftwatch.model import Diagnosis

EXTRA = (
    *("allows_max_num_batched_tokens", "allows_max_num_seqs", "allows_kv_cache"),
    *("binding_requests", "kv_cache_tokens"),
)
SCHEMA: dict[str, Any] = {
    **{column.name: DTYPES[column.dtype] for column in COLUMNS},
    **dict.fromkeys(EXTRA, pl.Float64),
    **dict.fromkeys(TEXTS, pl.String),
    "max_num_seqs_inferred": pl.Boolean,
}


# everything known, nothing wrong
KNOWN: dict[str, Any] = {
    "slower_at_equal_load": False,
    "slower_than_pool": False,
    "speed_at_equal_load_ratio": 1.0,
    "pool_speed_at_equal_load_ratio": 1.0,
    "seconds_since_last_token": 0.0,
    "gauges_live": True,
    "given_up_10m_low_ratio": 0.0,
    "waiting_deferred_share_10m_ratio": 0.0,
    "limit_binding_share_10m_ratio": 0.0,
    "slo_missed": False,
    "batch_assembly_wait_10m_seconds": 0.01,
    "queue_wait_estimate_10m_seconds": 0.01,
    "ttft_10m_seconds": 0.1,
    "prompt_tokens_mean_ratio": 1.0,
    "generation_tokens_mean_ratio": 1.0,
    "requests_per_second_ratio": 1.0,
    "requests_per_second_low_ratio": 1.0,
    "release_change": "none",
    "gpu_sm_clock_ratio": 1.0,
    "reference_prefix_cache_hit_ratio": 0.5,
    "prefix_cache_hit_ratio": 0.5,
    "engine_kind": "generate",
    "spec_decode_acceptance_ratio": 0.7,
    "reference_spec_decode_acceptance_ratio": 0.7,
    "tokens_per_output": 3.1,
    "reference_tokens_per_output": 3.1,
    "lost_prefix_hits_prefill_ratio": 1.0,
    "binding_limit": "none",
    "preemptions_per_second": 0.0,
    "kv_cache_usage_ratio": 0.2,
    "pool_idle_ratio": 0.0,
    "waiting_requests": 0.0,
    "running_requests": 8.0,
    "finished_requests": 500.0,
    "ttft_in_target_10m_ratio": 0.5,
    "tpot_in_target_10m_ratio": 1.0,
    "max_num_seqs": 8.0,
    "max_num_seqs_inferred": False,
    "max_num_batched_tokens": 512.0,
    "binding_requests": 40.0,
    "allows_max_num_seqs": 8.0,
    "allows_max_num_batched_tokens": 60.0,
    "allows_kv_cache": 500.0,
}
SLOW = {
    "slower_at_equal_load": True,
    "speed_at_equal_load_ratio": 0.7,
    "pool_speed_at_equal_load_ratio": 0.7,
}
MISSED = {"slo_missed": True}
CAP = {
    "limit_binding_share_10m_ratio": 0.8,
    "binding_limit": "max_num_seqs",
    "waiting_requests": 9.0,
}
PROMPTS, GENERATIONS = {"prompt_tokens_mean_ratio": 4.0}, {"generation_tokens_mean_ratio": 4.0}


def frame(*rows: dict[str, Any]) -> pl.DataFrame:
    return with_states(pl.DataFrame(list(rows), schema=SCHEMA, orient="row"))


def diagnosed(tree: Tree, **changes: Any) -> Diagnosis:
    (found,) = walk(tree, frame(KNOWN | changes))
    return found


def knob_of(tree: Tree, row: dict[str, Any], found: Diagnosis) -> str | None:
    """The knob that a replay is asked about: the leaf's, where a knob may be the answer."""
    leaf = tree.leaves.get(found.leaf)
    if leaf is None or leaf.kind != "change" or no_knob_because(row, found.leaf) is not None:
        return None
    return leaf.knob
