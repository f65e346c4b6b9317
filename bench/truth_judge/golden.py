"""The simulator against what vLLM's own scheduler did, through ``driftwatch simulate run``.

Golden runs (``scheduler/*.json.gz``): step compositions, times to first token and end-to-end times
of vLLM 0.32's real ``Scheduler`` class. Equal means: every step's composition is the same, and
every time is within 1e-6 s.
"""

from __future__ import annotations

import csv
import gzip
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from truth_judge.commands import driftwatch

TOLERANCE_SECONDS = 1e-6
MAX_MODEL_LEN = 8192  # of every golden run, as its README says
# what --per-step calls the columns of a trace
_STEP_COLUMNS = {
    "prefill_tokens": "prefill_tokens",
    "decode_seqs": "decode_seqs",
    "kv_tokens_read": "kv_tokens_read",
    "running_after": "running",
    "waiting_after": "waiting",
    "preempted": "preempted",
    "free_blocks_after": "free_blocks",
}


@dataclass(frozen=True, slots=True)
class Equality:
    """One golden run, compared.

    Attributes:
        name: of the run.
        steps: how many the golden run has.
        steps_equal: of these, from the first on, until the first that differs.
        ttft_error_seconds: largest of all requests; None where requests differ in number.
        e2e_error_seconds: likewise.
        problem: why nothing was compared; None where it was.
    """

    name: str
    steps: int
    steps_equal: int = 0
    ttft_error_seconds: float | None = None
    e2e_error_seconds: float | None = None
    problem: str | None = None

    @property
    def equal(self) -> bool:
        """Every step and every time."""
        errors = (self.ttft_error_seconds, self.e2e_error_seconds)
        return self.steps_equal == self.steps and all(
            e is not None and e <= TOLERANCE_SECONDS for e in errors
        )


def golden_runs(data: Path) -> Iterator[dict[str, Any]]:
    """Every recorded run of the real scheduler, with its own arrays."""
    for path in sorted((data / "scheduler").glob("*.json.gz")):
        with gzip.open(path, "rt") as file:
            runs = json.load(file)
        for number, run in enumerate(runs):
            if "arrival_s" not in run:
                run |= _from_trace(data, run)
            run.setdefault("name", f"{path.name.split('.json')[0]} {number + 1}")
            yield run


def _from_trace(data: Path, run: Mapping[str, Any]) -> dict[str, Any]:
    """The arrays of a run that names only how the conversation trace was scaled and capped."""
    with gzip.open(data / "traces" / "azure_2023_conv.csv.gz", "rt") as file:
        rows = [row for row, _ in zip(csv.DictReader(file), range(run["requests"]), strict=False)]
    times = [_seconds(row["TIMESTAMP"]) for row in rows]
    most = run["max_prompt_tokens"]
    return {
        "arrival_s": [(t - times[0]) * run["arrival_scale"] for t in times],
        "prompt_tokens": [min(max(int(r["ContextTokens"]), 1), most) for r in rows],
        "generation_tokens": [max(int(r["GeneratedTokens"]), 1) for r in rows],
    }


def _seconds(text: str) -> float:
    hours, minutes, seconds = text.split(" ")[1].split(":")
    return int(hours) * 3600 + int(minutes) * 60 + float(seconds)


def flags_of(run: Mapping[str, Any]) -> list[str]:
    """vLLM's flags of a run, as ``driftwatch simulate run`` takes them."""
    step_time = run["step_time_coefficients"]
    words = ["--step-time", ",".join(repr(value) for value in step_time.values())]
    for key in (
        "max_num_seqs",
        "max_num_batched_tokens",
        "max_num_active_seqs",
        "num_gpu_blocks",
        "block_size",
        "long_prefill_token_threshold",
        "watermark",
    ):
        if run.get(key) is not None:
            words += [f"--{key.replace('_', '-')}", str(run[key])]
    words += ["--max-model-len", str(run.get("max_model_len", MAX_MODEL_LEN))]
    words += ["--scheduling-policy", run.get("policy", "fcfs")]
    for key, otherwise in (
        ("async_scheduling", False),
        ("enable_prefix_caching", False),
        ("scheduler_reserve_full_isl", True),
    ):
        words.append(f"--{'' if run.get(key, otherwise) else 'no-'}{key.replace('_', '-')}")
    return words


def compare(run: Mapping[str, Any], folder: Path) -> Equality:
    """Replay one golden run and hold the simulator's files against it."""
    asked, per_request = folder / "requests.jsonl", folder / "per_request.parquet"
    per_step = folder / "per_step.parquet"
    _requests(run).write_ndjson(asked)
    words = ["--requests", str(asked), "--per-request", str(per_request)]
    words += ["--per-step", str(per_step), *flags_of(run)]
    try:
        driftwatch("simulate", "run", *words)
    except RuntimeError as error:
        return Equality(run["name"], run["steps"], problem=str(error)[-300:])
    names = [_STEP_COLUMNS[column] for column in run["trace_columns"]]
    made = pl.read_parquet(per_step).select(names).rows()
    equal = 0
    for ours, theirs in zip(made, run["trace"], strict=False):
        if list(ours) != list(theirs):
            break
        equal += 1
    if len(made) > len(run["trace"]) and equal == len(run["trace"]):
        equal -= 1  # a step more than vLLM made
    times = pl.read_parquet(per_request)
    return Equality(
        run["name"],
        run["steps"],
        equal,
        _largest(times["ttft_seconds"], run["ttft_s"]),
        _largest(times["e2e_seconds"], run["e2e_s"]),
    )


def _requests(run: Mapping[str, Any]) -> pl.DataFrame:
    columns = {
        "arrival_seconds": run["arrival_s"],
        "prompt_tokens": run["prompt_tokens"],
        "generation_tokens": run["generation_tokens"],
    }
    if "priority" in run:
        columns["priority"] = run["priority"]
    if "prefix_group" in run:
        columns["prefix_group"] = run["prefix_group"]
        columns["shared_prefix_tokens"] = run["shared_prefix_tokens"]
    return pl.DataFrame(columns)


def _largest(ours: pl.Series, theirs: list[float]) -> float | None:
    if len(ours) != len(theirs) or ours.null_count():
        return None
    return float((ours - pl.Series(theirs)).abs().max())  # type: ignore[arg-type]
