"""``driftwatch simulate run`` writes what vLLM's own scheduler did."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(run: Run) -> Run:
    return lambda *words: run("simulate", "run", *words)


@pytest.fixture(scope="module")
def golden(shared_data: Path) -> dict[str, dict[str, Any]]:
    """What vLLM's own scheduler did, by configuration."""
    with gzip.open(shared_data / "scheduler" / "vllm_0.32_golden_2.json.gz", "rt") as lines:
        return {one["name"]: one for one in json.load(lines)}


def flags(case: dict[str, Any]) -> list[object]:
    """The command line of a recorded configuration."""
    law = case["step_time_coefficients"]
    found: list[object] = ["--step-time", ",".join(repr(value) for value in law.values())]
    for name in (
        "max_num_seqs",
        "max_num_batched_tokens",
        "max_num_active_seqs",
        "num_gpu_blocks",
        "block_size",
        "long_prefill_token_threshold",
        "watermark",
    ):
        if case[name] is not None:
            found += [f"--{name.replace('_', '-')}", case[name]]
    found += ["--max-model-len", 8192, "--scheduling-policy", case["policy"]]
    for name in ("async_scheduling", "enable_prefix_caching", "scheduler_reserve_full_isl"):
        found.append(f"--{'' if case[name] else 'no-'}{name.replace('_', '-')}")
    return found


def log(case: dict[str, Any], folder: Path, kind: str) -> Path:
    """Its requests as a file."""
    frame = pl.DataFrame(
        {
            "arrival_seconds": case["arrival_s"],
            "prompt_tokens": case["prompt_tokens"],
            "generation_tokens": case["generation_tokens"],
            **{
                name: case[name]
                for name in ("priority", "prefix_group", "shared_prefix_tokens")
                if name in case
            },
        }
    )
    path = folder / f"log.{kind}"
    {"csv": frame.write_csv, "jsonl": frame.write_ndjson, "parquet": frame.write_parquet}[kind](
        path
    )
    return path


@pytest.mark.parametrize(
    ("name", "kind", "suffix"),
    [
        ("seqs_16_binds", "csv", ".jsonl"),
        ("priority_preempt", "parquet", ".jsonl.gz"),
        ("threshold_256_preempt", "jsonl", ".parquet"),
        ("prefix_roomy", "jsonl", ".jsonl"),
        ("prefix_scarce", "csv", ".parquet"),
        ("async_preempt", "csv", ".jsonl"),
    ],
)
def test_the_files_hold_what_vllms_scheduler_did(
    name: str,
    kind: str,
    suffix: str,
    run: Run,
    golden: dict[str, dict[str, Any]],
    tmp_path: Path,
) -> None:
    case = golden[name]
    requests, steps = tmp_path / f"requests{suffix}", tmp_path / f"steps{suffix}"
    code, out, _ = run(
        "--requests", log(case, tmp_path, kind), *flags(case),
        "--per-request", requests, "--per-step", steps, "--json",
    )  # fmt: skip
    assert code == 0
    read = pl.read_parquet if suffix == ".parquet" else pl.read_ndjson
    found = read(requests)
    assert found["prompt_tokens"].to_list() == case["prompt_tokens"]
    for column, recorded in (("ttft_seconds", "ttft_s"), ("e2e_seconds", "e2e_s")):
        np.testing.assert_allclose(found[column], case[recorded], atol=1e-6, rtol=0)
    queue = np.subtract(case["first_scheduled_s"], case["arrival_s"])
    np.testing.assert_allclose(found["queue_seconds"], queue, atol=1e-6, rtol=0)
    preempted = np.zeros(len(found), dtype=int)
    preempted[[int(one) for one in case["request_preemptions"]]] = list(
        case["request_preemptions"].values()
    )
    assert found["preemptions"].to_list() == preempted.tolist()
    trace = np.array(case["trace"])
    composition = read(steps)
    for index, column in enumerate(("prefill_tokens", "decode_seqs", "kv_tokens_read", "running")):
        assert composition[column].to_list() == trace[:, index].tolist(), column
    said = json.loads(out)
    assert said["schema_version"] == 1
    assert said["requests"]["finished"] == len(found)
    assert said["preemptions"] == case["preemptions"]
    assert said["latency"]["ttft_seconds"]["p99"] == pytest.approx(
        np.quantile(case["ttft_s"], 0.99)
    )
    assert said["batch"]["steps"] == case["steps"]


def test_the_limit_that_made_requests_wait_is_named(
    run: Run, golden: dict[str, dict[str, Any]], tmp_path: Path
) -> None:
    for name, limit in (
        ("seqs_16_binds", "max_num_seqs"),
        ("active_24_of_256", "max_num_seqs"),
        ("budget_just_above_seqs", "max_num_batched_tokens"),
        ("watermark_5pct", "kv_cache"),
    ):
        case = golden[name]
        code, out, _ = run("--requests", log(case, tmp_path, "csv"), *flags(case), "--json")
        waited = json.loads(out)["waited_busy_time_ratio"]
        assert code == 0
        assert max(waited, key=waited.__getitem__) == limit, name
        # of the recorded steps, by their number
        trace = np.array(case["trace"])
        assert waited[limit] <= (trace[:, 4] > 0).mean() * 1.6
