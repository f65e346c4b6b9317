"""vLLM 0.32's own scheduler, driven over random settings: every step, every time, every hit."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from golden_cases import COLUMNS
from reference import run_reference

from driftwatch.simulate.configuration import SchedulerConfiguration
from driftwatch.simulate.requests import Requests, make_requests
from driftwatch.simulate.step_time import StepTime
from driftwatch.simulate.trial import simulate

FILE = Path(__file__).resolve().parents[1] / "data" / "scheduler" / "vllm_0.32_random.json.gz"
RUNS: list[dict[str, Any]] = json.loads(gzip.decompress(FILE.read_bytes()))
SETTINGS = (
    "max_num_seqs",
    "max_num_batched_tokens",
    "num_gpu_blocks",
    "block_size",
    "max_model_len",
    "max_num_active_seqs",
    "long_prefill_token_threshold",
    "long_prefill_token_threshold_adaptive",
    "enable_chunked_prefill",
    "watermark",
    "scheduler_reserve_full_isl",
    "enable_prefix_caching",
    "async_scheduling",
)


def case_of(run: dict[str, Any]) -> tuple[Requests, SchedulerConfiguration, StepTime]:
    requests = make_requests(
        run["arrival_s"],
        run["prompt_tokens"],
        run["generation_tokens"],
        priority=run["priority"],
        prefix_group=run["prefix_group"],
        shared_prefix_tokens=run["shared_prefix_tokens"],
    )
    configuration = SchedulerConfiguration(
        **{name: run[name] for name in SETTINGS}, scheduling_policy=run["policy"]
    )
    return requests, configuration, StepTime(*run["step_time"])


@pytest.mark.parametrize("run", RUNS, ids=lambda run: run["name"])
def test_the_simulator_does_what_vllm_did(run: dict[str, Any]) -> None:
    outcome = simulate(*case_of(run), per_step=True)
    assert [list(row) for row in outcome.steps.select(COLUMNS).iter_rows()] == run["trace"]
    requests = outcome.requests
    np.testing.assert_allclose(requests["ttft_seconds"], run["ttft_s"], rtol=0, atol=1e-6)
    np.testing.assert_allclose(requests["e2e_seconds"], run["e2e_s"], rtol=0, atol=1e-6)
    assert requests["preemptions"].to_list() == run["request_preemptions"]
    if run["enable_prefix_caching"]:
        assert requests["cached_tokens"].to_list() == run["cached_tokens"]


@pytest.mark.parametrize("run", RUNS[::5], ids=lambda run: run["name"])
def test_so_does_the_specification(run: dict[str, Any]) -> None:
    result = run_reference(*case_of(run))
    assert [[step[name] for name in COLUMNS] for step in result.steps] == run["trace"]


def test_every_feature_is_in_the_runs() -> None:
    for name in ("async_scheduling", "enable_prefix_caching", "enable_chunked_prefill"):
        assert {run[name] for run in RUNS} == {True, False}
    assert {run["policy"] for run in RUNS} == {"fcfs", "priority"}
    assert any(run["async_scheduling"] and sum(run["request_preemptions"]) for run in RUNS)
