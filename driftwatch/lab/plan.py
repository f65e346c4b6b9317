"""What a server can hold and how fast it is, before it runs: closed forms."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, astuple, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from driftwatch.errors import ImpossibleConfiguration
from driftwatch.simulate.hardware import Gpu
from driftwatch.simulate.intensity import decode
from driftwatch.simulate.kv_cache import MemoryPlan, held_tokens, memory_plan
from driftwatch.simulate.model_config import Model
from driftwatch.simulate.roofline import FASTEST, SLOWEST, STATED, Efficiency, roofline
from driftwatch.simulate.step_time import StepTime, describe

Integers = npt.NDArray[np.int64]

_SPLITS = (1, 2, 4, 8, 16, 32, 64)
_BATCHES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
# of a GPU's memory; activations, CUDA graphs and other are estimates
_PARTS = (
    "total",
    "requested",
    "weights",
    "activations",
    "cuda_graphs",
    "other",
    "kv_cache",
    "missing",
)
_SETTINGS = (
    *("tensor_parallel_size", "weight_bytes_per_parameter", "kv_cache_dtype"),
    *("gpu_memory_utilization", "max_num_seqs", "max_num_batched_tokens", "max_model_len"),
    "block_size",
)


@dataclass(frozen=True, slots=True)
class Server:
    """``tensor_parallel_size`` equal GPUs with one model, and vLLM's settings."""

    gpu: Gpu
    model: Model
    weight_bytes_per_parameter: float
    tensor_parallel_size: int
    max_num_seqs: int
    max_num_batched_tokens: int
    max_model_len: int
    block_size: int = 16
    kv_cache_dtype: str = "auto"
    gpu_memory_utilization: float = 0.92
    measured: StepTime | None = None  # None = the roofline

    @property
    def types(self) -> dict[str, Any]:
        """What the arithmetic of bytes takes."""
        return {
            "dtype_bytes": self.weight_bytes_per_parameter,
            "tensor_parallel": self.tensor_parallel_size,
            "kv_cache_dtype": self.kv_cache_dtype,
        }

    def memory(self, split: int | None = None) -> MemoryPlan:
        """One GPU's memory, of ``split`` GPUs that share the model."""
        return memory_plan(
            self.gpu,
            self.model,
            max_num_seqs=self.max_num_seqs,
            max_num_batched_tokens=self.max_num_batched_tokens,
            block_size=self.block_size,
            gpu_memory_utilization=self.gpu_memory_utilization,
            **{**self.types, "tensor_parallel": split or self.tensor_parallel_size},
        )

    def step_time(self, efficiency: Efficiency = STATED) -> StepTime:
        """The measured one, else the roofline at max_num_seqs."""
        return self.measured or roofline(
            *(self.gpu, self.model),
            decode_batch=self.max_num_seqs,
            efficiency=efficiency,
            **self.types,
        )


@dataclass(frozen=True, slots=True, eq=False)
class Mix:
    """Lengths of the requests."""

    prompt_tokens: Integers  # at least 1 each
    requests: int
    prompt_tokens_mean: float
    generation_tokens_mean: float
    longest_tokens: int  # prompt and generation
    context_tokens_mean: float  # of a request that runs, at a random moment
    prefill_pairs_mean: float  # of a prompt


def mix_of(prompt_tokens: Integers, generation_tokens: Integers) -> Mix:
    """Mean context of a running request, E[PG]/E[G] + E[G²]/(2·E[G]): long answers run longer."""
    prompt, made = prompt_tokens.astype(np.float64), generation_tokens.astype(np.float64)
    return Mix(
        prompt_tokens,
        len(prompt),
        float(prompt_tokens.mean()),
        float(generation_tokens.mean()),
        int((prompt_tokens + generation_tokens).max()),
        float((prompt * made).mean() / made.mean() + (made**2).mean() / (2 * made.mean())),
        float((prompt * (prompt + 1) / 2).mean()),
    )


@dataclass(frozen=True, slots=True)
class Fits:
    """How many sequences the KV cache holds together, under four assumptions."""

    running: int  # each at its own point of its generation
    mean_full: int  # every one of mean length, at its end
    longest_full: int  # every one the longest, at its end: no preemption can happen
    reserved: int  # without paging, each reserving max_model_len
    resident_tokens: float  # KV tokens of a running sequence, half a block's waste included
    reserved_unused_ratio: float  # of a reservation


def fits_together(memory: MemoryPlan, model: Model, mix: Mix, max_model_len: int) -> Fits:
    """The ceilings of the batch that the memory sets."""
    block, tokens = memory.block_size, memory.kv_tokens

    def whole(length: float) -> float:
        return math.ceil(held_tokens(model, length) / block) * block

    resident = held_tokens(model, mix.context_tokens_mean) + block / 2
    return Fits(
        running=int(tokens / resident),
        mean_full=int(tokens / whole(mix.prompt_tokens_mean + mix.generation_tokens_mean)),
        longest_full=int(tokens / whole(mix.longest_tokens)),
        reserved=int(tokens / whole(max_model_len)),
        resident_tokens=resident,
        reserved_unused_ratio=max(0.0, 1 - resident / whole(max_model_len)),
    )


@dataclass(frozen=True, slots=True)
class BatchSpeed:
    """A server that keeps ``batch`` requests running."""

    batch: int
    tokens_per_second: float  # generated, all together
    itl_seconds: float  # between two tokens, with the prompts that are computed in between
    decode_only_seconds: float  # of a step without prompts
    kv_bytes: float  # of one GPU
    fits: bool  # the KV cache holds them
    tokens_per_second_per_user: float


def batch_speed(
    batch: int, step_time: StepTime, mix: Mix, model: Model, memory: MemoryPlan, fits: Fits
) -> BatchSpeed:
    """Throughput and latency of a steady batch.

    Each step generates ``batch`` tokens, so ``batch`` / E[G] requests end in it and as many whole
    prompts are computed.
    """
    alone = step_time.seconds(0, batch, round(batch * held_tokens(model, mix.context_tokens_mean)))
    starts = batch / mix.generation_tokens_mean  # prompts a step
    # with a prompt in the step, CUDA graphs pad nothing: the difference is below a size's width
    hidden = _hidden_tokens(mix.prompt_tokens, starts, step_time.hinge_tokens)
    step = (
        alone
        + step_time.c1_seconds_per_prefill_token * (starts * mix.prompt_tokens_mean - hidden)
        + step_time.c4_seconds_per_prefill_pair * starts * mix.prefill_pairs_mean
    )
    kv_bytes = batch * fits.resident_tokens * memory.kv_per_token
    return BatchSpeed(batch, batch / step, step, alone, kv_bytes, batch <= fits.running, 1 / step)


def _hidden_tokens(prompt_tokens: Integers, prompts_a_step: float, hinge_tokens: int) -> float:
    """Prompt tokens a step below the hinge: n prompts (Poisson) of P hide min(n·P, hinge)."""
    if hinge_tokens == 0:
        return 0.0
    lengths, counts = np.unique(np.minimum(prompt_tokens, hinge_tokens), return_counts=True)
    shares = counts / counts.sum()
    most = math.ceil(prompts_a_step + 10 * math.sqrt(prompts_a_step) + 10)
    chance, beyond, hidden = math.exp(-prompts_a_step), 1.0, 0.0
    for n in range(most):
        hidden += chance * float((shares * np.minimum(n * lengths, hinge_tokens)).sum())
        beyond -= chance
        chance *= prompts_a_step / (n + 1)
    return hidden + max(0.0, beyond) * hinge_tokens


def largest_batch(meets: Callable[[int], bool], most: int) -> int:
    """The largest batch up to ``most`` that meets a target which growing batches miss; 0: none."""
    if most < 1 or not meets(1):
        return 0
    low, high = 1, most + 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if meets(middle) else (low, middle)
    return low


def shown_batches(ceiling: int, most: int) -> Sequence[int]:
    """Powers of two up to ``most`` and the first above the ceiling, and the ceiling itself."""
    batches = {b for b in _BATCHES if b <= min(most, max(1, 2 * ceiling))}
    return sorted(batches | ({ceiling} if 1 <= ceiling <= most else set()))


def plan(server: Server, mix: Mix, tpot_seconds: float | None) -> dict[str, Any]:
    """The document; ``fits`` is null with a reason where nothing fits.

    Raises ImpossibleConfiguration: the heads cannot be shared so, or a setting is out of its range.
    """
    memory = server.memory()
    parts = (*astuple(memory)[:6], max(0, memory.kv), max(0, -memory.kv))
    document: dict[str, Any] = {
        "gpu": server.gpu.name,
        "model": server.model.name,
        **{name: getattr(server, name) for name in _SETTINGS},
        "memory": {
            **{f"{name}_bytes": value for name, value in zip(_PARTS, parts, strict=True)},
            "num_gpu_blocks": memory.num_gpu_blocks,
            "kv_cache_size_tokens": memory.kv_tokens,
        },
        "kv": {
            "bytes_per_token": memory.kv_per_token,
            "bytes_per_100_tokens": held_tokens(server.model, 100) * memory.kv_per_token,
            "bytes_per_2000_tokens": held_tokens(server.model, 2000) * memory.kv_per_token,
        },
        "mix": {key: value for key, value in asdict(mix).items() if key != "prompt_tokens"},
    }
    if memory.kv_tokens < mix.longest_tokens:
        reason = f"the KV cache has {memory.kv_tokens:,} tokens, a request {mix.longest_tokens:,}"
        fewest = _fitting(server, mix.longest_tokens)
        more = {"fits": None, "reason": reason, "fitting_tensor_parallel_size": fewest}
        return {**document, **more}
    fits = fits_together(memory, server.model, mix, server.max_model_len)

    def speed(batch: int, efficiency: Efficiency = STATED) -> BatchSpeed:
        return batch_speed(batch, server.step_time(efficiency), mix, server.model, memory, fits)

    def row(batch: int) -> dict[str, Any]:
        stated, context = speed(batch), round(mix.context_tokens_mean)
        phase = decode(server.gpu, server.model, batch, context=context, **server.types)
        return {
            **asdict(stated),
            "tokens_per_second_low": speed(batch, SLOWEST).tokens_per_second,
            "tokens_per_second_high": speed(batch, FASTEST).tokens_per_second,
            "memory_bytes": memory.requested - max(0, memory.kv) + stated.kv_bytes,
            "decode_bound_by": phase.bound,
        }

    return {
        **document,
        "fits": asdict(fits),
        "max_model_len_fits": memory.kv_tokens >= server.max_model_len,
        "step_time": describe(server.step_time()),
        "step_time_source": "roofline" if server.measured is None else "given",
        "batches": [row(one) for one in shown_batches(fits.running, server.max_num_seqs)],
        "tpot": None if tpot_seconds is None else _tpot(server, fits, tpot_seconds, speed),
    }


def is_problem(document: Mapping[str, Any]) -> bool:
    """It does not fit, or no batch meets the target."""
    if document["fits"] is None or not document["max_model_len_fits"]:
        return True
    return document["tpot"] is not None and document["tpot"]["largest_batch"] is None


def _fitting(server: Server, longest_tokens: int) -> int | None:
    """The fewest GPUs that hold the model and its longest request; None: none of those tried."""
    for split in _SPLITS:
        try:
            if server.memory(split).kv_tokens >= longest_tokens:
                return split
        except ImpossibleConfiguration:
            continue
    return None


def _tpot(
    server: Server, fits: Fits, target: float, speed: Callable[[int], BatchSpeed]
) -> dict[str, Any]:
    """The largest batch that meets the target, and what else would stop it."""
    most = min(fits.running, server.max_num_seqs)
    largest = largest_batch(lambda batch: speed(batch).itl_seconds <= target, most)
    limit = "tpot"
    if largest == most:
        limit = "kv_cache" if fits.running <= server.max_num_seqs else "max_num_seqs"
    return {
        "target_seconds": target,
        "largest_batch": largest or None,
        "limited_by": limit,
        "itl_seconds": speed(largest).itl_seconds if largest else None,
        "smallest_itl_seconds": speed(1).itl_seconds,
    }
