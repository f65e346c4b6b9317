"""The recorded runs of vLLM 0.32's own scheduler, as cases for the simulator."""

from __future__ import annotations

import csv
import gzip
import json
from datetime import datetime
from pathlib import Path
from typing import Any

from driftwatch.simulate.configuration import SchedulerConfiguration
from driftwatch.simulate.requests import Requests, make_requests
from driftwatch.simulate.step_time import StepTime

COLUMNS = (
    "prefill_tokens",
    "decode_seqs",
    "kv_tokens_read",
    "running",
    "waiting",
    "preempted",
    "free_blocks",
)
NAMES = (
    "roomy",
    "tight",
    "threshold",
    "seqs_16_binds",
    "active_24_of_256",
    "watermark_5pct",
    "prefix_roomy",
    "prefix_scarce",
    "preempt_seqs_24",
    "priority_preempt",
    "no_reserve_full_isl",
    "budget_just_above_seqs",
    "budget_64_seqs_32",
    "threshold_256_preempt",
    "async",
    "async_preempt",
)


def conversation_hour(data: Path) -> tuple[list[float], list[int], list[int]]:
    """The Azure conversation trace: seconds since its first request, prompt, generation."""
    with gzip.open(data / "traces/azure_2023_conv.csv.gz", "rt") as file:
        rows = list(csv.DictReader(file))
    times = []
    for row in rows:
        whole, fraction = row["TIMESTAMP"].split(".")
        times.append((datetime.fromisoformat(whole), float("0." + fraction)))
    start, part = times[0]
    return (
        [(whole - start).total_seconds() + fraction - part for whole, fraction in times],
        [max(1, int(row["ContextTokens"])) for row in rows],
        [max(1, int(row["GeneratedTokens"])) for row in rows],
    )


def load_golden(data: Path) -> dict[str, dict[str, Any]]:
    """All sixteen by name, each with its own arrivals and lengths."""
    runs: list[dict[str, Any]] = []
    for name in ("vllm_0.32_golden.json.gz", "vllm_0.32_golden_2.json.gz"):
        with gzip.open(data / "scheduler" / name) as file:
            runs += json.load(file)
    arrival, prompt, generation = conversation_hour(data)
    for run in runs[:3]:
        count = run["requests"]
        run["arrival_s"] = [t * run["arrival_scale"] for t in arrival[:count]]
        run["prompt_tokens"] = [min(run["max_prompt_tokens"], p) for p in prompt[:count]]
        run["generation_tokens"] = generation[:count]
    return dict(zip(NAMES, runs, strict=True))


def case_of(run: dict[str, Any]) -> tuple[Requests, SchedulerConfiguration, StepTime]:
    """What the simulator is given."""
    same = (
        "max_num_seqs",
        "max_num_batched_tokens",
        "num_gpu_blocks",
        "block_size",
        "long_prefill_token_threshold",
    )
    optional = {
        "max_num_active_seqs": None,
        "long_prefill_token_threshold_adaptive": False,
        "watermark": 0.0,
        "scheduler_reserve_full_isl": True,
        "enable_prefix_caching": False,
        "async_scheduling": False,
    }
    configuration = SchedulerConfiguration(
        **{name: run[name] for name in same},
        **{name: run.get(name, value) for name, value in optional.items()},
        scheduling_policy=run.get("policy", "fcfs"),
        max_model_len=8192,
    )
    requests = make_requests(
        run["arrival_s"],
        run["prompt_tokens"],
        run["generation_tokens"],
        priority=run.get("priority"),
        prefix_group=run.get("prefix_group"),
        shared_prefix_tokens=run.get("shared_prefix_tokens"),
    )
    return requests, configuration, StepTime(*run["step_time_coefficients"].values())
