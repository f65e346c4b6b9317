"""Sixteen recorded runs of vLLM 0.32's own scheduler: every step, every time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from golden_cases import COLUMNS, NAMES, case_of, load_golden
from reference import run_reference

from driftwatch.simulate.trial import simulate


@pytest.fixture(scope="module")
def golden(shared_data: Path) -> dict[str, dict[str, Any]]:
    return load_golden(shared_data)


@pytest.mark.parametrize("name", NAMES)
def test_every_step_and_every_time(golden: dict[str, dict[str, Any]], name: str) -> None:
    run = golden[name]
    outcome = simulate(*case_of(run), per_step=True)
    columns = COLUMNS[: len(run["trace_columns"])]
    assert [list(row) for row in outcome.steps.select(columns).iter_rows()] == run["trace"]
    requests = outcome.requests
    np.testing.assert_allclose(requests["ttft_seconds"], run["ttft_s"], rtol=0, atol=1e-6)
    np.testing.assert_allclose(requests["e2e_seconds"], run["e2e_s"], rtol=0, atol=1e-6)
    if "preemptions" not in run:
        return
    np.testing.assert_allclose(
        requests["first_scheduled_seconds"], run["first_scheduled_s"], rtol=0, atol=1e-6
    )
    assert outcome.summary["preemptions"] == run["preemptions"]
    assert outcome.summary["empty_schedules"] == run["empty_schedules"]
    preempted = {
        str(i): count for i, count in enumerate(requests["preemptions"].to_list()) if count
    }
    assert preempted == run["request_preemptions"]
    if run["enable_prefix_caching"]:
        assert requests["cached_tokens"].to_list() == run["cached_tokens"]
        assert outcome.summary["evicted_cached_blocks"] == run["evicted_cached_blocks"]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["prefix_scarce", "async_preempt", "priority_preempt"])
def test_the_reference_says_the_same(golden: dict[str, dict[str, Any]], name: str) -> None:
    run = golden[name]
    result = run_reference(*case_of(run))
    assert [[step[column] for column in COLUMNS] for step in result.steps] == run["trace"]


def test_given_hits_where_blocks_are_plenty(golden: dict[str, dict[str, Any]]) -> None:
    run = golden["prefix_roomy"]
    requests, configuration, law = case_of(run)
    requests.cached_tokens[:] = run["cached_tokens"]
    requests.prefix_group[:] = -1
    requests.shared_prefix_tokens[:] = 0
    outcome = simulate(requests, configuration, law)
    np.testing.assert_allclose(outcome.requests["e2e_seconds"], run["e2e_s"], rtol=0, atol=1e-6)
