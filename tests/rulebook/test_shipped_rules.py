"""What the shipped rules and the shipped tree say, on rows written by hand."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from driftwatch.diagnose.tree import walk
from driftwatch.evidence import COLUMNS, DType
from driftwatch.installation import shipped
from driftwatch.model import Diagnosis
from driftwatch.rulebook.book import Rulebook, load_rulebook

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


@pytest.fixture(scope="module")
def book() -> Rulebook:
    return load_rulebook()


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


def test_the_shipped_rules(book: Rulebook) -> None:
    found = [(rule.id, rule.severity, rule.enabled, rule.tree) for rule in book.rules]
    tree = "batch-size-drift"
    assert found == [
        ("BatchDrift", "page", True, tree),
        ("BatchLimitBinding", "page", True, tree),
        ("CoverageLost", "ticket", True, None),
        ('DeferredAdmission{severity="ticket"}', "ticket", True, tree),
        ('DeferredAdmission{severity="page"}', "page", True, tree),
        ("EngineStuck", "page", True, tree),
        ("GpuLost", "page", True, None),
        ('LengthDrift{direction="longer", signal="prompt_tokens"}', "notice", True, tree),
        ('LengthDrift{direction="shorter", signal="prompt_tokens"}', "notice", True, tree),
        ('LengthDrift{direction="longer", signal="generation_tokens"}', "notice", True, tree),
        ('LengthDrift{direction="shorter", signal="generation_tokens"}', "notice", True, tree),
        ("SlowerAtEqualLoad", "page", True, tree),
        ("ReplicaSlow", "page", True, tree),
        ("LatencyCreep", "ticket", True, None),
        ("ThroughputDown", "page", False, tree),
        ("TrafficShift", "notice", True, None),
        ("UnevenTraffic", "notice", True, None),
        ("RetuneAdvised", "ticket", True, None),
    ]
    limit = next(rule for rule in book.rules if rule.id == "BatchLimitBinding")
    assert (limit.for_seconds, limit.keep_firing_for_seconds) == (0, 300)
    off = next(rule for rule in book.rules if not rule.enabled)
    assert off.reason is not None and "137–402 times per server-month" in off.reason


def test_every_rule_says_why_its_thresholds_are_so() -> None:
    for path in sorted(shipped("rules").glob("*.yaml")):
        head, *rules = path.read_text(encoding="utf-8").split("- alert:")
        for rule in rules:
            assert "# " in rule or "# " in head, f"{path.name}: {rule.splitlines()[0]}"


def test_nothing_is_true_of_a_quiet_server(book: Rulebook) -> None:
    for rule in book.rules:
        unknown = rule.when.columns & {*REFERENCE, *COVERAGE, *PAST} and rule.id != "BatchDrift"
        if rule.enabled:
            assert says(book, rule.id) is (None if unknown else False), rule.id
            assert says(book, rule.id, **REFERENCE, **COVERAGE, **PAST) is False, rule.id


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


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({}, True),
        ({"limit_binding_share_10m_low_ratio": 0.49}, False),
        ({"limit_binding_share_10m_low_ratio": None}, None),
        ({"observed_10m_seconds": 479.0}, None),
        ({"observed_10m_seconds": None}, None),
        ({"slo_missed": True}, True),
        # those that wait are in no histogram yet: the queue speaks
        (
            {
                "batch_assembly_wait_10m_seconds": None,
                "queue_share_of_ttft_10m_ratio": None,
                "queue_wait_estimate_10m_seconds": 40.0,
                "ttft_10m_seconds": 41.0,
            },
            True,
        ),
        (
            {
                "batch_assembly_wait_10m_seconds": 0.01,
                "queue_share_of_ttft_10m_ratio": 0.01,
                "queue_wait_estimate_10m_seconds": 40.0,
                "ttft_10m_seconds": None,
            },
            True,
        ),
        (
            {
                "batch_assembly_wait_10m_seconds": 0.01,
                "queue_share_of_ttft_10m_ratio": 0.01,
                "queue_wait_estimate_10m_seconds": 0.9,
            },
            False,
        ),
        ({"slo_missed": True, "batch_assembly_wait_10m_seconds": 0.0}, True),
        ({"slo_missed": False}, False),  # in target: waiting is not a page
        ({"batch_assembly_wait_10m_seconds": 0.9}, False),  # and not unknown either
        ({"queue_share_of_ttft_10m_ratio": 0.4}, False),
        ({"queue_share_of_ttft_10m_ratio": None}, None),
        ({"slo_missed": None, "batch_assembly_wait_10m_seconds": float("nan")}, None),
        # a KV storm: most requests miss while others are preempted, in a quarter of the scrapes
        (STORM, True),
        (STORM | {"observed_10m_seconds": 180.0}, True),
        (STORM | {"observed_10m_seconds": 179.0}, None),
        (STORM | {"preemptions_per_second": 0.6}, False),  # 36 a minute of 40: a burst's end
        (STORM | {"slo_missed": False}, False),
        (STORM | {"slo_missed": None, "batch_assembly_wait_10m_seconds": 0.3}, None),
        (STORM | {"binding_limit": "max_num_seqs"}, False),  # a queue at a cap drains by itself
        (STORM | {"waiting_capacity_requests": 20.0}, False),  # of 50: it is over
        # the engine looks slow and is not yet known to be: SlowerAtEqualLoad goes first
        (LOW, None),
        (LOW | {"limit_binding_share_10m_ratio": 0.95}, True),
        (LOW | {"slower_at_equal_load": None}, True),  # out there the law may be wrong
        (LOW | {"slower_at_equal_load": True}, True),  # and that inhibits it
        (
            LOW | {"speed_at_equal_load_ratio": 0.84},
            True,
        ),  # near the threshold nobody may say so ever
        (LOW | {"speed_at_equal_load_ratio": 0.82}, None),
        # a queue without a limit: a burst that ends, unless it stands or a target is missed
        ({"binding_limit": None}, None),
        ({"binding_limit": None, "slo_missed": True}, True),
        ({"binding_limit": None, "limit_binding_share_10m_ratio": 0.95}, True),
        # the burst is over, the target is still missed by the mean of the ten minutes
        ({"slo_missed": True, "waiting_capacity_requests": 0.0}, False),
        ({"slo_missed": True, "waiting_capacity_requests": 1.0}, False),  # for the next step
        ({"slo_missed": True, "waiting_capacity_requests": 24.0}, False),  # of 50, and falling
        ({"slo_missed": True, "waiting_capacity_requests": 26.0}, True),
        # waves of a minute, between which nothing binds
        (WAVES, False),
        (WAVES | {"ttft_in_target_10m_ratio": 0.49}, False),
        (WAVES | {"slo_missed": None}, False),  # requests wait 1.7 s, and no target is known
    ],
)
def test_batch_limit_binding(book: Rulebook, change: dict[str, Any], expected: bool | None) -> None:
    assert says(book, "BatchLimitBinding", **(BOUND | change)) is expected


@pytest.mark.parametrize(
    ("change", "over"),
    [
        ({"slo_missed": True}, False),
        ({"slo_missed": True, "limit_binding_share_10m_ratio": 0.3}, False),  # wanders
        ({"slo_missed": True, "limit_binding_share_10m_ratio": 0.24}, True),
        ({"slo_missed": False}, True),
        ({"batch_assembly_wait_10m_seconds": 0.3, "queue_wait_estimate_10m_seconds": 0.3}, False),
        ({"batch_assembly_wait_10m_seconds": 0.1, "queue_wait_estimate_10m_seconds": 0.1}, True),
        ({"limit_binding_share_10m_ratio": None, "slo_missed": None}, None),
    ],
)
def test_batch_limit_binding_ends_once(
    book: Rulebook, change: dict[str, Any], over: bool | None
) -> None:
    """A share that wanders around a half is one incident, not one an hour."""
    (rule,) = (one for one in book.rules if one.id == "BatchLimitBinding")
    assert rule.until is not None
    row = rows(BOUND | {"queue_wait_estimate_10m_seconds": 1.7} | change)
    assert row.select(rule.until.expression).to_series().to_list() == [over]


@pytest.mark.parametrize("name", ["BatchDrift", "BatchLimitBinding"])
@pytest.mark.parametrize("in_target", [{"ttft_in_target_10m_ratio": 0.9}, {}])
def test_a_limit_that_let_go_ends_its_page_though_the_target_is_missed(
    book: Rulebook, name: str, in_target: dict[str, Any]
) -> None:
    """What must be known to begin must not keep it open: most meet the target, or only TPOT."""
    (rule,) = (one for one in book.rules if one.id == name)
    idle = {"limit_binding_share_10m_ratio": 0.0, "slo_missed": True} | in_target
    assert rows(BOUND | idle).select(rule.over).item() is True


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({}, True),
        ({"waiting_capacity_requests": 24.0}, False),
        ({"limit_binding_share_10m_low_ratio": 0.49}, False),
    ],
)
def test_batch_drift_begins_as_batch_limit_binding(
    book: Rulebook, change: dict[str, Any], expected: bool | None
) -> None:
    moved = REFERENCE | {"prompt_tokens_mean_2m_ratio": 2.3} | BOUND | {"slo_missed": True}
    for name in ("BatchDrift", "BatchLimitBinding"):
        assert says(book, name, **(moved | change)) is expected


def test_a_limit_that_was_told_does_not_hide_a_slow_engine(book: Rulebook) -> None:
    """The batch fills first, and only then is the engine found slow: that page still comes."""
    of_limits = {"BatchLimitBinding", "BatchDrift"}
    for rule in book.rules:
        if rule.alert in ("SlowerAtEqualLoad", "ReplicaSlow"):
            assert not of_limits & set(rule.inhibited_by)


def test_of_one_limit_the_page_that_says_more_wins(book: Rulebook) -> None:
    """Whatever makes BatchDrift true makes BatchLimitBinding true: the first of a minute stays."""
    names = [rule.alert for rule in book.rules]
    drift, limit = names.index("BatchDrift"), names.index("BatchLimitBinding")
    assert drift < limit
    assert book.rules[limit].inhibited_by.count("BatchDrift") == 1
    moved = REFERENCE | {"prompt_tokens_mean_2m_ratio": 2.3} | BOUND | {"slo_missed": True}
    assert says(book, "BatchDrift", **moved) is says(book, "BatchLimitBinding", **moved) is True


IN_TARGET = {"prompt_tokens_mean_2m_ratio": 2.3, "slo_missed": False, "capacity_ratio": 0.85}


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"utilization_ratio": 0.8}, True),
        ({"utilization_ratio": 0.79}, False),  # there is room
        ({"utilization_ratio": 0.9, "capacity_ratio": 0.86}, False),
        ({"utilization_ratio": 0.9, "limit_binding_share_10m_low_ratio": 0.4}, False),
        ({"utilization_ratio": 0.9, "binding_limit": None}, None),
        ({"utilization_ratio": 0.9, "prompt_tokens_mean_2m_ratio": 1.2}, False),
        ({"utilization_ratio": None, "capacity_ratio": None}, None),  # nobody replayed
        ({"utilization_ratio": None, "capacity_ratio": None, "slo_missed": True}, True),
    ],
)
def test_drift_inside_the_target_pages_where_capacity_runs_out(
    book: Rulebook, change: dict[str, Any], expected: bool | None
) -> None:
    row = REFERENCE | BOUND | IN_TARGET | change
    assert says(book, "BatchDrift", **row) is expected
    (rule,) = (one for one in book.rules if one.id == "BatchDrift")
    assert rule.until is not None
    (over,) = rows(row).select(rule.until.expression).to_series().to_list()
    assert not (over and expected)  # what makes it true does not end it


@pytest.mark.parametrize("name", ["BatchLimitBinding", "BatchDrift"])
@pytest.mark.parametrize(
    ("silent", "over"), [(0.0, True), (None, True), (119.0, True), (120.0, None)]
)
def test_an_engine_without_a_token_ends_no_page_of_a_limit(
    book: Rulebook, name: str, silent: float | None, over: bool | None
) -> None:
    """A frozen engine binds nothing: not seen to be over, or Slack says RESOLVED while it hangs."""
    (rule,) = (one for one in book.rules if one.id == name)
    assert rule.over is not None
    frozen = rows({"seconds_since_last_token": silent, "waiting_requests": 349.0})
    assert frozen.select(o=rule.over)["o"].to_list() == [over]


def test_engine_stuck(book: Rulebook) -> None:
    assert says(book, "EngineStuck", seconds_since_last_token=119.0) is False
    assert says(book, "EngineStuck", seconds_since_last_token=120.0) is True
    assert says(book, "EngineStuck", seconds_since_last_token=None) is None


@pytest.mark.parametrize(
    ("lost", "expected"), [(0.0, False), (1.0, True), (8.0, True), (None, None)]
)
def test_gpu_lost(book: Rulebook, lost: float | None, expected: bool | None) -> None:
    assert says(book, "GpuLost", gpus_lost=lost) is expected


def test_deferred_admission(book: Rulebook) -> None:
    ticket, page = 'DeferredAdmission{severity="ticket"}', 'DeferredAdmission{severity="page"}'
    change: dict[str, Any] = {"waiting_deferred_share_10m_ratio": 0.5}
    assert (says(book, ticket, **change), says(book, page, **change)) == (True, False)
    # the decode side of a disaggregated pair waits for its KV cache: only a missed target is news
    decode = {**change, "engine_kind": "decode_only"}
    assert (says(book, ticket, **decode), says(book, page, **decode)) == (False, False)
    assert says(book, page, **decode, slo_missed=True) is True
    change["slo_missed"] = True
    assert (says(book, ticket, **change), says(book, page, **change)) == (True, True)
    change["observed_10m_seconds"] = 299.0
    assert (says(book, ticket, **change), says(book, page, **change)) == (None, None)


@pytest.mark.parametrize(
    ("seconds", "ratio", "targets", "expected"),
    [
        (900, 0.01, 1, True),
        (899, 0.01, 1, False),
        (300, 0.1, 2, True),
        (300, 1.0, 1, False),
        (299, 0.5, 9, False),
        (300, None, 1, False),
        (900, None, None, True),
        (None, None, None, None),
    ],
)
def test_coverage_lost(
    book: Rulebook, seconds: float, ratio: float, targets: float, expected: bool | None
) -> None:
    answer = says(
        book,
        "CoverageLost",
        coverage_missing_seconds=seconds,
        pool_coverage_missing_ratio=ratio,
        pool_coverage_missing_targets=targets,
    )
    assert answer is expected


@pytest.mark.parametrize("signal", ["prompt_tokens", "generation_tokens"])
def test_length_drift(book: Rulebook, signal: str) -> None:
    longer = f'LengthDrift{{direction="longer", signal="{signal}"}}'
    shorter = f'LengthDrift{{direction="shorter", signal="{signal}"}}'
    column, swings = f"{signal}_mean_10m_ratio", f"{signal}_usual_ratio"
    scores = f"{signal}_drift_score", f"{signal}_peer_score"

    def answers(rule: str, ratios: Sequence[float | None], **more: Any) -> list[bool | None]:
        told = {"observed_10m_seconds": 600.0, swings: 1.2, **more}
        return [says(book, rule, **told, **{column: r}) for r in ratios]

    assert answers(longer, (0.67, 1.49, 1.5, None)) == [False, False, True, None]
    assert answers(shorter, (1.5, 0.68, 0.67, None)) == [False, False, True, None]
    # not beyond what the baseline's own means lead to expect, and unknown where nobody knows that
    assert answers(longer, (2.9, 3.0), **{swings: 3.0}) == [False, True]
    assert answers(shorter, (0.34, 0.33), **{swings: 3.0}) == [False, True]
    assert answers(longer, (4.0,), **{swings: None}) == [None]
    assert answers(longer, (4.0,), observed_10m_seconds=300.0) == [None]  # just restarted
    assert answers(longer, (2.0,), **dict(zip(scores, (1.0, 1.2), strict=True))) == [True]
    # its hours do so by themselves; one of its pool, of which UnevenTraffic speaks
    assert answers(longer, (2.0,), **dict(zip(scores, (0.9, 1.2), strict=True))) == [False]
    assert answers(longer, (2.0,), **dict(zip(scores, (2.0, 1.3), strict=True))) == [False]


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
