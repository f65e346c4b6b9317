"""``driftwatch simulate run`` as it is called: files in, files out, what it says, how it ends."""

from __future__ import annotations

import gzip
import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from driftwatch.cli.simulate.files import TableWriter
from driftwatch.cli.simulate.recording import rebuilt
from driftwatch.errors import UsageError
from driftwatch.simulate import hardware
from driftwatch.simulate.configuration import SchedulerConfiguration

Run = Callable[..., tuple[int, str, str]]
STEP_TIME = "0.009,6e-05,6.5e-05,4e-07"


@pytest.fixture
def run(run: Run) -> Run:
    return lambda *words: run("simulate", "run", *words)


SMALL = "arrival_seconds,prompt_tokens,generation_tokens\n0,100,3\n0.5,200,1\n0.5,50,2\n"


@pytest.fixture
def small(tmp_path: Path) -> Path:
    path = tmp_path / "small.csv"
    path.write_text(SMALL)
    return path


def test_what_was_taken_is_said(run: Run, small: Path) -> None:
    code, out, err = run("--requests", small, "--step-time", "0.01,0,0,0", "--json")
    assert code == 0
    assert "note: max_num_seqs 256: vLLM's default on a GPU that is not named\n" in err
    assert "note: max_num_batched_tokens 2048: " in err
    assert "note: num_gpu_blocks unknown: the KV cache never binds\n" in err
    said = json.loads(out)
    assert said["kv_cache_binds"] is False
    assert said["notes"] == [line.removeprefix("note: ") for line in err.splitlines()]
    assert said["configuration"]["async_scheduling"] is True
    assert said["latency"]["itl_seconds"]["n"] == 2
    assert said["latency"]["itl_seconds"]["p90"] is None
    assert said["latency_reason"].startswith("null: too few requests for this quantile")


def test_columns_that_the_settings_do_not_look_at_are_named(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_text(
        "arrival_seconds,prompt_tokens,generation_tokens,priority,cached_tokens,adapter,user\n"
        "0,100,3,1,16,0,ana\n"
    )
    code, _, err = run("--requests", path, "--step-time", STEP_TIME, "--no-enable-prefix-caching")
    assert code == 0
    for note in (
        "columns not used: user",
        "priority is not used: --scheduling-policy is fcfs",
        "prefixes are not used: prefix caching is off",
        "adapters bind nothing: --max-loras is not given",
    ):
        assert f"note: {note}\n" in err
    code, _, err = run(
        "--requests", path, "--step-time", STEP_TIME, "--scheduling-policy", "priority",
        "--max-loras", 1,
    )  # fmt: skip
    assert code == 0
    assert "priority is" not in err
    assert "adapters" not in err
    assert "prefixes" not in err


def test_a_gpu_and_a_model_are_a_prior(run: Run, small: Path) -> None:
    code, out, err = run("--requests", small, "--gpu", "H100-80GB", "--model", "llama-3.1-8b")
    assert code == 0
    assert "a prior, not a measurement" in err
    assert "max_num_seqs 1024" in err
    assert "3 finished" in out


def test_scrapes_are_what_metrics_would_say(run: Run, small: Path, tmp_path: Path) -> None:
    code, *_ = run(
        "--requests", small, "--step-time", "0.25,0,0,0", "--no-async-scheduling",
        "--scrapes", tmp_path / "scrapes.parquet", "--scrape-interval", 0.5,
    )  # fmt: skip
    assert code == 0
    found = pl.read_parquet(tmp_path / "scrapes.parquet")
    # steps of 0.25 s: 0-0.75 the first request; 0.5 the others come, 0.75 both get a token
    assert found["time_seconds"].to_list() == [0.5, 1.0, 1.5]
    assert found["running"].to_list()[-1] == 0
    assert found["generation_tokens"].to_list()[-1] == 6
    assert found["prompt_tokens"].to_list() == [100, 350, 350]
    assert found["e2e_request_latency_seconds_count"].to_list()[-1] == 3
    assert found["time_to_first_token_seconds_count"].to_list() == [1, 3, 3]
    assert found["request_prompt_tokens_sum"].to_list()[-1] == 350


def test_a_closed_loop_a_limit_and_a_slower_clock(run: Run, small: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    law = ("--step-time", "0.1,0,0,0", "--no-async-scheduling", "--per-request", out)
    run("--requests", small, *law, "--concurrency", 1)
    assert pl.read_ndjson(out)["arrival_seconds"].to_list() == pytest.approx([0, 0.3, 0.4])
    run("--requests", small, *law, "--limit", 2, "--arrival-scale", 3)
    assert pl.read_ndjson(out)["arrival_seconds"].to_list() == [0, 1.5]
    run("--requests", small, *law, "--timeout-seconds", 0.25)
    assert pl.read_ndjson(out)["status"].to_list() == ["timed_out", "finished", "finished"]


def test_a_closed_loop_begins_with_all_its_clients(run: Run, tmp_path: Path) -> None:
    path, out = tmp_path / "log.csv", tmp_path / "out.jsonl"
    path.write_text(
        "arrival_seconds,prompt_tokens,generation_tokens,cancel_seconds\n"
        "1700000000,10,3,\n1700000100,10,50,1700000100.25\n1700000200,10,2,\n"
    )
    law = ("--step-time", "0.1,0,0,0", "--no-async-scheduling", "--per-request", out)
    code, *_ = run("--requests", path, *law, "--concurrency", 2)
    assert code == 0
    found = pl.read_ndjson(out)
    assert found["arrival_seconds"][:2].to_list() == [0, 0]
    assert found["status"].to_list() == ["finished", "cancelled", "finished"]
    assert found["end_seconds"][1] == pytest.approx(0.25, abs=0.1)
    assert found["arrival_seconds"][2] < 0.31


def test_patience_is_not_stretched(run: Run, tmp_path: Path) -> None:
    log_file, out = tmp_path / "log.csv", tmp_path / "out.jsonl"
    log_file.write_text(
        "arrival_seconds,prompt_tokens,generation_tokens,cancel_seconds\n1,10,50,1.5\n2,10,5,\n"
    )
    code, *_ = run(
        "--requests", log_file, "--step-time", "0.1,0,0,0", "--arrival-scale", 10,
        "--per-request", out,
    )  # fmt: skip
    assert code == 0
    found = pl.read_ndjson(out)
    assert found["status"].to_list() == ["cancelled", "finished"]
    assert found["end_seconds"][0] == pytest.approx(10.5, abs=0.11)


def test_servegen(run: Run, shared_data: Path) -> None:
    folder = shared_data / "servegen"
    arguments = (
        "--requests", folder / "m-small_rates.parquet",
        "--servegen-lengths", folder / "m-small_lengths.parquet",
        "--from-seconds", 86400, "--to-seconds", 87000, "--rate-scale", 0.005,
        "--step-time", STEP_TIME, "--json",
    )  # fmt: skip
    code, out, err = run(*arguments)
    assert code == 0
    assert "clients without lengths left out: 1, 5, 8, 11, 38" in err
    again = run(*arguments)[1]
    assert out == again
    assert json.loads(out)["requests"]["finished"] > 500
    code, _, err = run(*arguments[:2], "--step-time", STEP_TIME)
    assert code == 2
    assert "help: give both: --requests RATES.parquet --servegen-lengths" in err


def test_a_recording_of_metrics(run: Run, shared_data: Path, tmp_path: Path) -> None:
    recording = shared_data / "vllm-0.32" / "run_main"
    out = tmp_path / "out.jsonl"
    arguments = ("--recording", recording, "--step-time", STEP_TIME, "--max-model-len", 8192)
    code, _, err = run(*arguments, "--limit", 300, "--per-request", out)
    assert code == 0
    assert "note: rebuilt from 12 windows of 60 s" in err
    assert "note: which prompt length came with which generation length: paired at random" in err
    assert pl.read_ndjson(out)["arrival_seconds"].is_sorted()
    code, _, err = run(*arguments, "--server", "other:8000")
    assert code == 2
    assert "--server other:8000: not in" in err
    code, _, err = run("--recording", recording / "requests.jsonl.gz", "--step-time", STEP_TIME)
    assert code == 2
    code, _, err = run("--step-time", STEP_TIME)
    assert (code, "error: which requests?" in err) == (2, True)


def test_a_restart_is_left_out_and_said(shared_data: Path) -> None:
    """run_cap was stopped and started again: counters begin anew, nothing is made up for it."""
    folder = shared_data / "vllm-0.32" / "run_cap"
    settings = SchedulerConfiguration(64, 2048, max_model_len=8192, block_size=32)
    found = rebuilt(folder / "scrapes.jsonl.gz", None, 60.0, settings, seed=3)
    with gzip.open(folder / "requests.jsonl.gz", "rt") as lines:
        sent = [json.loads(line) for line in lines]
    assert any(note.startswith("1 windows left out: a restart") for note in found.notes)
    assert len(found.requests) == pytest.approx(len(sent), rel=0.005)
    mean = np.mean([row["usage"]["prompt_tokens"] for row in sent if row["status"] == 200])
    assert found.requests.prompt_tokens.mean() == pytest.approx(mean, rel=0.01)


def test_nobody_finished_is_no_verdict(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "gone.csv"
    path.write_text(
        "arrival_seconds,prompt_tokens,generation_tokens,cancel_seconds\n0,10,500,0.05\n"
    )
    code, out, _ = run("--requests", path, "--step-time", "0.1,0,0,0", "--json")
    assert code == 4
    assert json.loads(out)["latency"]["ttft_seconds"] is None
    assert json.loads(out)["latency_reason"] == "no request finished"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--step-time", "1,2"], "--step-time"),
        ([], "the step time is unknown"),
        (["--step-time", STEP_TIME, "--per-request", "out.csv"], "the suffix names no format"),
        (["--step-time", STEP_TIME, "--per-step", "no/such/out.jsonl"], "no such folder"),
        (
            ["--step-time", STEP_TIME, "--per-request", "o.jsonl", "--per-step", "o.jsonl"],
            "the same",
        ),
        (["--step-time", STEP_TIME, "--from-seconds", "5"], "need --servegen-lengths"),
        (["--step-time", STEP_TIME, "--num-gpu-blocks", "0"], "num_gpu_blocks must be at least 2"),
        (["--step-time", STEP_TIME, "--num-gpu-blocks", "5"], "never fit in the KV cache"),
        (["--step-time", STEP_TIME, "--server", "a:1"], "--server is not used without --recording"),
        (["--step-time", STEP_TIME, "--window-seconds", "60"], "not used without --recording"),
        (["--step-time", STEP_TIME, "--tensor-parallel-size", "2"], "not used without --gpu"),
        (["--step-time", STEP_TIME, "--requests", "no.csv"], "no.csv: No such file"),
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


def test_a_full_disk_is_told(run: Run, small: Path, tmp_path: Path) -> None:
    writer = TableWriter(tmp_path / "rows.parquet")
    for folder in tmp_path.glob(".rows.parquet.*"):
        (folder / "000000.parquet").symlink_to("/dev/full")
    with pytest.raises(UsageError, match=r"rows\.parquet: .*No space left on device"):
        writer.append(pl.DataFrame({"row": np.arange(100_000)}))
    writer.discard()
    with Path("/dev/full").open("w") as full:
        ended = subprocess.run(
            [sys.executable, "-m", "driftwatch", "simulate", "run", "--requests", small,
             "--step-time", "0.01,0,0,0", "--json"],
            stdout=full, stderr=subprocess.PIPE, text=True, check=False,
        )  # fmt: skip
    assert ended.returncode == 2
    assert "error: standard output: No space left on device\n" in ended.stderr
    assert "Traceback" not in ended.stderr
    assert "Exception ignored" not in ended.stderr


def test_sliding_windows_are_noted(run: Run, small: Path, tmp_path: Path) -> None:
    tables = Path(hardware.__file__).with_name("models.yaml").read_text()
    own = tmp_path / "own.yaml"  # gemma's row under a name that is in no shipped table
    row = tables[tables.index("  gemma-2-9b:\n") :].split("\n  gemma-2-27b:")[0]
    own.write_text(
        "models:\n" + re.sub(r" +aliases:.*\n", "", row.replace("gemma-2-9b", "mine", 1))
    )
    flags = ("--requests", small, "--gpu", "H100-80GB", "--model")
    for model in (("gemma-2-9b",), ("mine", "--hardware", own)):
        code, _, err = run(*flags, *model)
        assert code == 0
        assert f"note: {model[0]} has sliding windows, the scheduler here does not: " in err
    assert "sliding" not in run(*flags, "llama-3.1-8b")[2]


def test_every_impossible_setting_at_once(run: Run, small: Path) -> None:
    code, _, err = run(
        "--requests", small, "--step-time", STEP_TIME, "--max-num-seqs", 64,
        "--max-num-active-seqs", 65, "--max-num-batched-tokens", 32, "--watermark", 1,
    )  # fmt: skip
    assert code == 2
    assert err.count("error: ") == 3


def test_a_broken_log_is_told_line_by_line(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_text(SMALL + "0.4,0,1\n-1,5,5\n")
    code, out, err = run("--requests", path, "--step-time", STEP_TIME)
    assert (code, out) == (2, "")
    assert [line.split(": ")[1].rsplit(":", 1)[1] for line in err.splitlines()] == ["5", "5", "6"]
