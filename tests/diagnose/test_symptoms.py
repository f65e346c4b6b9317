"""The other shipped trees: a person may begin with any symptom and ends in the same cause."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from test_walk import LEAVES
from walk_cases import KNOWN, frame

from driftwatch.diagnose.tree import UNDETERMINED, Tree, walk
from driftwatch.pipeline.explain import DEFAULT_TREE, SYMPTOMS
from driftwatch.rulebook.book import load_rulebook

TREES = load_rulebook().trees
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
