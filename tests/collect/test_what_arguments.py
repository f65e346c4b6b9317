from __future__ import annotations

from pathlib import Path

import pytest

from driftwatch.collect.fingerprint import (
    fingerprint_from_arguments,
    fingerprint_from_startup_log,
)

SERVE = ["vllm", "serve"]


def test_a_whole_command_line() -> None:
    found = fingerprint_from_arguments(
        [
            *SERVE,
            "meta-llama/Llama-3.1-8B",
            "--dtype=half",
            "-tp",
            "2",
            "--pipeline_parallel_size=2",
            "--quantization",
            "fp8",
            "--speculative-config",
            '{"method": "ngram"}',
            "--enable-lora",
            "--no-async-scheduling",
            "--kv-cache-dtype",
            "fp8",
            "--max-num-seqs",
            "8",
        ]
    )
    assert dict(found.identity) == {
        "model": "meta-llama/Llama-3.1-8B",
        "dtype": "float16",
        "tensor_parallel_size": "2",
        "pipeline_parallel_size": "2",
        "quantization": "fp8",
    }
    assert dict(found.knobs) == {
        "speculative_config": "given",
        "enable_lora": "True",
        "async_scheduling": "False",
        "kv_cache_dtype": "fp8",
    }


@pytest.mark.parametrize(
    "words",
    [
        [*SERVE, "$MODEL", "--dtype", "auto", "-tp", "$(TP)"],
        [*SERVE, "--dtype", "--enforce-no-such-flag"],
        ["sleep", "1"],
        ["--model"],
    ],
)
def test_what_only_a_shell_knows_is_unknown(words: list[str]) -> None:
    found = fingerprint_from_arguments(words)
    assert found.identity == {}


def test_the_last_of_two_flags_counts_and_a_script_is_split() -> None:
    found = fingerprint_from_arguments(["sh", "-c", "exec vllm serve m -tp 2 -tp 4"])
    assert dict(found.identity) == {"model": "m", "tensor_parallel_size": "4"}
    unknown = fingerprint_from_arguments([*SERVE, "m", "-tp", "2", "-tp", "$TP"])
    assert "tensor_parallel_size" not in unknown.identity


def test_speculation_and_lora_of_a_server_that_tells_them(shared_data: Path) -> None:
    log = (shared_data / "vllm-0.32" / "server_startup_log.txt").read_text()
    plain = fingerprint_from_startup_log(log)
    assert plain.knobs == {}
    assert plain.identity["tensor_parallel_size"] == "1"
    spoken = log.replace("speculative_config=None", "speculative_config=SpeculativeConfig(method")
    spoken = spoken.replace("'dtype': 'float32'", "'dtype': 'float32', 'enable_lora': True")
    assert dict(fingerprint_from_startup_log(spoken).knobs) == {
        "speculative_config": "given",
        "enable_lora": "True",
    }
