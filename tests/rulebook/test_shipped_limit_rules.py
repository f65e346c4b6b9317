"""What the shipped rules of limits say: when they begin, what they end by, who speaks first."""

from __future__ import annotations

from typing import Any

import pytest
from rule_rows import (
    BOUND,
    LOW,
    REFERENCE,
    STORM,
    WAVES,
    rows,
    says,
)

from driftwatch.rulebook.book import Rulebook


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
