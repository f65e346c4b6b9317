"""What a limit that is plainly full is worth, where no simulation can be trusted."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from engine_minutes import H100_8B, by_hand, server_with

from driftwatch.model import Slo
from driftwatch.recommend.closed_form import closed_form
from driftwatch.recommend.demand import Demand
from driftwatch.recommend.window import Window
from driftwatch.simulate.configuration import SchedulerConfiguration

LENGTHS = Demand(np.full(9, 600), np.full(9, 200), np.ones(1), np.ones(1), 0.0, 16)
SETTINGS = SchedulerConfiguration(32, 2048, 8000)
EVIDENCE = {
    "binding_limit": "max_num_seqs",
    "binding_running_requests": 32.0,
    "binding_waiting_requests": 40.0,
}
SLO = Slo(1.0, 0.05)
MINUTES = {
    "kv_cache_usage_ratio": 0.2,
    "preemptions_total": 0.0,
    "forward_passes": 6000.0,
    "iteration_tokens_sum": 6000.0 * 50,
    "generation_tokens_total": 6000.0 * 32,
    "tpot_seconds_sum": 10.0,
    "tpot_seconds_count": 1000.0,  # 10 ms
}
BUDGET_FULL = {
    "evidence": {"binding_limit": "max_num_batched_tokens"},
    "rows": {"iteration_tokens_sum": 6000.0 * 2000},
    "pass_seconds": 0.05,
}


def found(
    evidence: dict[str, Any] | None = None,
    rows: dict[str, Any] | None = None,
    slo: Slo | None = SLO,
    settings: SchedulerConfiguration = SETTINGS,
    pass_seconds: float = H100_8B.c0_seconds,
) -> Any:
    window = Window(by_hand(10, **{**MINUTES, **(rows or {})}))
    model = replace(H100_8B, c0_seconds=pass_seconds)
    told = {**EVIDENCE, **(evidence or {})}
    server = server_with(settings)
    return closed_form(told, server, window, LENGTHS, slo, (model,))


@pytest.mark.parametrize(
    ("asked", "value"),
    [
        ({}, 128.0),  # 72 are there, up to a size whose graph is captured
        ({"evidence": {"binding_waiting_requests": 5.0}}, 64.0),  # twice at least
        ({"evidence": {"binding_waiting_requests": 900.0}}, 128.0),  # what KV holds
        ({"rows": {"kv_cache_usage_ratio": 0.4}}, 64.0),  # twice is what KV holds
        ({"slo": None}, 64.0),  # nobody said how slow a token may be
        ({"slo": Slo(1.0, 0.021)}, 64.0),  # twice the 10 ms
        ({"settings": replace(SETTINGS, max_num_batched_tokens=64)}, 64.0),
        (BUDGET_FULL, 4096.0),
    ],
)
def test_the_value(asked: dict[str, Any], value: float) -> None:
    one = found(**asked)
    assert one is not None and one.value == value
    assert 0.10 <= one.gain_low <= one.gain_high < one.times


@pytest.mark.parametrize(
    "asked",
    [
        {"evidence": {"binding_limit": "kv_cache"}},
        {"evidence": {"binding_limit": None}},
        {"evidence": {"binding_running_requests": None}},
        {"evidence": {"binding_waiting_requests": None}},
        {"evidence": {"binding_waiting_requests": 0.0}},
        {"rows": {"kv_cache_usage_ratio": 0.9}},  # KV is next
        {"rows": {"kv_cache_usage_ratio": None}},
        {"rows": {"preemptions_total": 1.0}},
        {"rows": {"preemptions_total": None}},
        {"slo": Slo(1.0, 0.011)},  # no token may be slower
        {"settings": replace(SETTINGS, max_num_batched_tokens=32)},  # vLLM takes no more
        {**BUDGET_FULL, "rows": {}},  # the steps are not full
        {**BUDGET_FULL, "pass_seconds": 0.005},  # they hold more, and take as much longer
        {**BUDGET_FULL, "slo": Slo(1.0, 0.015)},
        {**BUDGET_FULL, "settings": replace(SETTINGS, max_num_batched_tokens=16384)},
    ],
)
def test_what_is_unknown_or_near_is_no_answer(asked: dict[str, Any]) -> None:
    assert found(**asked) is None
