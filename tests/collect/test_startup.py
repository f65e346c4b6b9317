"""What a server was started with and what ran, and what counts as a change of it."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from driftwatch.collect.fingerprint import (
    GROUPS,
    differences,
    fingerprint_of,
    from_version,
    merged,
    release_text,
)
from driftwatch.collect.pages import PageParser
from driftwatch.collect.startup import (
    FIELDS,
    contradictions,
    from_arguments,
    from_cache_config,
    from_config,
    from_startup_log,
    merge,
)
from driftwatch.errors import UsageError
from driftwatch.model import Fingerprint, Serving, Setting


def values(serving: Serving) -> dict[str, float]:
    return {n: s.value for n in FIELDS if (s := serving.setting(n)) is not None}


@pytest.fixture
def log(shared_data: Path) -> str:
    return (shared_data / "vllm-0.32/server_startup_log.txt").read_text()


def test_real_startup_log(log: str) -> None:
    found = from_startup_log(log, path="vllm.log")
    serving = found.serving
    assert values(serving) == {
        "max_num_seqs": 64,
        "max_num_batched_tokens": 1024,
        "max_model_len": 8192,
        "kv_cache_tokens": 262144,
    }
    assert serving.max_num_seqs == Setting(64, "startup log", "vllm.log:8")
    assert serving.max_num_batched_tokens is not None
    line = int(serving.max_num_batched_tokens.detail.rpartition(":")[2])
    assert "Chunked prefill is enabled" in log.splitlines()[line - 1]
    assert found.fingerprint.release == {"vllm": "0.32.0"}
    assert dict(found.fingerprint.identity) == {
        "model": "models/tiny",
        "dtype": "float32",
        "quantization": "none",
        "tensor_parallel_size": "1",
        "pipeline_parallel_size": "1",
    }


def test_the_last_start_in_a_log_wins(log: str) -> None:
    second = log.replace("'max_num_seqs': 64", "'max_num_seqs': 8").replace("262,144", "5,120")
    found = from_startup_log(log + second.replace("0.32.0", "0.33.1"), path="x")
    serving = found.serving
    assert found.fingerprint.release == {"vllm": "0.33.1"}
    assert values(serving)["max_num_seqs"] == 8
    assert values(serving)["kv_cache_tokens"] == 5120
    assert serving.max_num_seqs is not None
    assert serving.max_num_seqs.detail == f"x:{len(log.splitlines()) + 8}"

    # a setting of an earlier start does not leak into the last
    second = log.replace(", 'max_num_seqs': 64", "")
    assert from_startup_log(log + second, path="x").serving.max_num_seqs is None
    # a start that was cut off after its banner: nothing is known of it
    banner = "\n".join(log.splitlines()[:4])
    assert values(from_startup_log(log + banner, path="x").serving) == {}
    with pytest.raises(UsageError, match="x: no start of a vLLM server in this log"):
        from_startup_log("INFO hello", path="x")


def test_arguments_that_are_no_python_literals() -> None:
    line = (
        "non-default args: {'model': 'm', 'hf_overrides': <function f at 0x1>, "
        "'compilation_config': Config(level=3, sizes=[1, 2], {'max_num_seqs': 5}), "
        "'title': 'max_num_seqs: 7', 'max_num_seqs': 12, 'block_size': 16}"
    )
    assert values(from_startup_log(line, path="x").serving) == {
        "max_num_seqs": 12,
        "kv_block_tokens": 16,
    }


def test_arguments_in_every_spelling() -> None:
    serving = from_arguments(
        [
            *("vllm", "serve", "m", "--max-num-seqs", "8", "--max_model_len=8K"),
            *("--max-num-batched-tokens", "2k", "--api-server-count=2", "--block-size", "32"),
            *("--kv-transfer-config", '{"max_num_seqs": 99, "--max-num-seqs": 98}', "--trust"),
        ]
    ).serving
    assert values(serving) == {
        "max_num_seqs": 8,
        "max_model_len": 8192,
        "max_num_batched_tokens": 2000,
        "api_server_count": 2,
        "kv_block_tokens": 32,
    }
    assert serving.max_num_seqs == Setting(8, "arguments", "--max-num-seqs")


@pytest.mark.parametrize("value", ["$SEQS", "$(SEQS)", "${SEQS:-8}", "auto", "-1"])
def test_a_value_that_only_a_shell_knows_is_unknown(value: str) -> None:
    assert from_arguments(["--max-model-len", "8", "--max-model-len", value]).serving == Serving()


def test_cache_config_labels() -> None:
    labels = {"kv_cache_size_tokens": "262144", "num_gpu_blocks": "9", "block_size": "32"}
    serving = from_cache_config(json.dumps(labels))
    assert values(serving) == {"kv_cache_tokens": 262144, "kv_block_tokens": 32}
    labels["kv_cache_size_tokens"] = "None"
    serving = from_cache_config(json.dumps(labels))
    assert serving.kv_cache_tokens == Setting(288, "metrics", "num_gpu_blocks × block_size")
    labels["num_gpu_blocks"] = "None"
    assert values(from_cache_config(json.dumps(labels))) == {"kv_block_tokens": 32}
    assert from_cache_config("{}") == Serving()
    # how many requests of max_model_len the cache holds
    labels = {"kv_cache_size_tokens": "53744", "kv_cache_max_concurrency": "6.56"}
    longest = from_cache_config(json.dumps(labels)).max_model_len
    assert longest is not None and longest.value == 8193


def test_the_first_source_wins_and_contradictions_are_told(log: str) -> None:
    config = from_config({"max_num_seqs": 8})
    started = from_startup_log(log, path="vllm.log").serving
    merged = merge(config, started)
    assert merged.max_num_seqs == Setting(8, "config", "max_num_seqs")
    assert merged.max_num_batched_tokens == started.max_num_batched_tokens
    assert contradictions(config, started) == (
        "max_num_seqs is 8 (config, max_num_seqs), but 64 (startup log, vllm.log:8)",
    )
    assert contradictions(started, merge(started)) == ()


SERVE = ["vllm", "serve"]


def test_a_whole_command_line() -> None:
    found = from_arguments(
        [
            *(*SERVE, "meta-llama/Llama-3.1-8B", "--dtype=half", "-tp", "2"),
            *("--pipeline_parallel_size=2", "--quantization", "fp8", "--speculative-config"),
            *('{"method": "ngram"}', "--enable-lora", "--no-async-scheduling"),
            *("--kv-cache-dtype", "fp8", "--max-num-seqs", "8"),
        ]
    ).fingerprint
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
    assert from_arguments(words).fingerprint.identity == {}


def test_a_target_of_a_real_page_has_flags_and_no_release(shared_data: Path) -> None:
    batch = PageParser().batch()
    page = (shared_data / "vllm-0.32/metrics_during_load.txt").read_bytes()
    batch.add("host:8000", datetime(2026, 11, 21, tzinfo=UTC), page)
    row = batch.finish().scrapes.row(0, named=True)
    serving = Serving(max_num_seqs=Setting(64.0, "config"))
    labels = {"model_name": row["model_name"], "image": "vllm/vllm-openai:v0.32.0", "version": "7"}
    found = fingerprint_of(labels, serving, row["cache_config"], "NVIDIA H100")
    assert found.identity == {"gpu": "NVIDIA H100", "model_name": "tiny-llama"}
    assert found.knobs["max_num_seqs"] == "64"
    assert found.knobs["kv_cache_blocks"].isdigit()
    assert found.knobs["enable_prefix_caching"] == "True"
    assert "num_gpu_blocks" not in found.knobs
    assert "None" not in found.knobs.values()
    assert found.release == {"image": "vllm/vllm-openai:v0.32.0"}
    assert release_text(found) == "image vllm/vllm-openai:v0.32.0"
    assert release_text(Fingerprint()) is None
    told = merged(from_version({"version": "0.32.0"}), found)
    assert told.release == {"vllm": "0.32.0", "image": "vllm/vllm-openai:v0.32.0"}
    assert from_version({"version": None}) == from_version({}) == Fingerprint()


@pytest.mark.parametrize(
    ("group", "before", "now", "text"),
    [
        ("identity", "model_name a", "model_name b", "model_name a → b"),
        ("knobs", "max_num_seqs 64", "max_num_seqs 128", "max_num_seqs 64 → 128"),
        ("release", "vllm 0.32.0", "vllm 0.33.0", "vllm 0.32.0 → 0.33.0"),
        # unknown on one side is no difference
        ("release", "vllm 0.32.0", "image x", None),
        # vLLM's own sizing wanders by a few blocks; another flag does not
        ("knobs", "kv_cache_blocks 1000", "kv_cache_blocks 1050", None),
        ("knobs", "kv_cache_blocks 1000", "kv_cache_blocks 940", "kv_cache_blocks 1000 → 940"),
        ("knobs", "watermark 0.9", "watermark 0.90", None),
        ("knobs", "watermark 0.90", "watermark 0.92", "watermark 0.90 → 0.92"),
    ],
)
def test_what_counts_as_a_change(group: str, before: str, now: str, text: str | None) -> None:
    old, new = (Fingerprint(**{group: dict([one.split()])}) for one in (before, now))
    found = differences(old, new)
    assert [one.text for one in found] == ([] if text is None else [text])
    assert [one.group for one in found] == [group] * len(found)
    for other in GROUPS:
        assert differences(old, new, [other]) == (found if other == group else ())
