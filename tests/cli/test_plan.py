"""driftwatch plan: what it prints, its JSON, its refusals and its exit codes."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Run = Callable[..., tuple[int, str, str]]
SHORT = ("--prompt-tokens", "300", "--generation-tokens", "40", "--max-num-seqs", "64")
H100 = ("plan", "--gpu", "H100-80GB", "--model", "llama-3.1-8b", "--max-model-len", "16384")


def document(run: Run, *arguments: str, code: int = 0) -> dict[str, Any]:
    found, out, _ = run(*arguments, "--json")
    assert found == code
    read: dict[str, Any] = json.loads(out)
    assert read["schema_version"] == 2
    return read


def test_memory_adds_up_and_the_batches_are_consistent(run: Run) -> None:
    found = document(run, *H100)
    memory = found["memory"]
    parts = ("weights", "activations", "cuda_graphs", "other", "kv_cache")
    assert sum(memory[f"{part}_bytes"] for part in parts) == memory["requested_bytes"]
    rows = found["batches"]
    assert [row["batch"] for row in rows[:4]] == [1, 2, 4, 8]
    for before, after in itertools.pairwise(rows):
        assert after["tokens_per_second"] > before["tokens_per_second"]
        assert after["tokens_per_second_per_user"] < before["tokens_per_second_per_user"]
    assert [row["batch"] for row in rows if not row["fits"]] == [1024]
    assert found["fits"]["running"] in [row["batch"] for row in rows]


def test_a_time_per_token_names_its_batch_and_what_limits_it(run: Run) -> None:
    tight = document(run, *H100, "--slo", "tpot=12ms")["tpot"]
    loose = document(run, *H100, "--slo", "tpot=10s")["tpot"]
    assert tight["limited_by"] == "tpot"
    assert tight["itl_seconds"] <= 0.012
    assert loose["limited_by"] == "kv_cache"
    assert loose["largest_batch"] > tight["largest_batch"] > 1
    capped = document(run, *H100, "--slo", "tpot=10s", "--max-num-seqs", "64")["tpot"]
    assert (capped["largest_batch"], capped["limited_by"]) == (64, "max_num_seqs")


def test_a_measured_law_replaces_the_roofline(run: Run) -> None:
    found = document(run, *H100, "--step-time", "0.02,0,0,0")
    assert found["step_time_source"] == "given"
    assert all(row["itl_seconds"] == pytest.approx(0.02) for row in found["batches"])


def test_what_does_not_fit_says_how_many_gpus_do(run: Run) -> None:
    big = ("plan", "--gpu", "H100", "--model", "llama-3.1-70b", "--max-model-len", "8192")
    assert document(run, *big, code=1)["fitting_tensor_parallel_size"] == 2
    found = document(run, *big, "--tensor-parallel-size", "2")
    assert found["fits"]["running"] > 0
    v3 = ("plan", "--gpu", "L4", "--model", "deepseek-v3")
    narrow = document(run, *v3, code=1)  # its checkpoint is fp8
    assert (narrow["fits"], narrow["fitting_tensor_parallel_size"]) == (None, 64)
    eight = ("plan", "--gpu", "H100", "--model", "llama-3.1-8b", "--max-model-len", "8192")
    wide = document(run, *eight)["memory"]["weights_bytes"]
    halved = wide / 2 + 2 * 128_256 * 4096  # but its input table and head stay 16 bit wide
    assert document(run, *eight, "-q", "fp8")["memory"]["weights_bytes"] == pytest.approx(halved)


def test_a_length_that_vllm_would_refuse_is_told(run: Run) -> None:
    code, out, _ = run("plan", "--gpu", "RTX-4090", "--model", "llama-3.1-8b")
    assert code == 1
    most = int(out.split("--max-model-len ")[1].split()[0])
    code, out, _ = run(
        "plan", "--gpu", "RTX-4090", "--model", "llama-3.1-8b", "--max-model-len", str(most)
    )
    assert code == 0
    assert "WILL NOT START" not in out


def test_piped_the_answer_is_the_first_line_and_the_table_is_between_tabs(run: Run) -> None:
    first, head, *rest = run(*H100)[1].splitlines()
    assert first.startswith("meta-llama/Llama-3.1-8B on H100-80GB: 659 requests run at once")
    columns = head.split("\t")
    assert columns[:4] == ["batch", "tokens/s", "a user", "ITL ms"]
    rows = [line.split("\t") for line in rest if "\t" in line]
    assert {len(row) for row in rows} == {len(columns)}
    assert [row[0] for row in rows] == [
        *map(str, (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 659)),
        "1,024",
    ]


def test_a_request_log_gives_the_mix(run: Run, shared_data: Path) -> None:
    trace = str(shared_data / "traces/azure_2023_conv.csv.gz")
    found = document(run, *H100, "--requests", trace)
    assert found["mix"]["requests"] == 19_366
    assert found["fits"]["running"] > found["fits"]["longest_full"] > found["fits"]["reserved"]
    short = document(
        run, "plan", "--gpu", "H100", "--model", "llama-3.1-8b", "--requests", trace,
        "--max-model-len", "2048",
    )  # fmt: skip
    assert short["mix"]["longest_tokens"] <= 2048
    assert any("longer than max_model_len" in note for note in short["notes"])


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--gpu", "H100"), "--model is not given: memory and step time need a GPU and a model"),
        ((*H100[1:], "--slo", "ttft=1s"), "plan knows no TTFT"),
        (("--gpu", "H1000", "--model", "llama-3.1-8b"), "did you mean H100"),
        (("--gpu", "H100", "--model", "llama-3.1-8"), "did you mean Llama-3.1-8B"),
        (("--gpu", "H100", "vllm", "serve", "./mine"), "--model ./mine/config.json"),
        ((*H100[1:], "vllm", "serve", "Qwen/Qwen3-8B"), "two models are given"),
        ((*H100[1:], "--tensor-parallel-size", "3"), "cannot be shared by 3 GPUs"),
        ((*H100[1:], "--max-num-seqs", "64", "--max-num-batched-tokens", "32"), "refuses to start"),
        ((*H100[1:], "--step-time", "1,2"), "not 2 values"),
        ((*H100[1:], "--prompt-tokens", "inf"), "inf is no finite number"),
        ((*H100[1:], "--requests", "none.csv"), "none.csv"),
        ((*H100[1:], "--prompt-tokens", "900000"), "every request is longer"),
    ],
)
def test_what_cannot_be_asked(run: Run, arguments: tuple[str, ...], says: str) -> None:
    code, out, err = run("plan", *arguments)
    assert code == 2
    assert says in err
    if "--requests" not in arguments:  # the file's own reader words those
        assert "help: " in err or "Error: Invalid value" in err
    assert not out
