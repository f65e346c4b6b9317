"""What ``driftwatch plan`` answers, as one document: the text and ``--json`` are made from it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from driftwatch.errors import ImpossibleConfiguration, UsageError
from driftwatch.simulate import intensity, planning, planning_replay
from driftwatch.simulate.configuration import SchedulerConfiguration
from driftwatch.simulate.hardware import Gpu, Model
from driftwatch.simulate.kv_cache import (
    MemoryPlan,
    capture_sizes,
    largest_capture_size,
    memory_plan,
)
from driftwatch.simulate.laws import describe, roofline
from driftwatch.simulate.planning import Fits, Mix
from driftwatch.simulate.requests import Requests
from driftwatch.simulate.step_time import StepTime

_SHARE_OF_CAPACITY = 0.7  # the demand of a comparison where none is given
_SPLITS = (1, 2, 4, 8, 16, 32, 64)


@dataclass(frozen=True, slots=True, eq=False)
class Asked:
    """What is planned.

    Attributes:
        gpu: one of ``tensor_parallel`` equal ones.
        model: shapes.
        tensor_parallel: GPUs that share each layer.
        dtype_bytes: of a weight.
        kv_cache_dtype: vLLM's.
        gpu_memory_utilization: vLLM's.
        max_num_seqs: vLLM's.
        max_num_batched_tokens: vLLM's.
        max_model_len: vLLM's.
        block_size: vLLM's.
        requests: the mix, none longer than max_model_len, with arrival times where ``timed``.
        timed: the arrival times are the user's own.
        law: measured step time; None = the roofline.
        rate_per_second: offered.
        ttft_seconds: target.
        tpot_seconds: target.
        objective: a preset's name.
        seed: of the arrivals.
    """

    gpu: Gpu
    model: Model
    tensor_parallel: int
    dtype_bytes: float
    kv_cache_dtype: str
    gpu_memory_utilization: float
    max_num_seqs: int
    max_num_batched_tokens: int
    max_model_len: int
    block_size: int
    requests: Requests
    timed: bool
    law: StepTime | None
    rate_per_second: float | None
    ttft_seconds: float | None
    tpot_seconds: float | None
    objective: str | None
    seed: int

    def memory(self, seqs: int, budget: int, split: int | None = None) -> MemoryPlan:
        """One GPU's memory at these two knobs."""
        return memory_plan(
            self.gpu,
            self.model,
            max_num_seqs=seqs,
            max_num_batched_tokens=budget,
            block_size=self.block_size,
            tensor_parallel=split or self.tensor_parallel,
            gpu_memory_utilization=self.gpu_memory_utilization,
            dtype_bytes=self.dtype_bytes,
            kv_cache_dtype=self.kv_cache_dtype,
        )

    def law_of(self, batch: int) -> StepTime:
        """The step time where so many decode together."""
        if self.law is not None:
            return self.law
        return roofline(
            self.gpu,
            self.model,
            dtype_bytes=self.dtype_bytes,
            tensor_parallel=self.tensor_parallel,
            kv_cache_dtype=self.kv_cache_dtype,
            decode_batch=batch,
        )

    @property
    def mix(self) -> Mix:
        """Its lengths."""
        return Mix(self.requests.prompt_tokens, self.requests.generation_tokens)


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
        "step_time": describe(asked.law_of(seqs)),
        "step_time_source": "roofline" if asked.law is None else "given",
        "batches": _batches(asked, memory, fits),
        "tpot": _tpot(asked, memory, fits),
        "presets": None,
        "queue": None,
    }
    if asked.objective is not None or asked.rate_per_second is not None:
        document |= _replayed(asked)
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
    for batch in planning.shown_batches(fits.running, asked.max_num_seqs):
        speed = planning.batch_speed(batch, asked.law_of, asked.mix, asked.model, memory, fits)
        rows.append(
            {
                **asdict(speed),
                "tokens_per_second_per_user": speed.tokens_per_second_per_user,
                "memory_bytes": memory.requested - max(0, memory.kv) + speed.kv_bytes,
            }
        )
    return rows


def _tpot(asked: Asked, memory: MemoryPlan, fits: Fits) -> dict[str, Any] | None:
    """The largest batch that meets the target, and what else would stop it."""
    target = asked.tpot_seconds
    if target is None:
        return None

    def itl(batch: int) -> float:
        speed = planning.batch_speed(batch, asked.law_of, asked.mix, asked.model, memory, fits)
        return speed.itl_seconds

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


def _configuration(asked: Asked, seqs: int, budget: int) -> SchedulerConfiguration:
    blocks = asked.memory(seqs, budget).num_gpu_blocks
    longest = min(asked.max_model_len, max(asked.mix.longest, 1))
    configuration = SchedulerConfiguration(
        max_num_seqs=seqs,
        max_num_batched_tokens=budget,
        num_gpu_blocks=blocks,
        block_size=asked.block_size,
        max_model_len=longest,
    )
    configuration.check()
    return configuration


def _replayed(asked: Asked) -> dict[str, Any]:
    """Presets and queue: both need the demand, and the capacity of the server as it is."""
    seqs, budget = asked.max_num_seqs, asked.max_num_batched_tokens
    now = _configuration(asked, seqs, budget)
    law = _law(asked, now)
    capacity = planning_replay.capacity_per_second(asked.requests, now, law)
    rate = asked.rate_per_second
    requests = asked.requests
    if rate is None and capacity is None:
        raise UsageError(
            f"{len(requests)} requests are too few to measure a capacity",
            help_text="give --rate, or a file with more requests",
        )
    source = "given"
    if rate is None and asked.timed:
        source = "file"
        rate = (len(requests) - 1) / float(np.ptp(requests.arrival_seconds))
    else:
        if rate is None:
            source, rate = "assumed", _SHARE_OF_CAPACITY * (capacity or 0.0)
        rng = np.random.default_rng(asked.seed)
        requests = planning_replay.paced(requests, rate, rng)
    demand = {
        "requests_per_second": rate,
        "source": source,
        "capacity_requests_per_second": capacity,
    }
    targets: dict[str, Any] = {
        "ttft_seconds": asked.ttft_seconds,
        "tpot_seconds": asked.tpot_seconds,
    }
    found: dict[str, Any] = {"demand": demand}
    at_rate = planning_replay.replay(requests, now, law, **targets)
    if asked.objective is not None:
        found["presets"] = _presets(
            asked, requests, _row("as given", now, at_rate, capacity), targets
        )
    if asked.rate_per_second is not None:
        found["queue"] = _queue(asked, rate, capacity, at_rate, law)
    return found


def _law(asked: Asked, configuration: SchedulerConfiguration) -> StepTime:
    """A law for the batch that this configuration can run, padded as CUDA graphs are."""
    most = configuration.max_num_seqs
    largest = largest_capture_size(asked.gpu)
    sizes = capture_sizes(most, configuration.max_num_batched_tokens, largest=largest)
    law = asked.law_of(most)
    return law if asked.law is not None else replace(law, capture_sizes=sizes)


def _presets(
    asked: Asked,
    requests: Requests,
    today: dict[str, Any],
    targets: dict[str, Any],
) -> list[dict[str, Any]]:
    rows = [today]
    for name, (seqs, budget) in planning_replay.PRESETS.items():
        try:
            configuration = _configuration(asked, seqs, budget)
            law = _law(asked, configuration)
            replayed = planning_replay.replay(requests, configuration, law, **targets)
            capacity = planning_replay.capacity_per_second(asked.requests, configuration, law)
        except ImpossibleConfiguration as error:
            rows.append({"name": name, "reason": error.message})
            continue
        rows.append(_row(name, configuration, replayed, capacity))
    return rows


def _row(
    name: str,
    configuration: SchedulerConfiguration,
    replayed: planning_replay.Replayed,
    capacity: float | None,
) -> dict[str, Any]:
    return {
        "name": name,
        "max_num_seqs": configuration.max_num_seqs,
        "max_num_batched_tokens": configuration.max_num_batched_tokens,
        "num_gpu_blocks": configuration.num_gpu_blocks,
        "capacity_requests_per_second": capacity,
        **asdict(replayed),
    }


def _queue(
    asked: Asked,
    rate: float,
    capacity: float | None,
    at_rate: planning_replay.Replayed,
    law: StepTime,
) -> dict[str, Any]:
    """ρ, the M/M/1 bound, the replayed wait, and what the target leaves for waiting."""
    mix = asked.mix
    # one prompt in an empty server, in as many steps as the budget makes of it
    steps = int(np.ceil(mix.prompt_mean / asked.max_num_batched_tokens))
    service = steps * law.c0_seconds + law.c1_seconds_per_prefill_token * mix.prompt_mean
    alone = service + (mix.generation_mean - 1) * law.seconds(0, 1, round(mix.context_mean))
    single = None if capacity is None else planning_replay.single_queue(rate, 1 / capacity)
    budget = None if asked.ttft_seconds is None else asked.ttft_seconds - service
    return {
        "utilisation_ratio": None if single is None else single.utilisation_ratio,
        "mm1_service_seconds": None if single is None else single.service_seconds,
        "mm1_wait_seconds": None if single is None else single.wait_seconds,
        "mm1_time_seconds": None if single is None else single.time_seconds,
        "one_at_a_time_utilisation_ratio": rate * alone,
        "request_alone_seconds": alone,
        "ttft_alone_seconds": service,
        "replayed_queue_seconds_mean": at_rate.queue_seconds_mean,
        "replayed_ttft_seconds_mean": at_rate.ttft_seconds_mean,
        "replayed_ttft_seconds_p95": at_rate.ttft_seconds_p95,
        "replayed_tpot_seconds_p95": at_rate.tpot_seconds_p95,
        "replayed_requests": at_rate.requests,
        "in_target_ratio": at_rate.in_target_ratio,
        "wait_budget_seconds": budget,
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
    if asked.law is None:
        found.append(
            "step time: the roofline of the datasheet, a prior; on two recorded GPUs its "
            "end-to-end times were 3 and 24 % off. Give --step-time where it is measured"
        )
    if asked.dtype_bytes < 2 and asked.gpu.dense_tflops.fp8 is None:
        found.append(
            f"{asked.gpu.name} has no fp8 units: the weights are fp8, it computes in 16 bit"
        )
    if dropped:
        found.append(f"{dropped:,} requests are longer than max_model_len and left out")
    return tuple(found)
