"""Walks through the shipped trees: every leaf, what is said on the way, and any symptom first."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import polars as pl
import pytest
from walk_cases import (
    CAP,
    GENERATIONS,
    KNOWN,
    MISSED,
    PROMPTS,
    SLOW,
    diagnosed,
    frame,
    knob_of,
)

from driftwatch.diagnose.not_a_knob import no_knob_because
from driftwatch.diagnose.states import with_states
from driftwatch.diagnose.tree import UNDETERMINED, Tree, walk
from driftwatch.pipeline.explain import DEFAULT_TREE, SYMPTOMS
from driftwatch.rulebook.book import load_rulebook

TREES = load_rulebook().trees


@pytest.fixture
def tree() -> Tree:
    return TREES[DEFAULT_TREE]


BUDGET = CAP | {"binding_limit": "max_num_batched_tokens"}
KV = CAP | {"binding_limit": "kv_cache", "kv_cache_usage_ratio": 0.95}


# 15 % fewer tokens an output: just over it, and just under it
REJECTED = {"spec_decode_acceptance_ratio": 0.54, "tokens_per_output": 0.849 * 3.1}
HARDLY = {"spec_decode_acceptance_ratio": 0.55, "tokens_per_output": 0.851 * 3.1}


# half of the prompts were found and now a tenth is: x1.8 of the prefill, and nearly all of its rise
HITS_LOST = {
    "prefix_cache_hit_ratio": 0.1,
    "requests_per_second_ratio": 2.0,
    "lost_prefix_hits_prefill_ratio": 1.8,
}
DEFERRED = {"waiting_deferred_share_10m_ratio": 0.9, "binding_limit": "deferred"}
LEAVES: list[tuple[str, str | None, dict[str, Any]]] = [
    ("healthy", None, {}),
    ("drifted_within_limits", None, PROMPTS),
    ("request_rate_drop", None, {"requests_per_second_low_ratio": 0.6}),
    (
        "clients_give_up",
        None,
        {"requests_per_second_low_ratio": 0.6, "given_up_10m_low_ratio": 0.1},
    ),
    ("engine_stuck", None, {"seconds_since_last_token": 120.0}),
    ("engine_silent", None, {"seconds_since_last_token": 120.0, "gauges_live": False}),
    ("version_change", None, {**SLOW, "release_change": "vllm 0.32.0 → 0.33.0"}),
    ("gpu_throttled", None, {**SLOW, "gpu_sm_clock_ratio": 0.8}),
    ("spec_decode_acceptance_fell", None, {**SLOW, **REJECTED}),
    ("scheduler_regression", None, {**SLOW, **HARDLY}),
    ("spec_decode_acceptance_fell", None, {**CAP, **MISSED, **REJECTED}),
    ("concurrency_cap_binding", "demand", {**CAP, **MISSED, **HARDLY}),
    ("scheduler_regression", None, {**SLOW, **REJECTED, "spec_decode_acceptance_ratio": 0.7}),
    ("gpu_throttled", None, {**SLOW, **REJECTED, "gpu_sm_clock_ratio": 0.8}),
    ("healthy", None, {"waiting_deferred_share_10m_ratio": 0.9, "engine_kind": "decode_only"}),
    ("deferred_admission", "demand", {**DEFERRED, **MISSED, "engine_kind": "decode_only"}),
    ("scheduler_regression", None, {**SLOW, **HITS_LOST}),  # speed counts computed tokens
    ("replica_slow", None, {**SLOW, "pool_speed_at_equal_load_ratio": 1.0}),
    ("scheduler_regression", None, SLOW),
    ("token_budget_binding", "prompts", {**BUDGET, **MISSED, **PROMPTS}),
    ("token_budget_binding", "demand", {**BUDGET, **MISSED}),
    ("kv_pressure", "demand", {**KV, **MISSED}),
    ("concurrency_cap_binding", "generations", {**CAP, **MISSED, **GENERATIONS}),
    ("concurrency_cap_binding", "demand", {**CAP, **MISSED}),
    ("deferred_admission", "demand", DEFERRED),
    (
        "kv_pressure",
        None,
        {**MISSED, "preemptions_per_second": 0.5, "kv_cache_usage_ratio": 0.8},
    ),
    ("demand_above_targets", None, MISSED),
    ("healthy", None, HITS_LOST),  # nothing is lost by it
    ("prefix_cache_collapse", None, {**MISSED, **HITS_LOST}),
    ("replica_imbalance", None, {**CAP, **MISSED, "pool_idle_ratio": 0.1}),
    (
        "concurrency_cap_binding",
        "demand",
        {**CAP, **MISSED, "limit_binding_share_10m_ratio": 0.25},  # named: so it costs
    ),
    ("prefix_cache_collapse", "prefix_hits", {**BUDGET, **MISSED, **HITS_LOST}),
    (
        "prefix_cache_collapse",
        "prefix_hits",
        {**CAP, **MISSED, **HITS_LOST, "binding_limit": None},
    ),  # one of the two, whichever
    ("kv_pressure", "demand", {**KV, **MISSED, **HITS_LOST}),  # a full cache loses its prefixes
    ("concurrency_cap_binding", "generations", {**CAP, **MISSED, **GENERATIONS, **HITS_LOST}),
    *(
        # half of the hits, and they do not explain it: x1.09, or a quarter of the rise, or not half
        ("token_budget_binding", "demand", {**BUDGET, **MISSED, **HITS_LOST, name: value})
        for name, value in (
            ("lost_prefix_hits_prefill_ratio", 1.09),
            ("requests_per_second_ratio", 3.3),
            ("prefix_cache_hit_ratio", 0.3),
        )
    ),
    ("replica_imbalance", None, {**MISSED, "pool_idle_ratio": 0.5, "waiting_requests": 3.0}),
]


@pytest.mark.parametrize(("leaf", "cause", "changes"), LEAVES)
def test_a_leaf_and_its_cause(
    tree: Tree, leaf: str, cause: str | None, changes: dict[str, Any]
) -> None:
    found = diagnosed(tree, **changes)
    assert found.leaf == leaf, [(s.node, s.answer) for s in found.path]
    assert found.cause == cause
    assert found.meaning == tree.leaves[leaf].meaning
    assert found.missing == ()
    assert all(step.answer in ("yes", "no") for step in found.path)


def test_every_leaf_is_reached_by_hand(tree: Tree) -> None:
    assert {leaf for leaf, _, _ in LEAVES} == set(tree.leaves)


@pytest.mark.parametrize(("leaf", "cause", "changes"), LEAVES[::3])
def test_a_needed_column_that_is_unknown_is_named(
    tree: Tree, leaf: str, cause: str | None, changes: dict[str, Any]
) -> None:
    """Each column of the way made NULL: the same leaf, another with a word, or undetermined."""
    row = KNOWN | changes
    (known,) = walk(tree, frame(row))
    asked = {c for step in known.path for c in tree.nodes[step.node].when.columns}
    for column in sorted(asked):
        found = diagnosed(tree, **(changes | {column: None}))
        last = found.path[-1]
        # where another input of this leaf's row is unknown as well, the walk may end at that one
        beside = found.missing and all(row[c] is None for c in found.missing)
        if found.leaf == UNDETERMINED and not beside:
            assert column in found.missing, column
            assert last.answer == "unknown"
            assert last.reason is not None
            assert column in last.reason
            assert found.advice is None
            assert knob_of(tree, row | {column: None}, found) is None
            continue
        # the walk went on: because another part decided, or because the tree says what it means
        for step in found.path:
            node = tree.nodes[step.node]
            if column not in node.when.columns:
                continue
            (strict,) = frame(row | {column: None}).select(node.when.expression).to_series()
            if strict is None:
                assert column in node.not_asked, (step.node, column)
                assert step.reason is not None
                assert node.not_asked[column] in step.reason


def test_a_question_of_which_nothing_is_known_is_not_asked(tree: Tree) -> None:
    found = diagnosed(tree, **CAP, **MISSED, prompt_tokens_mean_ratio=None)
    step = next(s for s in found.path if s.node == "prompts_up")
    assert step.answer == "not asked"
    assert step.reason == tree.nodes["prompts_up"].not_asked["prompt_tokens_mean_ratio"]
    assert found.leaf == "concurrency_cap_binding"
    assert found.cause is None  # "as before" was not found, so demand is not claimed


def test_the_path_of_healthy_says_that_nobody_measured_the_speed(tree: Tree) -> None:
    arming = "not judged yet: 15 of 20 minutes of data"
    found = diagnosed(tree, slower_at_equal_load=None, speed_unknown_reason=arming)
    last = found.path[-1]
    assert (found.leaf, last.node, last.answer) == ("healthy", "slower_anyway", "not asked")
    assert arming in (last.reason or "")
    assert diagnosed(tree).path[-1].answer == "no"


def test_without_a_reference_nothing_is_called_healthy(tree: Tree) -> None:
    found = diagnosed(tree, prompt_tokens_mean_ratio=None, generation_tokens_mean_ratio=None)
    assert found.leaf == UNDETERMINED
    assert found.missing == ("generation_tokens_mean_ratio", "prompt_tokens_mean_ratio")


@pytest.mark.parametrize("why", [SLOW, {"seconds_since_last_token": 300.0}])
@pytest.mark.parametrize("drift", [{}, PROMPTS])
def test_a_slow_or_stuck_engine_with_a_full_cap_is_not_told_to_raise_it(
    tree: Tree, why: dict[str, Any], drift: dict[str, Any]
) -> None:
    """A slow engine fills its batch, and then max_num_seqs looks like the limit."""
    row = KNOWN | CAP | MISSED | why | drift
    (found,) = walk(tree, frame(row))
    assert knob_of(tree, row, found) is None
    assert no_knob_because(row, found.leaf) is not None
    assert found.advice is not None


OTHERS = sorted(SYMPTOMS[name] for name in SYMPTOMS if SYMPTOMS[name] != DEFAULT_TREE)


def own_leaves(tree: Tree) -> set[str]:
    return set(tree.leaves) - set(TREES[DEFAULT_TREE].leaves)


@pytest.mark.parametrize("name", OTHERS)
def test_the_cause_is_the_same_whatever_was_seen_first(name: str) -> None:
    """Where the first tree says healthy another may say what the time is spent on, no more."""
    rows = frame(*[KNOWN | changes for _, _, changes in LEAVES])
    base = walk(TREES[DEFAULT_TREE], rows)
    for one, other in zip(base, walk(TREES[name], rows), strict=True):
        if one.leaf == "healthy":
            assert other.leaf in {"healthy", *own_leaves(TREES[name])}
            assert TREES[name].leaves[other.leaf].kind in ("healthy", "notice")
        else:
            assert (other.leaf, other.cause, other.missing) == (one.leaf, one.cause, one.missing)


WALKS: list[tuple[str, str, Mapping[str, Any]]] = [
    (
        "latency-high",
        "waits_in_bursts",
        {"ttft_10m_seconds": 0.5, "batch_assembly_wait_10m_seconds": 0.3},
    ),
    ("latency-high", "prompts_take_the_time", {"prefill_share_of_e2e_ratio": 0.6}),
    ("latency-high", "answers_take_the_time", {"decode_share_of_e2e_ratio": 0.9}),
    ("throughput-low", "requests_rejected", {"rejected_requests_per_second": 0.1}),
    ("throughput-low", "demand_is_served", {"waiting_requests": 0.2}),
    ("gpu-idle", "deferred_at_times", {"waiting_deferred_share_10m_ratio": 0.3}),
    ("gpu-idle", "no_demand", {"effective_batch_size": 0.4}),
    ("gpu-idle", "host_overhead", {"effective_batch_size": 9.0, "gpu_utilization_ratio": 0.5}),
]


@pytest.mark.parametrize(("tree", "leaf", "changes"), WALKS)
def test_where_the_time_goes(tree: str, leaf: str, changes: Mapping[str, Any]) -> None:
    (found,) = walk(TREES[tree], frame(KNOWN | dict(changes)))
    assert found.leaf == leaf, [(s.node, s.answer) for s in found.path]
    assert TREES[tree].leaves[leaf].advice is not None  # it says what to do, or that there is none


def test_every_leaf_of_their_own_is_walked_to() -> None:
    for name in OTHERS:
        assert own_leaves(TREES[name]) == {leaf for tree, leaf, _ in WALKS if tree == name}


def test_an_unknown_input_is_named_in_every_tree() -> None:
    row = KNOWN | {"seconds_since_last_token": None, "slo_missed": True}
    for name in SYMPTOMS.values():
        (found,) = walk(TREES[name], frame(row))
        assert (found.leaf, found.missing) == (UNDETERMINED, ("seconds_since_last_token",))


def test_a_kept_ttft_ends_a_wait_though_nobody_knows_of_tpot() -> None:
    wait = {"slo_missed": None, "batch_assembly_wait_10m_seconds": 2.0, "ttft_10m_seconds": 3.0}
    shares = ({"ttft_in_target_10m_ratio": share} for share in (0.99, 0.5))
    rows = frame(*(KNOWN | wait | one for one in shares)).with_columns(slo_share=pl.lit(0.95))
    assert with_states(rows)["target_missed"].to_list() == [False, True]
