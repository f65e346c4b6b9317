"""KV arithmetic against published figures, the recorded servers and vLLM's own logs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from driftwatch.errors import ImpossibleConfiguration
from driftwatch.simulate.hardware import gpu, model
from driftwatch.simulate.kv_cache import (
    bytes_per_token,
    capture_sizes,
    largest_capture_size,
    memory_plan,
)

KIB = 1024


@pytest.mark.parametrize(
    ("name", "split", "dtype", "kib"),
    [
        ("llama-2-7b", 1, "auto", 512),
        ("llama-2-7b", 1, "fp8", 256),
        ("llama-3-70b", 8, "auto", 40),
        ("llama-3-70b", 16, "auto", 40),  # fewer KV heads than GPUs: each keeps one
        ("deepseek-v3", 1, "auto", 68.625),
        ("deepseek-v3", 8, "auto", 68.625),  # the latent is whole on every GPU
        ("deepseek-v3", 8, "fp8_ds_mla", 39.078125),
        ("deepseek-v3", 1, "nvfp4_ds_mla", 61 * 352 / KIB),
    ],
)
def test_bytes_per_token(name: str, split: int, dtype: str, kib: float) -> None:
    found = bytes_per_token(model(name), tensor_parallel=split, kv_cache_dtype=dtype)
    assert found / KIB == kib


@pytest.mark.parametrize("folder", ["RTX4090_Llama-3.1-8B"])
def test_the_recorded_block_count(shared_data: Path, folder: str) -> None:
    meta = json.loads((shared_data / "gpu-runs" / folder / "meta.json").read_text())
    arguments, cache = meta["engine_kwargs"], meta["kv_cache"]
    plan = memory_plan(
        gpu(meta["hardware"]["device_name"]),
        model(meta["model"]),
        max_num_seqs=arguments["max_num_seqs"],
        max_num_batched_tokens=arguments["max_num_batched_tokens"],
        block_size=cache["block_size"],
        gpu_memory_utilization=cache["gpu_memory_utilization"],
        count_graphs=False,  # vLLM 0.19
    )
    assert plan.total == pytest.approx(meta["hardware"]["device_total_memory_bytes"], rel=0.002)
    assert plan.num_gpu_blocks == pytest.approx(cache["num_gpu_blocks"], rel=0.05)
    recorded = meta["resolved_config"]["compilation_config"]["cudagraph_capture_sizes"]
    assert capture_sizes(256, 2048) == tuple(recorded)


def test_against_a_start_up_log_of_an_h100() -> None:
    # vllm-project/vllm pull request 10511: Meta-Llama-3-8B, 53.29 GiB left at utilisation 0.9
    plan = memory_plan(
        gpu("H100-80GB"),
        model("llama-3-8b"),
        max_num_seqs=256,
        max_num_batched_tokens=8192,
        gpu_memory_utilization=0.9,
        count_graphs=False,
    )
    assert plan.weights / 2**30 == pytest.approx(14.96, abs=0.01)
    assert plan.kv / 2**30 == pytest.approx(53.29, rel=0.05)


def test_the_null_block_holds_no_token_and_gpus_that_talk_keep_buffers() -> None:
    one, two = (
        memory_plan(
            gpu("B200"),
            model("llama-3.1-8b"),
            max_num_seqs=1024,
            max_num_batched_tokens=8192,
            tensor_parallel=n,
        )
        for n in (1, 2)
    )
    assert one.kv_tokens == (one.num_gpu_blocks - 1) * one.block_size
    assert two.other - one.other == 700 * 2**20
    # 1, 2, 4, 8 to 248, 256 to 1024 on this Blackwell, where others stop at 512
    assert largest_capture_size(gpu("B200")) == 1024
    assert largest_capture_size(gpu("RTX-PRO-6000-SERVER")) == 512
    assert one.graphs == (3 + 31 + 49) * 10 * 2**20


def test_what_does_not_fit_has_no_block() -> None:
    one, four = (
        memory_plan(
            gpu("H100"),
            model("llama-3.1-70b"),
            max_num_seqs=256,
            max_num_batched_tokens=2048,
            tensor_parallel=n,
        ).num_gpu_blocks
        for n in (1, 4)
    )
    assert one == 0 and four > 10_000


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"tensor_parallel": 3}, "32 attention heads .* by 3 GPUs; 8 KV heads"),
        ({"kv_cache_dtype": "fp8_ds_mla"}, "latent attention"),
        ({"gpu_memory_utilization": 1.2}, "at most 1"),
    ],
)
def test_impossible_settings(changes: dict[str, object], says: str) -> None:
    settings: dict[str, object] = {"max_num_seqs": 8, "max_num_batched_tokens": 512, **changes}
    with pytest.raises(ImpossibleConfiguration, match=says):
        memory_plan(gpu("H100"), model("llama-3-8b"), **settings)  # type: ignore[arg-type]
