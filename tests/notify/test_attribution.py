"""Factors of throughput, shares of lengths, in the words of a page."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
from small_page import small_page

from driftwatch.notify.advice import advice_lines, imperatives
from driftwatch.notify.attribution import (
    attribution,
    throughput_table,
)
from driftwatch.notify.page import Amount, Phrases, Servers
from driftwatch.notify.phrases.limits import room
from driftwatch.notify.phrases.speed import peers
from driftwatch.notify.shares import shares, shares_table

BEFORE = {
    "effective_batch_size": 93.0,
    "itl_seconds_mean": 0.0178,
    "generation_tokens_per_second": 5280.0,
    "tokens_per_second_per_gpu": 5280.0,
    "gpu_count": 1.0,
    "requests_per_forward_pass": 94.8,
}
NOW: dict[str, Any] = {
    "effective_batch_size": 66.0,
    "itl_seconds_mean": 0.0223,
    "generation_tokens_per_second": 2990.0,
    "tokens_per_second_per_gpu": 2990.0,
    "gpu_count": 1.0,
    "requests_per_forward_pass": 67.0,
    "batch_assembly_wait_10m_seconds": 1.66,
    "speed_at_equal_load_ratio": 1.0,
    "slower_at_equal_load": False,
}


def test_the_throughput_reads_as_recorded(golden: Callable[[str, str], None]) -> None:
    golden("explain/throughput.txt", "\n".join(throughput_table(NOW, BEFORE, {})) + "\n")
    faster, unjudged = (
        {**NOW, "speed_at_equal_load_ratio": 1.1},
        {"slower_at_equal_load": "no data"},
    )
    assert "faster engine" in "".join(throughput_table(faster, BEFORE, {}))
    assert "engine" not in "".join(throughput_table(faster, BEFORE, unjudged))


def test_only_judged_speeds_of_peers_are_named() -> None:
    page = small_page(evidence={"pool_speed_at_equal_load_ratio": Amount(value=0.82, unit="1")})
    unjudged = {"of_targets": 4, "slower": 1}
    assert peers(page.model_copy(update={"peers": unjudged})) == "1 of 4 replicas"
    two = {"of_targets": 3, "slower": 2, "speed_low_ratio": 0.83, "speed_high_ratio": 0.83}
    assert peers(page.model_copy(update={"peers": two})) == (
        "2 of 3 replicas by more than the threshold; the other is 17 % slower at equal load"
    )
    assert peers(page.model_copy(update={"servers": Servers(concerned=3, of=3, first=())})) is None
    full = small_page(
        severity="page",
        peers={"of_targets": 3, "utilization_ratio": 0.8},
        phrases=Phrases(advice="Drain it"),
    )
    assert imperatives(full)[0] == "Add a replica, then drain it"
    assert [line.text for line in advice_lines(full)] == [
        "Add a replica, then drain it",
        "until then keep it in rotation, at a lower weight if the router can",
        "the other two go from 80 to 120 % of their capacity, with 1 replica more to 80 %",
    ]
    over = full.model_copy(update={"peers": {"of_targets": 4, "utilization_ratio": 1.15}})
    assert imperatives(over)[0] == "Add 3 replicas, then drain it"
    assert str(room(over)).endswith("3 replicas more to 77 %; the pool is overloaded anyway")
    unknown = [line.text for line in advice_lines(full.model_copy(update={"peers": None}))]
    assert unknown[1].startswith("unknown whether the others can take its load")
    all_slow = {"slower": 3, "of_targets": 3, "speed_low_ratio": 0.8, "speed_high_ratio": 0.9}
    assert peers(page.model_copy(update={"peers": all_slow})) == "3 of 3 replicas"


def test_what_is_unknown_is_named() -> None:
    no_speed = NOW | {"speed_at_equal_load_ratio": None, "slower_at_equal_load": None}
    reasons = {"slower_at_equal_load": "not judged yet: 15 of 20 minutes of data"}
    found = attribution(no_speed, BEFORE, reasons)
    assert not isinstance(found, str)
    assert found.unknown == {"load and speed": "not judged yet: 15 of 20 minutes of data"}
    # a time that rose is not printed with a minus
    assert "tokens/s a request" in found.factors
    (why,) = throughput_table(NOW, {}, {})
    assert why.startswith("Where the throughput went: not compared, no baseline")


def test_shares_on_the_edges_that_both_have() -> None:
    inf = math.inf
    histograms = {
        "reference_prompt_tokens_buckets": [8.0, 60.0, 94.0, 100.0, 100.0],
        "reference_prompt_tokens_edges": [200.0, 500.0, 1000.0, 2000.0, inf],
        "prompt_tokens_buckets": [0.0, 5.0, 24.0, 48.0, 50.0],
        "prompt_tokens_edges": [200.0, 500.0, 1000.0, 2000.0, inf],
    }
    found = shares(histograms, "prompt_tokens")
    assert found is not None
    assert (found.baseline_requests, found.requests) == (100.0, 50.0)
    assert found.share == pytest.approx((0, 0.1, 0.38, 0.48, 0.04))
    table = shares_table(found, "prompt")
    assert [line.split() for line in table] == [
        ["prompt", "tokens", "≤200", "≤500", "≤1k", "≤2k", ">2k", "requests,", "%"],
        ["baseline", "8", "52", "34", "6", "0", "n", "100"],
        ["now", "0", "10", "38", "48", "4", "n", "50"],
    ]
    other = {**histograms, "prompt_tokens_edges": [200.0, 700.0, 1000.0, 2000.0, inf]}
    aligned = shares(other, "prompt_tokens")
    assert aligned is not None and aligned.edges_tokens == (200.0, 1000.0, 2000.0, None)
    assert sum(aligned.baseline_share) == pytest.approx(1)
    assert (
        shares({**histograms, "prompt_tokens_edges": [1.0, 2.0, 3.0, 4.0, inf]}, "prompt_tokens")
        is None
    )
    assert shares({}, "prompt_tokens") is None
