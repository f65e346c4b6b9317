"""Where the walks of the shipped tree end."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from rule_rows import (
    BOUND,
    REFERENCE,
    diagnosis,
)

from driftwatch.installation import shipped
from driftwatch.rulebook.book import Rulebook

KEPT = {"slower_at_equal_load": False}
SLOW = {"speed_at_equal_load_ratio": 0.8, "slower_at_equal_load": True}
HITS_LOST = {
    "prefix_cache_hit_ratio": 0.1,
    "reference_prefix_cache_hit_ratio": 0.5,
    "lost_prefix_hits_prefill_ratio": 1.8,
    "lost_prefix_hits_share_ratio": 0.8,
}
WALKS: list[tuple[str, dict[str, Any], str | None]] = [
    ("healthy", REFERENCE | KEPT, None),
    ("healthy", REFERENCE, None),  # explain says that the speed is not judged
    ("drifted_within_limits", REFERENCE | {"prompt_tokens_mean_ratio": 3.96}, None),
    ("drifted_within_limits", REFERENCE | {"generation_tokens_mean_ratio": 0.5}, None),
    ("request_rate_drop", REFERENCE | {"requests_per_second_ratio": 0.23}, None),
    ("undetermined", {}, None),
    ("undetermined", REFERENCE | {"limit_binding_share_10m_ratio": None, **{
        "batch_assembly_wait_10m_seconds": 2.0, "queue_share_of_ttft_10m_ratio": 0.9}}, None),
    ("engine_stuck", {"seconds_since_last_token": 300.0}, None),
    ("version_change", SLOW | {"release_changed_since_pin": True}, None),
    ("gpu_throttled", SLOW | {"gpu_sm_clock_ratio": 0.6}, None),
    ("spec_decode_acceptance_fell", BOUND | {
        "spec_decode_acceptance_ratio": 0.4, "reference_spec_decode_acceptance_ratio": 0.7,
        "tokens_per_output": 2.2, "reference_tokens_per_output": 3.1}, None),
    ("scheduler_regression", SLOW | HITS_LOST, None),
    ("prefix_cache_collapse", BOUND | HITS_LOST, None),
    ("concurrency_cap_binding", BOUND | {"prefix_cache_hit_ratio": 0.1,
                                         "reference_prefix_cache_hit_ratio": 0.5}, None),
    ("replica_slow", SLOW | {"pool_speed_at_equal_load_ratio": 1.0}, None),
    ("replica_slow", {"slower_than_pool": True}, None),  # without a pin, and asked before limits
    ("replica_slow", REFERENCE | BOUND | {"slower_than_pool": True}, None),
    ("scheduler_regression", REFERENCE | BOUND | SLOW, None),
    ("healthy", REFERENCE | KEPT | {"requests_per_second_ratio": 0.5}, None),  # an ordinary night
    ("healthy", REFERENCE | KEPT | {"requests_per_second_ratio": 0.23,
                                    "requests_per_second_low_ratio": 0.9}, None),
    ("request_rate_drop", REFERENCE | {"requests_per_second_ratio": 0.4,
                                       "requests_per_second_low_ratio": 0.6}, None),
    ("scheduler_regression", SLOW | {"prefix_cache_hit_ratio": None}, None),
    ("scheduler_regression", SLOW | {"prefix_cache_hit_ratio": 0.0,
                                     "reference_prefix_cache_hit_ratio": 0.0}, None),
    ("concurrency_cap_binding", BOUND, None),  # lengths unknown: the cause stays open
    ("concurrency_cap_binding", REFERENCE | BOUND, "demand"),
    (
        "concurrency_cap_binding",
        REFERENCE | BOUND | {"generation_tokens_mean_ratio": 4.0},
        "generations",
    ),
    ("concurrency_cap_binding", BOUND | {"slo_missed": True}, None),
    ("healthy", REFERENCE | KEPT | BOUND | {"slo_missed": False}, None),
    ("healthy", REFERENCE | KEPT | BOUND | {"batch_assembly_wait_10m_seconds": 0.2}, None),
    (
        "token_budget_binding",
        REFERENCE | BOUND | {"binding_limit": "max_num_batched_tokens",
                             "prompt_tokens_mean_ratio": 2.3},
        "prompts",
    ),
    (
        "token_budget_binding",
        REFERENCE | BOUND | {"binding_limit": "max_num_batched_tokens"},
        "demand",
    ),
    (
        "kv_pressure",
        REFERENCE | BOUND | {"binding_limit": "kv_cache", "generation_tokens_mean_ratio": 1.6},
        "generations",
    ),
    ("kv_pressure", BOUND | {"binding_limit": "kv_cache"}, None),
    ("undetermined", BOUND | {"binding_limit": None}, None),
    (
        "deferred_admission",
        {"waiting_deferred_share_10m_ratio": 0.9, "binding_limit": "deferred"},
        None,
    ),
    (
        "kv_pressure",
        {"slo_missed": True, "preemptions_per_second": 0.1, "kv_cache_usage_ratio": 0.8},
        None,
    ),
    (
        "replica_imbalance",
        {"slo_missed": True, "pool_idle_ratio": 0.5, "waiting_requests": 3.0},
        None,
    ),
    (
        "demand_above_targets",
        REFERENCE | {"slo_missed": True, "slower_at_equal_load": False},
        None,
    ),
    ("undetermined", {"slo_missed": True}, None),  # nothing found, and speed was not measured
    (
        "drifted_within_limits",
        REFERENCE | {"slo_missed": True, "slower_at_equal_load": False,
                     "prompt_tokens_mean_ratio": 2.0},
        None,
    ),
]  # fmt: skip


@pytest.mark.parametrize(("leaf", "change", "cause"), WALKS)
def test_where_a_walk_ends(
    book: Rulebook, leaf: str, change: dict[str, Any], cause: str | None
) -> None:
    found = diagnosis(book, **change)
    assert found.leaf == leaf, [(step.node, step.answer) for step in found.path]
    if leaf.endswith("_binding"):
        assert found.cause == cause


def test_every_leaf_is_walked_to(book: Rulebook) -> None:
    walked = {leaf for leaf, _, _ in WALKS}
    assert walked == {*book.trees["batch-size-drift"].leaves, "undetermined"}


def test_an_unmeasured_speed_is_said(book: Rulebook) -> None:
    found = diagnosis(book, **BOUND)
    reasons = {step.node: step.reason for step in found.path}
    assert reasons["engine_slower"] == "no speed at equal load; not compared with peers"
    arming = "not judged yet: 15 of 20 minutes of data"
    reasons = {s.node: s.reason for s in diagnosis(book, speed_unknown_reason=arming, **BOUND).path}
    said = f"no speed at equal load: {arming}; not compared with peers"
    assert reasons["engine_slower"] == said
    missing = diagnosis(book, slo_missed=True)
    assert missing.missing == ("slower_at_equal_load",)
    assert diagnosis(book).missing == ("generation_tokens_mean_ratio", "prompt_tokens_mean_ratio")


def test_a_leaf_that_changes_nothing_says_what_to_do(book: Rulebook) -> None:
    for leaf in book.trees["batch-size-drift"].leaves.values():
        assert (leaf.kind == "none") == (leaf.advice is not None), leaf.name
        assert leaf.advice is None or leaf.advice.startswith("Do not change a knob; "), leaf.name
        assert (leaf.kind == "change") == (leaf.knob is not None), leaf.name


def test_words_that_are_never_said(tmp_path: Path) -> None:
    never = re.compile(r"(?i)anomal|degraded|\bscore|optimal|confidence|throughput fell")
    for path in sorted(shipped("rules").rglob("*.yaml")):
        assert never.findall(path.read_text(encoding="utf-8")) == [], path.name
