"""Capacity and speed of a server before it runs, by closed forms."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Mapping
from dataclasses import asdict, astuple, dataclass
from typing import Any

import numpy as np

from driftwatch.arrays import Integers
from driftwatch.errors import ImpossibleConfiguration
from driftwatch.simulate.configuration import SchedulerConfiguration
from driftwatch.simulate.hardware import Gpu
from driftwatch.simulate.kv_cache import MemoryPlan, held_tokens, memory_plan
from driftwatch.simulate.model_config import Model
from driftwatch.simulate.roofline import (
    FASTEST,
    SLOWEST,
    STATED,
    Efficiency,
    roofline,
)
from driftwatch.simulate.step_time import StepTime, describe

_SPLITS = (1, 2, 4, 8, 16, 32, 64)
_BATCHES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
# of a GPU's memory; activations, CUDA graphs and other are estimates
_PARTS = ("total", "requested", "weights", "activations", "cuda_graphs", "other")


@dataclass(frozen=True, slots=True)
class Server:
    """``tensor_parallel_size`` equal GPUs with one model, and vLLM's settings."""

    gpu: Gpu
    model: Model
    configuration: SchedulerConfiguration  # its scheduler; max_model_len is known
    weight_bytes_per_parameter: float = 2.0
    tensor_parallel_size: int = 1
    kv_cache_dtype: str = "auto"
    gpu_memory_utilization: float = 0.92
    measured: StepTime | None = None  # None = the roofline

    @property
    def types(self) -> dict[str, Any]:
        """Arguments of the functions that count bytes."""
        return {
            "dtype_bytes": self.weight_bytes_per_parameter,
            "tensor_parallel": self.tensor_parallel_size,
            "kv_cache_dtype": self.kv_cache_dtype,
        }

    @property
    def max_model_len(self) -> int:
        """Tokens of the longest request."""
        return self.configuration.max_model_len or self.model.max_model_len

    def memory(self, split: int | None = None) -> MemoryPlan:
        """One GPU's memory, of ``split`` GPUs that share the model."""
        return memory_plan(
            self.gpu,
            self.model,
            max_num_seqs=self.configuration.max_num_seqs,
            max_num_batched_tokens=self.configuration.max_num_batched_tokens,
            block_size=self.configuration.block_size,
            gpu_memory_utilization=self.gpu_memory_utilization,
            **{**self.types, "tensor_parallel": split or self.tensor_parallel_size},
        )

    def step_time(self, efficiency: Efficiency = STATED, batch: int | None = None) -> StepTime:
        """The measured one, else the roofline at a batch; None = max_num_seqs."""
        return self.measured or roofline(
            *(self.gpu, self.model),
            decode_batch=batch or self.configuration.max_num_seqs,
            efficiency=efficiency,
            **self.types,
        )


@dataclass(frozen=True, slots=True)
class Mix:
    """Lengths of the requests."""

    requests: int
    prompt_tokens_mean: float
    generation_tokens_mean: float
    longest_tokens: int  # prompt and generation
    context_tokens_mean: float  # of a request that runs, at a random moment
    prefill_pairs_mean: float  # of a prompt
    hidden_tokens_mean: float = 0.0  # of a prompt, below the step-time model's hinge


def mix_of(prompt_tokens: Integers, generation_tokens: Integers, hinge_tokens: int = 0) -> Mix:
    """Mean context of a running request, E[PG]/E[G] + E[G²]/(2·E[G]): long answers run longer."""
    prompt, made = prompt_tokens.astype(np.float64), generation_tokens.astype(np.float64)
    return Mix(
        len(prompt),
        float(prompt_tokens.mean()),
        float(generation_tokens.mean()),
        int((prompt_tokens + generation_tokens).max()),
        float((prompt * made).mean() / made.mean() + (made**2).mean() / (2 * made.mean())),
        float((prompt * (prompt + 1) / 2).mean()),
        float(np.minimum(prompt, hinge_tokens).mean()),
    )


@dataclass(frozen=True, slots=True)
class Fits:
    """How many sequences the KV cache holds at one time, under three assumptions."""

    running: int  # each at a random point of its generation
    mean_full: int  # all of mean length, at their ends
    longest_full: int  # all as long as the longest, at their ends: no preemption can happen
    resident_tokens: float  # KV tokens of a running sequence, with half a block of waste


def fits_together(memory: MemoryPlan, model: Model, mix: Mix) -> Fits:
    """The largest batches that the memory allows."""
    block, tokens = memory.block_size, memory.kv_tokens

    def whole(length: float) -> int:
        return int(tokens / (math.ceil(held_tokens(model, length) / block) * block))

    resident = held_tokens(model, mix.context_tokens_mean) + block / 2
    mean = mix.prompt_tokens_mean + mix.generation_tokens_mean
    return Fits(
        running=int(tokens / resident),
        mean_full=whole(mean),
        longest_full=whole(mix.longest_tokens),
        resident_tokens=resident,
    )


@dataclass(frozen=True, slots=True)
class BatchSpeed:
    """A server that keeps ``batch`` requests running."""

    batch: int
    tokens_per_second: float  # generated, all together
    tokens_per_second_per_user: float
    itl_seconds: float  # between two tokens, with the prompts that are computed in between


def batch_speed(batch: int, step_time: StepTime, mix: Mix, model: Model) -> BatchSpeed:
    """Throughput and latency of a steady batch.

    Each step generates ``batch`` tokens. So ``batch`` / E[G] requests end in it, and it computes as
    many whole prompts.
    """
    context = held_tokens(model, mix.context_tokens_mean)
    starts = batch / mix.generation_tokens_mean  # prompts a step
    hinge = step_time.hinge_tokens or 1  # Poisson prompts share one hinge a step
    hidden = hinge * (1 - math.exp(-starts * mix.hidden_tokens_mean / hinge))
    # with a prompt in the step, CUDA graphs pad nothing: the difference is below a size's width
    step = (
        step_time.seconds(0, batch, round(batch * context))
        + step_time.c1_seconds_per_prefill_token * (starts * mix.prompt_tokens_mean - hidden)
        + step_time.c4_seconds_per_prefill_pair * starts * mix.prefill_pairs_mean
    )
    return BatchSpeed(batch, batch / step, 1 / step, step)


def plan(server: Server, mix: Mix, tpot_seconds: float | None) -> dict[str, Any]:
    """The document; ``fits`` is null with a reason where nothing fits.

    Raises ImpossibleConfiguration: the GPUs cannot share the heads, or a setting is out of range.
    """
    memory, model, seqs = server.memory(), server.model, server.configuration.max_num_seqs
    parts = dict(zip(_PARTS, astuple(memory), strict=False))
    parts |= {"kv_cache": max(0, memory.kv), "missing": max(0, -memory.kv)}
    document: dict[str, Any] = {
        "gpu": server.gpu.name,
        "model": model.name,
        "tensor_parallel_size": server.tensor_parallel_size,
        "weight_bytes_per_parameter": server.weight_bytes_per_parameter,
        "kv_cache_dtype": server.kv_cache_dtype,
        "gpu_memory_utilization": server.gpu_memory_utilization,
        "configuration": asdict(server.configuration),
        "max_model_len": server.max_model_len,
        "memory": {
            **{f"{name}_bytes": value for name, value in parts.items()},
            "num_gpu_blocks": memory.num_gpu_blocks,
            "kv_cache_size_tokens": memory.kv_tokens,
            "kv_bytes_per_token": memory.kv_per_token,
        },
        "mix": asdict(mix),
    }
    if memory.kv_tokens < mix.longest_tokens:
        reason = f"the KV cache has {memory.kv_tokens:,} tokens, a request {mix.longest_tokens:,}"
        fewest = _fitting(server, mix.longest_tokens)
        return {
            **document,
            **{"fits": None, "reason": reason, "fitting_tensor_parallel_size": fewest},
        }
    fits = fits_together(memory, model, mix)

    def speed(batch: int, efficiency: Efficiency = STATED) -> BatchSpeed:
        return batch_speed(batch, server.step_time(efficiency, batch), mix, model)

    def row(batch: int) -> dict[str, Any]:
        kv_bytes = batch * fits.resident_tokens * memory.kv_per_token  # of one GPU
        return {
            **asdict(speed(batch)),
            "tokens_per_second_low": speed(batch, SLOWEST).tokens_per_second,
            "tokens_per_second_high": speed(batch, FASTEST).tokens_per_second,
            "kv_bytes": kv_bytes,
            "memory_bytes": memory.requested - max(0, memory.kv) + kv_bytes,
            "fits": batch <= fits.running,
        }

    shown = {one for one in _BATCHES if one <= min(seqs, max(1, 2 * fits.running))}
    shown |= {fits.running} if 1 <= fits.running <= seqs else set()
    return {
        **document,
        "fits": asdict(fits),
        "max_model_len_fits": memory.kv_tokens >= server.max_model_len,
        "step_time": describe(server.step_time()),
        "step_time_source": "roofline" if server.measured is None else "given",
        "batches": [row(one) for one in sorted(shown)],
        "tpot": None if tpot_seconds is None else _tpot(fits, seqs, tpot_seconds, speed),
    }


def is_problem(document: Mapping[str, Any]) -> bool:
    """The model does not fit, or no batch meets the target."""
    if document["fits"] is None or not document["max_model_len_fits"]:
        return True
    return document["tpot"] is not None and document["tpot"]["largest_batch"] is None


def _fitting(server: Server, longest_tokens: int) -> int | None:
    """The fewest GPUs that hold the model and its longest request; None = not even 64."""
    for split in _SPLITS:
        try:
            if server.memory(split).kv_tokens >= longest_tokens:
                return split
        except ImpossibleConfiguration:
            continue
    return None


def _tpot(
    fits: Fits, seqs: int, target: float, speed: Callable[[int], BatchSpeed]
) -> dict[str, Any]:
    """The largest batch that meets the target, and the limit that stops a larger one."""
    most = min(fits.running, seqs)
    # a larger batch is never faster
    largest = bisect_right(range(1, most + 1), target, key=lambda batch: speed(batch).itl_seconds)
    limit = "tpot"
    if largest == most:
        limit = "kv_cache" if fits.running <= seqs else "max_num_seqs"
    return {
        "target_seconds": target,
        "largest_batch": largest or None,
        "limited_by": limit,
        "itl_seconds": speed(largest).itl_seconds if largest else None,
        "smallest_itl_seconds": speed(1).itl_seconds,
    }
