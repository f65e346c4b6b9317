"""Whether a target's mean step is bound by memory or by compute, by its datasheet. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import Field

from driftwatch.errors import DriftwatchError
from driftwatch.notify.attribution import reason_of
from driftwatch.notify.numbers import clean, cut
from driftwatch.recommend.calibration.prior import find_gpu, find_model
from driftwatch.recommend.traffic.observed import Server
from driftwatch.simulate.hardware import shipped_hardware
from driftwatch.simulate.intensity import mean_step
from driftwatch.web.page import Part

_NEEDED = ("requests_per_forward_pass", "tokens_per_forward_pass", "prompt_tokens_mean")


class StepBound(Part):
    """What a mean step moves and computes, at the datasheet's speed."""

    bound: str | None = Field(description="memory or compute; null beside its reason")
    reason: str | None = None
    memory_seconds: float | None = Field(None, description="to read weights and KV cache")
    compute_seconds: float | None = Field(None, description="to compute its tokens")
    requests: float | None = None
    prompt_tokens: float | None = None
    model: str | None = None
    gpu: str | None = None
    tensor_active_ratio: float | None = Field(None, description="as the GPUs' counters read")
    dram_active_ratio: float | None = None


def step_bound(server: Server, now: Mapping[str, Any], reasons: Mapping[str, str]) -> StepBound:
    """The mean step of a window; without model, GPU or counts the reason.

    ``now``: evidence column → value; ``reasons``: column → why it is unknown.
    """
    measured = {
        "tensor_active_ratio": now.get("gpu_tensor_active_ratio"),
        "dram_active_ratio": now.get("gpu_dram_active_ratio"),
    }

    def unknown(reason: str) -> StepBound:
        return StepBound(bound=None, reason=cut(clean(reason), 200), **measured)

    for name in _NEEDED:
        if now.get(name) is None:
            return unknown(f"{name}: {reason_of(name, reasons)}")
    tables = shipped_hardware()
    gpu, no_gpu = find_gpu(tables, server.gpu)
    model, no_model = find_model(tables, server.model)
    if gpu is None or model is None:
        # that a file of tables adds one is for commands that take it
        whys = (text.split("; --hardware")[0] for text in (no_model, no_gpu) if text)
        return unknown("; ".join(whys))
    narrow = model.checkpoint_dtype == "fp8" or "fp8" in str(server.model).casefold()
    dtype_bytes = server.weight_bytes or (1.0 if narrow else 2.0)
    requests = float(now["requests_per_forward_pass"])
    prompts = max(0.0, float(now["tokens_per_forward_pass"]) - requests)
    try:
        step = mean_step(
            gpu,
            model,
            requests,
            prompts,
            context=_context(now),
            dtype_bytes=dtype_bytes,
            tensor_parallel=server.tensor_parallel or 1,
            kv_cache_dtype=server.kv_cache_dtype or "auto",
        )
    except DriftwatchError as error:
        return unknown(error.message)
    return StepBound(
        bound=step.bound,
        memory_seconds=step.bytes_moved / gpu.bandwidth_bytes_per_second,
        compute_seconds=step.flops / gpu.flops_per_second(dtype_bytes),
        requests=requests,
        prompt_tokens=prompts,
        model=model.name,
        gpu=gpu.name,
        **measured,
    )


def _context(now: Mapping[str, Any]) -> float:
    """Tokens of a decoding request: its prompt, and half of what it generates."""
    return float(now["prompt_tokens_mean"]) + 0.5 * float(now.get("generation_tokens_mean") or 0.0)
