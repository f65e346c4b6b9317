"""``driftwatch simulate`` as it is called: a log or a rate in, what it says, how it ends."""

from __future__ import annotations

import errno
import gzip
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import click
import numpy as np
import polars as pl
import pytest

from driftwatch.simulate import hardware

Run = Callable[..., tuple[int, str, str]]
SVG = "{http://www.w3.org/2000/svg}"
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
    assert first.startswith("3 of 3 requests finished, mean TTFT 10.0 ms")
    assert head.split("\t") == ["latency, s", "p50", "p90", "p99", "mean", "max"]
    assert [row.split("\t")[0] for row in rows[:4]] == [
        "TTFT", "ITL, a request's mean", "end to end", "queue",
    ]  # fmt: skip


def test_columns_that_the_settings_do_not_look_at_are_named(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_text(
        "arrival_seconds,prompt_tokens,generation_tokens,priority,cached_tokens,adapter,user\n"
        "0,100,3,1,16,0,ana\n"
    )
    log = ("--requests", path, "--step-time", STEP_TIME)
    notes = document(run, *log, "--no-enable-prefix-caching")["notes"]
    assert {
        "columns not used: user",
        "priority is not used: --scheduling-policy is fcfs",
        "prefixes are not used: prefix caching is off",
        "adapters bind nothing here",
    } <= set(notes)
    notes = " ".join(document(run, *log, "--scheduling-policy", "priority")["notes"])
    assert "priority is" not in notes
    assert "prefixes" not in notes


def test_a_gpu_and_a_model_are_a_prior(run: Run, small: Path) -> None:
    code, out, err = run("--requests", small, "--gpu", "H100-80GB", "--model", "llama-3.1-8b")
    assert code == 0
    assert "a prior, not a measurement" in err
    assert "max_num_seqs 1024" in err
    assert out.startswith("3 of 3 requests finished")


def test_a_closed_loop_a_limit_a_slower_clock_and_patience(run: Run, small: Path) -> None:
    """Steps of 0.1 s: 3, 1 and 2 of them."""
    closed = document(run, "--requests", small, *FLAT, "--concurrency", 1)
    assert closed["throughput"]["span_seconds"] == pytest.approx(0.6)
    slow = document(run, "--requests", small, *FLAT, "--limit", 2, "--arrival-scale", 3)
    assert slow["requests"]["finished"] == 2
    assert slow["throughput"]["span_seconds"] == pytest.approx(1.6)
    late = document(run, "--requests", small, *FLAT, "--timeout-seconds", 0.25)
    assert (late["requests"]["timed_out"], late["requests"]["finished"]) == (1, 2)


def test_a_closed_loop_begins_with_all_its_clients_and_their_own_patience(
    run: Run, tmp_path: Path
) -> None:
    path = tmp_path / "log.csv"
    path.write_text(
        "arrival_seconds,prompt_tokens,generation_tokens,cancel_seconds\n"
        "1700000000,10,3,\n1700000100,10,50,1700000100.25\n1700000200,10,2,\n"
    )
    found = document(run, "--requests", path, *FLAT, "--concurrency", 2)
    assert (found["requests"]["finished"], found["requests"]["cancelled"]) == (2, 1)
    assert found["throughput"]["span_seconds"] == pytest.approx(0.5, abs=0.11)


def test_patience_is_not_stretched(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_text(
        "arrival_seconds,prompt_tokens,generation_tokens,cancel_seconds\n1,10,50,6.5\n2,10,5,\n"
    )
    # 50 steps take 5 s of 5.5: stretched or not the same patience
    for factor in (1, 10):
        scaled = document(run, "--requests", path, *FLAT, "--arrival-scale", factor)
        assert scaled["requests"]["finished"] == 2
    code, *_ = run(
        "--requests", path, "--step-time", "0.2,0,0,0", "--arrival-scale", 10, "--limit", 1
    )
    assert code == 4


def test_requests_at_a_rate_need_no_file(run: Run) -> None:
    asked = ("--rate", 20, "--step-time", STEP_TIME, "--prompt-tokens", 200, "--limit", 1000)
    found = document(run, *asked)
    assert found == document(run, *asked)
    assert found["requests"]["finished"] == 1000
    assert found["throughput"]["requests_per_second"] == pytest.approx(20, rel=0.1)
    assert found["throughput"]["prompt_tokens_per_second"] == pytest.approx(4000, rel=0.15)
    busy = document(run, *asked, "--max-num-seqs", 4)
    assert max(busy["waited_busy_time_ratio"].items(), key=lambda one: one[1])[0] == "max_num_seqs"
    assert "requests waited for max_num_seqs" in busy["answer"]


def test_the_drawing_has_the_answer_and_the_queue(run: Run) -> None:
    code, out, _ = run("--rate", 20, *FLAT, "--limit", 200, "--max-num-seqs", 4, "--plot", "p.svg")
    assert code == 0
    drawing = ElementTree.fromstring(Path("p.svg").read_text())
    assert drawing.findtext(f"{SVG}title") == out.splitlines()[0]
    texts = {"".join(one.itertext()) for one in drawing.iter(f"{SVG}text")}
    assert {"Requests in the server", "running", "waiting"} <= texts


def test_the_limit_that_made_requests_wait_is_named(
    run: Run, shared_data: Path, tmp_path: Path
) -> None:
    """Runs of vLLM's own scheduler: the simulator's share is that of the recorded steps."""
    with gzip.open(shared_data / "scheduler" / "vllm_0.32_golden_2.json.gz", "rt") as lines:
        recorded = {one["name"]: one for one in json.load(lines)}
    for name, limit in (
        ("seqs_16_binds", "max_num_seqs"),
        ("active_24_of_256", "max_num_seqs"),
        ("budget_just_above_seqs", "max_num_batched_tokens"),
    ):
        case = recorded[name]
        pl.DataFrame(
            {
                "arrival_seconds": case["arrival_s"],
                "prompt_tokens": case["prompt_tokens"],
                "generation_tokens": case["generation_tokens"],
            }
        ).write_csv(tmp_path / "log.csv")
        law = ",".join(repr(value) for value in case["step_time_coefficients"].values())
        flags: list[object] = ["--step-time", law, "--max-model-len", 8192]
        for flag in ("max_num_seqs", "max_num_batched_tokens", "max_num_active_seqs",
                     "num_gpu_blocks", "block_size"):  # fmt: skip
            if case[flag] is not None:
                flags += [f"--{flag.replace('_', '-')}", case[flag]]
        for flag in ("async_scheduling", "enable_prefix_caching"):
            flags.append(f"--{'' if case[flag] else 'no-'}{flag.replace('_', '-')}")
        found = document(run, "--requests", tmp_path / "log.csv", *flags)
        waited = found["waited_busy_time_ratio"]
        assert max(waited, key=waited.__getitem__) == limit, name
        trace = np.array(case["trace"])  # of the recorded steps, by their number
        assert waited[limit] <= (trace[:, 4] > 0).mean() * 1.6
        ttft = found["latency"]["ttft_seconds"]["p99"]
        assert ttft == pytest.approx(np.quantile(case["ttft_s"], 0.99))
        assert found["batch"]["steps"] == case["steps"]


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
        (["--step-time", STEP_TIME, "--prompt-tokens", "5"], "--requests and --prompt-tokens"),
        (["--step-time", STEP_TIME, "--num-gpu-blocks", "0"], "num_gpu_blocks must be at least 2"),
        (["--step-time", STEP_TIME, "--num-gpu-blocks", "5"], "never fit in the KV cache"),
        (["--step-time", STEP_TIME, "--tensor-parallel-size", "2"], "only with --gpu"),
        (["--step-time", STEP_TIME, "--requests", "no.csv"], "no.csv: No such file"),
        (["--step-time", STEP_TIME, "--plot", "p.png"], "the name ends in .svg"),
        (["compare"], "--requests: given before compare"),
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


def test_without_requests_it_asks_which(run: Run) -> None:
    code, out, err = run("--step-time", STEP_TIME)
    assert (code, out) == (2, "")
    assert "error: which requests?" in err


def test_a_full_disk_is_told(run: Run, small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    printed = click.echo

    def full(text: str = "", **more: Any) -> None:
        if not more.get("err"):
            raise OSError(errno.ENOSPC, "No space left on device")
        printed(text, **more)

    monkeypatch.setattr(click, "echo", full)
    code, _, err = run("--requests", small, "--step-time", "0.01,0,0,0", "--json")
    assert code == 2
    assert "error: standard output: No space left on device\n" in err


def test_sliding_windows_are_noted(run: Run, small: Path, tmp_path: Path) -> None:
    tables = Path(hardware.__file__).with_name("models.yaml").read_text()
    own = tmp_path / "own.yaml"  # gemma's row under a name that is in no shipped table
    row = tables[tables.index("  gemma-2-9b:\n") :].split("\n  gemma-2-27b:")[0]
    own.write_text(
        "models:\n" + re.sub(r" +aliases:.*\n", "", row.replace("gemma-2-9b", "mine", 1))
    )
    flags = ("--requests", small, "--gpu", "H100-80GB", "--model")
    code, _, err = run(*flags, "mine", "--hardware", own)
    assert code == 0
    assert "note: mine has sliding windows, the scheduler here does not: " in err
    assert "sliding" not in run(*flags, "llama-3.1-8b")[2]


def test_every_impossible_setting_at_once(run: Run, small: Path) -> None:
    code, _, err = run(
        "--requests", small, "--step-time", STEP_TIME, "--max-num-seqs", 64,
        "--max-num-active-seqs", 65, "--max-num-batched-tokens", 32,
    )  # fmt: skip
    assert code == 2
    assert err.count("error: ") == 2
    assert err.count("help: ") == 1


def test_a_broken_log_is_told_line_by_line(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_text(SMALL + "0.4,0,1\n-1,5,5\n")
    code, out, err = run("--requests", path, "--step-time", STEP_TIME)
    assert (code, out) == (2, "")
    assert [line.split(": ")[1].rsplit(":", 1)[1] for line in err.splitlines()] == ["5", "5", "6"]
