"""A walk of any evidence ends, and says what it rests on."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
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

from driftwatch.diagnose.tree import UNDETERMINED, Tree, walk
from driftwatch.evidence import BY_NAME
from driftwatch.recommend.without_simulation import no_knob_because
from driftwatch.rulebook.book import load_rulebook

# --- properties over any evidence


ASKED: dict[str, st.SearchStrategy[Any]] = {
    name: st.sampled_from([None, *values])
    for name, values in {
        "slower_at_equal_load": [True, False, False],
        "speed_at_equal_load_upper_ratio": [0.84, 1.0, 1.0],
        "slower_than_pool": [True, False, False],
        "pool_speed_at_equal_load_ratio": [0.5, 1.0],
        "seconds_since_last_token": [0.0, 0.0, 119.9, 120.0, 900.0],
        "waiting_deferred_share_10m_ratio": [0.0, 0.5, 1.0],
        "limit_binding_share_10m_ratio": [0.0, 0.24, 0.25, 0.49, 0.5, 1.0],
        "slo_missed": [True, True, False],
        "batch_assembly_wait_10m_seconds": [0.0, 1.0, 2.0],
        "queue_share_of_ttft_10m_ratio": [0.0, 0.5, 1.0],
        "queue_wait_estimate_10m_seconds": [0.0, 0.5, 40.0],
        "ttft_10m_seconds": [0.1, 41.0],
        "prompt_tokens_mean_ratio": [0.5, 1.0, 4.0],
        "generation_tokens_mean_ratio": [0.5, 1.0, 4.0],
        "requests_per_second_ratio": [0.25, 1.0],
        "requests_per_second_low_ratio": [0.6, 1.0],
        "release_changed_since_pin": [True, False],
        "gpu_sm_clock_ratio": [0.5, 1.0],
        "reference_prefix_cache_hit_ratio": [0.0, 0.5],
        "prefix_cache_hit_ratio": [0.0, 0.5],
        "spec_decode_acceptance_ratio": [0.3, 0.7],
        "reference_spec_decode_acceptance_ratio": [0.7],
        "tokens_per_output": [1.9, 3.1],
        "reference_tokens_per_output": [3.1],
        "engine_kind": ["generate", "pooling", "decode_only"],
        "binding_limit": [
            "max_num_seqs",
            "max_num_seqs",
            "max_num_batched_tokens",
            "kv_cache",
            "deferred",
            "none",
        ],
        "preemptions_per_second": [0.0, 1.0],
        "kv_cache_usage_ratio": [0.1, 0.74, 1.0],
        "pool_idle_ratio": [0.0, 0.5],
        "waiting_requests": [0.0, 0.5, 9.0],
        "lost_prefix_hits_prefill_ratio": [1.0, 1.5],
        "lost_prefix_hits_share_ratio": [0.2, 0.9],
        "ttft_in_target_10m_ratio": [0.5, 1.0],
        "tpot_in_target_10m_ratio": [0.5, 0.9],
    }.items()
}


def test_the_random_rows_cover_every_column_the_tree_reads(tree: Tree) -> None:
    read = {column for node in tree.nodes.values() for column in node.when.columns}
    assert read == set(ASKED)


@settings(max_examples=60, deadline=None)
@given(changes=st.lists(st.fixed_dictionaries(ASKED), min_size=20, max_size=60))
def test_whatever_the_evidence(changes: list[dict[str, Any]]) -> None:
    tree = load_rulebook().trees["batch-size-drift"]
    rows = [KNOWN | change for change in changes]
    for row, found in zip(rows, walk(tree, frame(*rows)), strict=True):
        stuck = (row["seconds_since_last_token"] or 0) >= 120
        low = (row["speed_at_equal_load_upper_ratio"] or 1.0) <= 0.87
        slow = bool(row["slower_at_equal_load"] or row["slower_than_pool"] or low)
        knob = knob_of(tree, row, found)

        # the way is one of the tree's
        place = tree.start
        for step in found.path:
            assert step.node == place
            node = tree.nodes[place]
            place = node.yes if step.answer == "yes" else node.no
        if found.leaf == UNDETERMINED:
            assert found.path[-1].answer == "unknown"
            last = tree.nodes[found.path[-1].node]
            assert found.missing
            assert set(found.missing) <= last.when.columns - last.not_asked.keys()
            assert all(row[column] is None for column in found.missing)
            assert (knob, found.advice, found.meaning) == (None, None, None)
        else:
            assert found.leaf == place
            assert found.missing == ()

        # what would harm
        if stuck:
            assert found.leaf == "engine_stuck"
        elif (
            slow and row["seconds_since_last_token"] is not None and found.leaf != UNDETERMINED
        ):  # a low level alone leaves what is lost unknown where another input of it is missing
            assert tree.leaves[found.leaf].kind == "none"
            assert found.leaf not in ("kv_pressure", "deferred_admission", "replica_imbalance")
        if knob is not None:
            assert tree.leaves[found.leaf].kind == "change"
            assert not stuck
            assert not slow
            assert row["seconds_since_last_token"] is not None
            assert row["binding_limit"] == knob
        if knob == "max_num_seqs":
            assert row["binding_limit"] == "max_num_seqs"
            held_back = (
                bool(row["slo_missed"]) and (row["queue_share_of_ttft_10m_ratio"] or 0) >= 0.5
            )
            assert (row["waiting_deferred_share_10m_ratio"] or 0) >= 0.5 or (
                (row["limit_binding_share_10m_ratio"] or 0) >= (0.25 if held_back else 0.5)
            )
        if found.leaf in ("kv_pressure", "deferred_admission"):
            assert knob is None


@pytest.mark.parametrize("why", [SLOW, {"seconds_since_last_token": 300.0}])
@pytest.mark.parametrize("drift", [{}, PROMPTS, GENERATIONS])
def test_a_slow_or_stuck_engine_with_a_full_cap_is_not_told_to_raise_it(
    tree: Tree, why: dict[str, Any], drift: dict[str, Any]
) -> None:
    """A slow engine fills its batch, and then max_num_seqs looks like the limit."""
    row = KNOWN | CAP | MISSED | why | drift
    (found,) = walk(tree, frame(row))
    assert knob_of(tree, row, found) is None
    assert no_knob_because(row, found.leaf) is not None
    assert found.advice is not None
    assert "Do not change a knob" in found.advice


def test_the_binding_limit_stands_among_the_limits(tree: Tree) -> None:
    budget, seqs, kv = diagnosed(tree, **CAP, **MISSED).limits
    assert (seqs.name, seqs.binds, seqs.margin_ratio) == ("max_num_seqs", True, 0.0)
    assert (budget.binds, kv.binds) == (False, False)
    assert kv.margin_ratio == pytest.approx(1 - 8 / 500)
    unknown = diagnosed(tree, **CAP | {"binding_limit": None}).limits
    assert all(limit.binds is None for limit in unknown)


def test_every_change_leaf_names_a_knob_of_the_limits(tree: Tree) -> None:
    knobs = {leaf.knob for leaf in tree.leaves.values() if leaf.kind == "change"}
    assert knobs == {"max_num_seqs", "max_num_batched_tokens"}
    assert knobs <= set(BY_NAME)
