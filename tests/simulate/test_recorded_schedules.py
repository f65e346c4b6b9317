"""Recorded runs of vLLM 0.32's own scheduler: every step, every time, every hit.

Sixteen that were chosen (``golden_cases``), and more over random settings.
"""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from golden_cases import COLUMNS, NAMES, case_of, load_golden

from driftwatch.simulate.configuration import SchedulerConfiguration
from driftwatch.simulate.outcome import Run
from driftwatch.simulate.requests import Requests, make_requests
from driftwatch.simulate.step_time import StepTime
from driftwatch.simulate.trial import simulate

FILE = Path(__file__).resolve().parents[1] / "data" / "scheduler" / "vllm_0.32_random.json.gz"
RANDOM: list[dict[str, Any]] = json.loads(gzip.decompress(FILE.read_bytes()))
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


def random_case(run: dict[str, Any]) -> tuple[Requests, SchedulerConfiguration, StepTime]:
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


@pytest.fixture(scope="module")
def golden(shared_data: Path) -> dict[str, dict[str, Any]]:
    return load_golden(shared_data)


def same_steps_and_times(ran: Run, run: dict[str, Any]) -> None:
    columns = COLUMNS[: len(run.get("trace_columns", COLUMNS))]
    assert [list(row) for row in ran.steps.select(columns).iter_rows()] == run["trace"]
    for column, said in (("ttft_seconds", "ttft_s"), ("e2e_seconds", "e2e_s")):
        np.testing.assert_allclose(ran.requests[column], run[said], rtol=0, atol=1e-6)
    if run.get("enable_prefix_caching"):
        assert ran.requests["cached_tokens"].to_list() == run["cached_tokens"]


@pytest.mark.parametrize("name", NAMES)
def test_every_step_and_every_time(golden: dict[str, dict[str, Any]], name: str) -> None:
    run = golden[name]
    ran = simulate(*case_of(run), per_step=True)
    same_steps_and_times(ran, run)
    if "preemptions" not in run:
        return
    scheduled = ran.requests["first_scheduled_seconds"]
    np.testing.assert_allclose(scheduled, run["first_scheduled_s"], rtol=0, atol=1e-6)
    for total in ("preemptions", "empty_schedules"):
        assert ran.summary[total] == run[total]
    preempted = {str(i): int(ran.preemptions[i]) for i in np.flatnonzero(ran.preemptions)}
    assert preempted == run["request_preemptions"]
    if run["enable_prefix_caching"]:
        assert ran.summary["evicted_cached_blocks"] == run["evicted_cached_blocks"]


@pytest.mark.parametrize("run", RANDOM, ids=lambda run: run["name"])
def test_random_settings(run: dict[str, Any]) -> None:
    ran = simulate(*random_case(run), per_step=True)
    same_steps_and_times(ran, run)
    assert ran.preemptions.tolist() == run["request_preemptions"]
