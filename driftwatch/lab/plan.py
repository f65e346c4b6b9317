"""What a server can hold and how fast it is, before it runs: what ``driftwatch plan`` answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from driftwatch.errors import ImpossibleConfiguration
from driftwatch.lab import planning
from driftwatch.lab.planning import Fits, Mix
from driftwatch.simulate import intensity
from driftwatch.simulate.hardware import Gpu, Model
from driftwatch.simulate.kv_cache import MemoryPlan, memory_plan
from driftwatch.simulate.requests import Requests
from driftwatch.simulate.roofline import FASTEST, SLOWEST, STATED, Efficiency, roofline
from driftwatch.simulate.step_time import StepTime, describe

Document = Mapping[str, Any]

_SPLITS = (1, 2, 4, 8, 16, 32, 64)


@dataclass(frozen=True, slots=True, eq=False)
class Question:
    """What is planned."""

    gpu: Gpu  # one of ``tensor_parallel`` equal ones
    model: Model
    tensor_parallel: int  # GPUs that share each layer
    dtype_bytes: float  # of a weight
    kv_cache_dtype: str
    gpu_memory_utilization: float
    max_num_seqs: int
    max_num_batched_tokens: int
    max_model_len: int
    block_size: int
    requests: Requests  # the mix, none longer than max_model_len
    measured_step_time: StepTime | None  # of a step; None = the roofline
    tpot_seconds: float | None  # target

    def memory(self, split: int | None = None) -> MemoryPlan:
        """One GPU's memory, of ``split`` GPUs that share the model."""
        return memory_plan(
            self.gpu,
            self.model,
            max_num_seqs=self.max_num_seqs,
            max_num_batched_tokens=self.max_num_batched_tokens,
            block_size=self.block_size,
            tensor_parallel=split or self.tensor_parallel,
            gpu_memory_utilization=self.gpu_memory_utilization,
            dtype_bytes=self.dtype_bytes,
            kv_cache_dtype=self.kv_cache_dtype,
        )

    def step_time(self, efficiency: Efficiency = STATED) -> StepTime:
        """The measured one, else the roofline at max_num_seqs."""
        if self.measured_step_time is not None:
            return self.measured_step_time
        return roofline(
            self.gpu,
            self.model,
            dtype_bytes=self.dtype_bytes,
            tensor_parallel=self.tensor_parallel,
            kv_cache_dtype=self.kv_cache_dtype,
            decode_batch=self.max_num_seqs,
            efficiency=efficiency,
        )

    @property
    def mix(self) -> Mix:
        """Its lengths."""
        return Mix(self.requests.prompt_tokens, self.requests.generation_tokens)


def plan(question: Question) -> dict[str, Any]:
    """The document; ``fits`` is null with a reason where nothing fits.

    Raises ImpossibleConfiguration: the heads cannot be shared so, or a setting is out of its range.
    """
    memory, mix = question.memory(), question.mix
    document: dict[str, Any] = {
        "gpu": question.gpu.name,
        "model": question.model.name,
        "tensor_parallel_size": question.tensor_parallel,
        "weight_bytes_per_parameter": question.dtype_bytes,
        "kv_cache_dtype": question.kv_cache_dtype,
        "gpu_memory_utilization": question.gpu_memory_utilization,
        "max_num_seqs": question.max_num_seqs,
        "max_num_batched_tokens": question.max_num_batched_tokens,
        "max_model_len": question.max_model_len,
        "block_size": question.block_size,
        "memory": _memory(memory),
        "kv": {
            "bytes_per_token": memory.kv_per_token,
            "bytes_per_100_tokens": planning.cache_bytes(question.model, memory, 100),
            "bytes_per_2000_tokens": planning.cache_bytes(question.model, memory, 2000),
        },
        "mix": {
            "requests": len(question.requests),
            "prompt_tokens_mean": mix.prompt_mean,
            "generation_tokens_mean": mix.generation_mean,
            "longest_tokens": mix.longest,
            "context_tokens_mean": mix.context_mean,
        },
        "phases": _phases(question),
    }
    if memory.kv_tokens < mix.longest:
        why = (
            f"the weights and workspaces of {question.model.name} leave no room for "
            if memory.num_gpu_blocks < 2
            else f"the KV cache holds {memory.kv_tokens:,} tokens, not "
        )
        return {
            **document,
            "fits": None,
            "reason": f"{why}one request of {mix.longest:,} tokens",
            "fitting_tensor_parallel_size": _fitting(question),
        }
    fits = planning.fits_together(memory, question.model, mix, question.max_model_len)
    return {
        **document,
        "fits": asdict(fits),
        "max_model_len_fits": memory.kv_tokens >= question.max_model_len,
        "step_time": describe(question.step_time()),
        "step_time_source": "roofline" if question.measured_step_time is None else "given",
        "batches": _batches(question, memory, fits),
        "tpot": _tpot(question, memory, fits),
    }


def is_problem(document: Document) -> bool:
    """It does not fit, or no batch meets the target."""
    if document["fits"] is None or not document["max_model_len_fits"]:
        return True
    return document["tpot"] is not None and document["tpot"]["largest_batch"] is None


def _memory(plan: MemoryPlan) -> dict[str, Any]:
    return {
        "total_bytes": plan.total,
        "requested_bytes": plan.requested,
        "weights_bytes": plan.weights,
        "activations_bytes": plan.activations,
        "cuda_graphs_bytes": plan.graphs,
        "other_bytes": plan.other,
        "kv_cache_bytes": max(0, plan.kv),
        "missing_bytes": max(0, -plan.kv),
        "num_gpu_blocks": plan.num_gpu_blocks,
        "kv_cache_size_tokens": plan.kv_tokens,
        "estimated": ["activations_bytes", "cuda_graphs_bytes", "other_bytes"],
    }


def _fitting(question: Question) -> int | None:
    """The fewest GPUs that hold the model and its longest request; None: none of those tried."""
    for split in _SPLITS:
        try:
            plan = question.memory(split)
        except ImpossibleConfiguration:
            continue
        if plan.kv_tokens >= question.mix.longest:
            return split
    return None


def _phases(question: Question) -> dict[str, Any]:
    """What binds a prompt and a decode step: FLOPs a byte of each beside the GPU's."""
    mix, options = question.mix, _options(question)
    prompt = max(1, min(round(mix.prompt_mean), question.max_num_batched_tokens))
    prefill = intensity.prefill(question.gpu, question.model, prompt, **options)

    def from_batch(context: int) -> int | None:
        return intensity.compute_bound_batch(
            question.gpu, question.model, context=context, **options
        )

    return {
        "ridge_flops_per_byte": prefill.ridge,
        "prefill_prompt_tokens": prompt,
        "prefill_flops_per_byte": prefill.intensity,
        "prefill_bound_by": prefill.bound,
        "compute_bound_decode_batch": from_batch(round(mix.context_mean)),
        "compute_bound_decode_batch_without_context": from_batch(0),
    }


def _options(question: Question) -> dict[str, Any]:
    return {
        "dtype_bytes": question.dtype_bytes,
        "tensor_parallel": question.tensor_parallel,
        "kv_cache_dtype": question.kv_cache_dtype,
    }


def _batches(question: Question, memory: MemoryPlan, fits: Fits) -> list[dict[str, Any]]:
    laws = [question.step_time(how) for how in (STATED, SLOWEST, FASTEST)]
    mix, rows = question.mix, []
    for batch in planning.shown_batches(fits.running, question.max_num_seqs):
        stated, slow, fast = (
            planning.batch_speed(batch, law, mix, question.model, memory, fits) for law in laws
        )
        phase = intensity.decode(
            question.gpu,
            question.model,
            batch,
            context=round(mix.context_mean),
            **_options(question),
        )
        rows.append(
            {
                **asdict(stated),
                "tokens_per_second_per_user": stated.tokens_per_second_per_user,
                "tokens_per_second_low": slow.tokens_per_second,
                "tokens_per_second_high": fast.tokens_per_second,
                "memory_bytes": memory.requested - max(0, memory.kv) + stated.kv_bytes,
                "decode_flops_per_byte": phase.intensity,
                "decode_bound_by": phase.bound,
            }
        )
    return rows


def _tpot(question: Question, memory: MemoryPlan, fits: Fits) -> dict[str, Any] | None:
    """The largest batch that meets the target, and what else would stop it."""
    target, step_time, mix = question.tpot_seconds, question.step_time(), question.mix
    if target is None:
        return None

    def itl(batch: int) -> float:
        return planning.batch_speed(batch, step_time, mix, question.model, memory, fits).itl_seconds

    most = min(fits.running, question.max_num_seqs)
    largest = planning.largest_batch(lambda batch: itl(batch) <= target, most)
    limit = "tpot"
    if largest == most:
        limit = "kv_cache" if fits.running <= question.max_num_seqs else "max_num_seqs"
    return {
        "target_seconds": target,
        "largest_batch": largest or None,
        "limited_by": limit,
        "itl_seconds": itl(largest) if largest else None,
        "smallest_itl_seconds": itl(1),
    }
