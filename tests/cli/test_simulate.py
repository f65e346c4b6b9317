"""``driftwatch simulate`` as it is called: a log or a rate in, what it says, how it ends."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Run = Callable[..., tuple[int, str, str]]
STEP_TIME = "0.009,6e-05,6.5e-05,4e-07"
SMALL = "arrival_seconds,prompt_tokens,generation_tokens\n0,100,3\n0.5,200,1\n0.5,50,2\n"
FLAT = ("--step-time", "0.1,0,0,0", "--no-async-scheduling")


@pytest.fixture
def run(run: Run) -> Run:
    return lambda *words: run("simulate", *words)


@pytest.fixture
def small(tmp_path: Path) -> Path:
    path = tmp_path / "small.csv"
    path.write_text(SMALL)
    return path


def document(run: Run, *words: object) -> dict[str, Any]:
    code, out, err = run(*words, "--json")
    assert code == 0, err
    found: dict[str, Any] = json.loads(out)
    assert found["schema_version"] == 2
    return found


def test_what_was_taken_is_said(run: Run, small: Path) -> None:
    found = document(run, "--requests", small, "--step-time", "0.01,0,0,0")
    notes = found["notes"]
    assert "max_num_seqs 256: vLLM's default on a GPU that is not named" in notes
    assert "num_gpu_blocks unknown: the KV cache never binds" in notes
    assert found["kv_cache_binds"] is False
    assert found["configuration"]["async_scheduling"] is True
    assert found["latency"]["itl_seconds"]["n"] == 2
    assert found["latency"]["itl_seconds"]["p90"] is None
    assert found["latency_reason"].startswith("null: too few requests for this quantile")
    code, out, err = run("--requests", small, "--step-time", "0.01,0,0,0")
    assert code == 0
    assert [f"note: {one}" for one in notes] == err.splitlines()
    first, head, *rows = out.splitlines()
    assert first.startswith("3 of 3 requests finished, mean TTFT 10 ms")
    assert head.split("\t") == ["latency, s", "p50", "p90", "p99", "mean", "max"]
    assert [row.split("\t")[0] for row in rows[:4]] == [
        "TTFT", "ITL, a request's mean", "end to end", "queue",
    ]  # fmt: skip


def test_a_gpu_and_a_model_are_a_prior(run: Run, small: Path) -> None:
    code, out, err = run("--requests", small, "--gpu", "H100-80GB", "--model", "llama-3.1-8b")
    assert code == 0
    assert "a prior, not a measurement" in err
    assert "max_num_seqs 1024" in err
    assert out.startswith("3 of 3 requests finished")


def test_a_closed_loop_and_patience(run: Run, small: Path) -> None:
    """Steps of 0.1 s: 3, 1 and 2 of them."""
    closed = document(run, "--requests", small, *FLAT, "--concurrency", 1)
    assert closed["throughput"]["span_seconds"] == pytest.approx(0.6)
    patient = SMALL.replace("tokens\n", "tokens,cancel_seconds\n")
    small.write_text(patient.replace("3\n", "3,0.25\n").replace("1\n", "1,9\n") + ",9\n")
    small.write_text(small.read_text().replace("50,2\n,9", "50,2,9"))
    late = document(run, "--requests", small, *FLAT)
    assert (late["requests"]["cancelled"], late["requests"]["finished"]) == (1, 2)


def test_requests_at_a_rate_need_no_file(run: Run) -> None:
    asked = ("--rate", 20, "--step-time", STEP_TIME, "--prompt-tokens", 200)
    found = document(run, *asked)
    assert found == document(run, *asked)
    assert found["requests"]["finished"] == 2000
    assert found["throughput"]["requests_per_second"] == pytest.approx(20, rel=0.1)
    assert found["throughput"]["prompt_tokens_per_second"] == pytest.approx(4000, rel=0.15)
    busy = document(run, *asked, "--max-num-seqs", 4)
    assert max(busy["waited_busy_time_ratio"].items(), key=lambda one: one[1])[0] == "max_num_seqs"
    assert "requests waited for max_num_seqs" in busy["answer"]


def test_nobody_finished_is_no_verdict(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "gone.csv"
    path.write_text(
        "arrival_seconds,prompt_tokens,generation_tokens,cancel_seconds\n0,10,500,0.05\n"
    )
    code, out, _ = run("--requests", path, *FLAT, "--json")
    assert code == 4
    found = json.loads(out)
    assert found["answer"] == "NO VERDICT: of 1 requests none finished."
    assert found["latency"]["ttft_seconds"] is None
    assert found["latency_reason"] == "no request finished"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--step-time", "1,2"], "--step-time"),
        ([], "the step time is unknown"),
        (["--step-time", STEP_TIME, "--rate", "5"], "--requests and --rate exclude each other"),
        (["--step-time", STEP_TIME, "--num-gpu-blocks-override", "5"], "never fit in the KV cache"),
        (["--step-time", STEP_TIME, "--max-num-sqs", "2"], "did you mean --max-num-seqs?"),
        (["--step-time", STEP_TIME, "--block-size", "x"], "--block-size x: no number"),
        (["--step-time", STEP_TIME, "--watermark", "nan"], "--watermark nan: too large"),
        (["--step-time", STEP_TIME, f"--block-size={10**12}"], "too large"),
        (["--step-time", STEP_TIME, "--max-num-seqs"], "--max-num-seqs has no value"),
        (["--step-time", STEP_TIME, "fast"], "'fast' is no option"),
    ],
)
def test_what_cannot_be_run_is_refused(
    arguments: list[str], said: str, run: Run, small: Path
) -> None:
    code, out, err = run("--requests", small, *arguments)
    assert (code, out) == (2, "")
    assert "error: " in err
    assert said in err
    assert "\nhelp: " in err


def test_a_broken_log_is_told_line_by_line(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_text(SMALL + "0.4,0,1\n-1,5,5\n")
    code, out, err = run("--requests", path, "--step-time", STEP_TIME)
    assert (code, out) == (2, "")
    assert [line.split(": ")[1].rsplit(":", 1)[1] for line in err.splitlines()] == ["5", "5", "6"]
