"""What ``driftwatch plan`` answers, as one document: the text and ``--json`` are made from it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from driftwatch.cli.plan.asked import Asked
from driftwatch.cli.plan.demand import under_demand
from driftwatch.errors import ImpossibleConfiguration
from driftwatch.lab import intensity, planning
from driftwatch.lab.planning import Fits, Mix
from driftwatch.simulate.kv_cache import MemoryPlan
from driftwatch.simulate.step_time import StepTime, describe

_SPLITS = (1, 2, 4, 8, 16, 32, 64)


def answer(asked: Asked) -> dict[str, Any]:
    """The document; ``fits`` and all after it are null with a reason where nothing fits.

    Raises:
        ImpossibleConfiguration: the heads cannot be shared so, or a setting is out of its range.
    """
    seqs, budget = asked.max_num_seqs, asked.max_num_batched_tokens
    memory = asked.memory(seqs, budget)
    mix = asked.mix
    document: dict[str, Any] = {
        "schema_version": 1,
        "gpu": asked.gpu.name,
        "model": asked.model.name,
        "tensor_parallel_size": asked.tensor_parallel,
        "weight_bytes_per_parameter": asked.dtype_bytes,
        "kv_cache_dtype": asked.kv_cache_dtype,
        "gpu_memory_utilization": asked.gpu_memory_utilization,
        "max_num_seqs": seqs,
        "max_num_batched_tokens": budget,
        "max_model_len": asked.max_model_len,
        "block_size": asked.block_size,
        "memory": _memory(memory),
        "kv": {
            "bytes_per_token": memory.kv_per_token,
            "bytes_per_100_tokens": planning.cache_bytes(asked.model, memory, 100),
            "bytes_per_2000_tokens": planning.cache_bytes(asked.model, memory, 2000),
        },
        "mix": {
            "requests": len(asked.requests),
            "prompt_tokens_mean": mix.prompt_mean,
            "generation_tokens_mean": mix.generation_mean,
            "longest_tokens": mix.longest,
            "context_tokens_mean": mix.context_mean,
        },
        "phases": _phases(asked, mix),
    }
    if memory.kv_tokens < mix.longest:
        fitting = _fitting(asked, mix)
        reason = (
            f"the weights and workspaces of {asked.model.name} leave no room for "
            if memory.num_gpu_blocks < 2
            else f"the KV cache holds {memory.kv_tokens:,} tokens, not "
        ) + f"one request of {mix.longest:,} tokens"
        return {
            **document,
            "fits": None,
            "reason": reason,
            "fitting_tensor_parallel_size": fitting,
        }
    fits = planning.fits_together(memory, asked.model, mix, asked.max_model_len)
    starts = memory.kv_tokens >= asked.max_model_len
    document |= {
        "fits": asdict(fits),
        "max_model_len_fits": starts,
        "step_time": describe(asked.step_time),
        "step_time_source": "roofline" if asked.measured_step_time is None else "given",
        "batches": _batches(asked, memory, fits),
        "tpot": _tpot(asked, memory, fits),
        "objective": asked.objective,
        "presets": None,
        "best_preset": None,
        "queue": None,
    }
    if asked.objective is not None or asked.rate_per_second is not None:
        document |= under_demand(asked)
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


def _fitting(asked: Asked, mix: Mix) -> int | None:
    """The fewest GPUs that hold the model and its longest request; None: none of those tried."""
    for split in _SPLITS:
        try:
            plan = asked.memory(asked.max_num_seqs, asked.max_num_batched_tokens, split)
        except ImpossibleConfiguration:
            continue
        if plan.kv_tokens >= mix.longest:
            return split
    return None


def _phases(asked: Asked, mix: Mix) -> dict[str, Any]:
    options: dict[str, Any] = {
        "dtype_bytes": asked.dtype_bytes,
        "tensor_parallel": asked.tensor_parallel,
        "kv_cache_dtype": asked.kv_cache_dtype,
    }
    context = round(mix.context_mean)
    prompt = max(1, min(round(mix.prompt_mean), asked.max_num_batched_tokens))
    found: list[tuple[str, int, int, intensity.Phase]] = [
        ("prefill", prompt, 0, intensity.prefill(asked.gpu, asked.model, prompt, **options))
    ]
    for batch in (1, 32, 256):
        phase = intensity.decode(asked.gpu, asked.model, batch, context=context, **options)
        found.append(("decode", batch, context, phase))
    return {
        "ridge_flops_per_byte": found[0][3].ridge,
        "rows": [
            {
                "phase": name,
                "prompt_tokens" if name == "prefill" else "batch": size,
                "context_tokens": before,
                "flops_per_byte": phase.intensity,
                "bound_by": phase.bound,
            }
            for name, size, before, phase in found
        ],
        "compute_bound_decode_batch": intensity.compute_bound_batch(
            asked.gpu, asked.model, context=context, **options
        ),
        "compute_bound_decode_batch_without_context": intensity.compute_bound_batch(
            asked.gpu, asked.model, context=0, **options
        ),
    }


def _batches(asked: Asked, memory: MemoryPlan, fits: Fits) -> list[dict[str, Any]]:
    rows = []
    step_time, mix = asked.step_time, asked.mix
    slowest, fastest = asked.step_time_bounds

    def at(batch: int, step_time: StepTime) -> planning.BatchSpeed:
        return planning.batch_speed(batch, step_time, mix, asked.model, memory, fits)

    for batch in planning.shown_batches(fits.running, asked.max_num_seqs):
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


def _tpot(asked: Asked, memory: MemoryPlan, fits: Fits) -> dict[str, Any] | None:
    """The largest batch that meets the target, and what else would stop it."""
    target = asked.tpot_seconds
    if target is None:
        return None
    step_time, mix = asked.step_time, asked.mix

    def itl(batch: int) -> float:
        return planning.batch_speed(batch, step_time, mix, asked.model, memory, fits).itl_seconds

    most = min(fits.running, asked.max_num_seqs)
    found = planning.largest_batch(lambda batch: itl(batch) <= target, most)
    limit = "tpot"
    if found == most:
        limit = "kv_cache" if fits.running <= asked.max_num_seqs else "max_num_seqs"
    return {
        "target_seconds": target,
        "largest_batch": found or None,
        "limited_by": limit,
        "itl_seconds": itl(found) if found else None,
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


def notes_of(asked: Asked, dropped: int, taken: Sequence[str]) -> tuple[str, ...]:
    """What was assumed, for stderr and JSON."""
    found = list(taken)
    if asked.measured_step_time is None:
        found.append(
            f"step time: the roofline of the datasheet at {asked.max_num_seqs:,} decoding requests "
            "(max_num_seqs), a prior that is slow for far fewer; on two recorded GPUs its "
            "end-to-end times were 3 and 24 % off. Give --step-time where it is measured"
        )
    if (asked.requests.shared_prefix_tokens > 0).any() or (asked.requests.cached_tokens > 0).any():
        found.append(
            "the file's common prefixes are found again in what is replayed (capacity, presets, "
            "queue); the batch table and the KV ceilings compute and hold every prompt whole"
        )
    if asked.model.sliding is not None and (asked.objective or asked.rate_per_second):
        found.append(
            f"{asked.model.name} has sliding windows, the replay does not: there its KV cache "
            "fills earlier and is read for longer than it would"
        )
    if asked.dtype_bytes < 2 and asked.gpu.dense_tflops.fp8 is None:
        found.append(
            f"{asked.gpu.name} has no fp8 units: the weights are fp8, it computes in 16 bit"
        )
    if dropped:
        found.append(f"{dropped:,} requests are longer than max_model_len and left out")
    return tuple(found)
