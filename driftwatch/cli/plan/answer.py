"""What ``driftwatch plan`` answers, as one document: the text and ``--json`` are made from it."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from driftwatch.cli.plan.demand import under_demand
from driftwatch.cli.plan.question import Question
from driftwatch.errors import ImpossibleConfiguration
from driftwatch.lab import planning
from driftwatch.lab.planning import Fits, Mix
from driftwatch.simulate import intensity
from driftwatch.simulate.kv_cache import MemoryPlan
from driftwatch.simulate.step_time import StepTime, describe

_SPLITS = (1, 2, 4, 8, 16, 32, 64)


def answer(question: Question) -> dict[str, Any]:
    """The document; ``fits`` and all after it are null with a reason where nothing fits.

    Raises ImpossibleConfiguration: the heads cannot be shared so, or a setting is out of its range.
    """
    seqs, budget = question.max_num_seqs, question.max_num_batched_tokens
    memory = question.memory(seqs, budget)
    mix = question.mix
    document: dict[str, Any] = {
        "schema_version": 1,
        "gpu": question.gpu.name,
        "model": question.model.name,
        "tensor_parallel_size": question.tensor_parallel,
        "weight_bytes_per_parameter": question.dtype_bytes,
        "kv_cache_dtype": question.kv_cache_dtype,
        "gpu_memory_utilization": question.gpu_memory_utilization,
        "max_num_seqs": seqs,
        "max_num_batched_tokens": budget,
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
        "phases": _phases(question, mix),
    }
    if memory.kv_tokens < mix.longest:
        fitting = _fitting(question, mix)
        reason = (
            f"the weights and workspaces of {question.model.name} leave no room for "
            if memory.num_gpu_blocks < 2
            else f"the KV cache holds {memory.kv_tokens:,} tokens, not "
        ) + f"one request of {mix.longest:,} tokens"
        return {
            **document,
            "fits": None,
            "reason": reason,
            "fitting_tensor_parallel_size": fitting,
        }
    fits = planning.fits_together(memory, question.model, mix, question.max_model_len)
    starts = memory.kv_tokens >= question.max_model_len
    document |= {
        "fits": asdict(fits),
        "max_model_len_fits": starts,
        "step_time": describe(question.step_time),
        "step_time_source": "roofline" if question.measured_step_time is None else "given",
        "batches": _batches(question, memory, fits),
        "tpot": _tpot(question, memory, fits),
        "objective": question.objective,
        "presets": None,
        "best_preset": None,
        "queue": None,
    }
    if question.objective is not None or question.rate_per_second is not None:
        document |= under_demand(question)
    return document


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


def _fitting(question: Question, mix: Mix) -> int | None:
    """The fewest GPUs that hold the model and its longest request; None: none of those tried."""
    for split in _SPLITS:
        try:
            plan = question.memory(question.max_num_seqs, question.max_num_batched_tokens, split)
        except ImpossibleConfiguration:
            continue
        if plan.kv_tokens >= mix.longest:
            return split
    return None


def _phases(question: Question, mix: Mix) -> dict[str, Any]:
    options: dict[str, Any] = {
        "dtype_bytes": question.dtype_bytes,
        "tensor_parallel": question.tensor_parallel,
        "kv_cache_dtype": question.kv_cache_dtype,
    }
    context = round(mix.context_mean)
    prompt = max(1, min(round(mix.prompt_mean), question.max_num_batched_tokens))
    points: list[tuple[str, int, int, intensity.Phase]] = [
        ("prefill", prompt, 0, intensity.prefill(question.gpu, question.model, prompt, **options))
    ]
    for batch in (1, 32, 256):
        phase = intensity.decode(question.gpu, question.model, batch, context=context, **options)
        points.append(("decode", batch, context, phase))
    return {
        "ridge_flops_per_byte": points[0][3].ridge,
        "rows": [
            {
                "phase": name,
                "prompt_tokens" if name == "prefill" else "batch": size,
                "context_tokens": before,
                "flops_per_byte": phase.intensity,
                "bound_by": phase.bound,
            }
            for name, size, before, phase in points
        ],
        "compute_bound_decode_batch": intensity.compute_bound_batch(
            question.gpu, question.model, context=context, **options
        ),
        "compute_bound_decode_batch_without_context": intensity.compute_bound_batch(
            question.gpu, question.model, context=0, **options
        ),
    }


def _batches(question: Question, memory: MemoryPlan, fits: Fits) -> list[dict[str, Any]]:
    rows = []
    step_time, mix = question.step_time, question.mix
    slowest, fastest = question.step_time_bounds

    def at(batch: int, step_time: StepTime) -> planning.BatchSpeed:
        return planning.batch_speed(batch, step_time, mix, question.model, memory, fits)

    for batch in planning.shown_batches(fits.running, question.max_num_seqs):
        speed = at(batch, step_time)
        rows.append(
            {
                **asdict(speed),
                "tokens_per_second_per_user": speed.tokens_per_second_per_user,
                "tokens_per_second_low": at(batch, slowest).tokens_per_second,
                "tokens_per_second_high": at(batch, fastest).tokens_per_second,
                "memory_bytes": memory.requested - max(0, memory.kv) + speed.kv_bytes,
            }
        )
    return rows


def _tpot(question: Question, memory: MemoryPlan, fits: Fits) -> dict[str, Any] | None:
    """The largest batch that meets the target, and what else would stop it."""
    target = question.tpot_seconds
    if target is None:
        return None
    step_time, mix = question.step_time, question.mix

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


def is_problem(document: dict[str, Any]) -> bool:
    """It does not fit, no batch meets the target, or the demand is above the capacity."""
    if document.get("fits") is None or not document["max_model_len_fits"]:
        return True
    if (tpot := document["tpot"]) is not None and tpot["largest_batch"] is None:
        return True
    if (queue := document["queue"]) is None:
        return False
    over = queue["utilisation_ratio"] is not None and queue["utilisation_ratio"] >= 1
    budget: float | None = queue["wait_budget_seconds"]
    return over or (budget is not None and budget < 0)
