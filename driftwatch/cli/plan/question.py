"""The question of ``driftwatch plan``: its options with every default taken."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from driftwatch.cli.simulate.options import batch_of, dtype_bytes_of, mix_of
from driftwatch.errors import UsageError
from driftwatch.lab.planning import Mix
from driftwatch.simulate.hardware import Gpu, Model, with_hardware
from driftwatch.simulate.kv_cache import MemoryPlan, memory_plan
from driftwatch.simulate.requests import Requests
from driftwatch.simulate.roofline import FASTEST, SLOWEST, STATED, Efficiency, roofline
from driftwatch.simulate.step_time import StepTime, parse_step_time

_MIX_SIZE = 2000  # requests of a mix that is given by its means
_MOST_READ = 50_000  # of a file: more change no figure by 1 %


@dataclass(frozen=True, slots=True, eq=False)
class Question:
    """What is planned."""

    gpu: Gpu  # one of ``tensor_parallel`` equal ones
    model: Model  # shapes
    tensor_parallel: int  # GPUs that share each layer
    dtype_bytes: float  # of a weight
    kv_cache_dtype: str
    gpu_memory_utilization: float
    max_num_seqs: int
    max_num_batched_tokens: int
    max_model_len: int
    block_size: int
    # the mix, none longer than max_model_len, with arrival times where ``timed``
    requests: Requests
    timed: bool  # the arrival times are the user's own
    measured_step_time: StepTime | None  # of a step; None = the roofline
    rate_per_second: float | None  # offered
    ttft_seconds: float | None  # target
    tpot_seconds: float | None  # target
    objective: str | None  # a preset's name
    seed: int  # of the arrivals

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

    @property
    def step_time(self) -> StepTime:
        """One for all answers: the measured one, or the roofline at max_num_seqs."""
        return self.measured_step_time or self._of_datasheet(STATED)

    @property
    def step_time_bounds(self) -> tuple[StepTime, StepTime]:
        """The slowest and the fastest that servers reach; a measured one is neither."""
        if self.measured_step_time is not None:
            return self.measured_step_time, self.measured_step_time
        return self._of_datasheet(SLOWEST), self._of_datasheet(FASTEST)

    def _of_datasheet(self, efficiency: Efficiency) -> StepTime:
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


def question_from(
    *,
    gpu: str | None,
    model: str | None,
    hardware: Path | None,
    max_model_len: int | None,
    file: Path | None,
    seed: int,
    **options: Any,
) -> tuple[Question, list[str]]:
    """The question of the command's options, and notes on what was assumed.

    Raises UsageError: no GPU or model, settings that vLLM refuses, or every request is too long;
    WorkloadError: the file cannot be read as requests.
    """
    if gpu is None or model is None:
        missing = [flag for flag, name in (("--gpu", gpu), ("--model", model)) if name is None]
        raise UsageError(
            f"{' and '.join(missing)} is not given",
            help_text="driftwatch plan --gpu H100-80GB --model llama-3.1-8b",
        )
    tables = with_hardware(hardware)
    card, shapes = tables.gpu(gpu), tables.model(model)
    longest = max_model_len or shapes.max_position_embeddings
    budget, seqs, notes = batch_of(
        card, options.pop("max_num_batched_tokens"), options.pop("max_num_seqs"), longest
    )
    if budget < seqs:
        raise UsageError(
            f"max_num_batched_tokens {budget} is below max_num_seqs {seqs}: vLLM refuses to start",
            help_text="lower --max-num-seqs, or raise --max-num-batched-tokens",
        )
    means = (options.pop("prompt_tokens"), options.pop("generation_tokens"))
    count = _MIX_SIZE if file is None else _MOST_READ
    requests, unused = mix_of(file, means, options.pop("length_cv"), seed, count)
    fits = requests.prompt_tokens + requests.generation_tokens <= longest
    if not fits.any():
        raise UsageError(
            f"every request is longer than max_model_len {longest:,}",
            help_text="raise --max-model-len, or lower --prompt-tokens and --generation-tokens",
        )
    measured = options.pop("step_time")
    question = Question(
        gpu=card,
        model=shapes,
        tensor_parallel=options.pop("tensor_parallel_size"),
        dtype_bytes=dtype_bytes_of(shapes, options.pop("dtype")),
        max_num_seqs=seqs,
        max_num_batched_tokens=budget,
        max_model_len=longest,
        requests=requests.take(fits),
        timed=file is not None and float(np.ptp(requests.arrival_seconds[fits])) > 0,
        measured_step_time=None if measured is None else parse_step_time(measured),
        rate_per_second=options.pop("rate"),
        seed=seed,
        **options,
    )
    return question, [*notes, *unused, *_notes(question, int((~fits).sum()))]


def _notes(question: Question, dropped: int) -> list[str]:
    """What was assumed besides, for stderr and JSON."""
    notes, requests = [], question.requests
    if question.measured_step_time is None:
        notes.append(
            f"step time: the roofline of the datasheet at {question.max_num_seqs:,} decoding "
            "requests (max_num_seqs), an estimate that is too slow for far fewer; on two recorded "
            "GPUs its end-to-end times were 3 and 24 % off. Give --step-time where it is measured"
        )
    if (requests.shared_prefix_tokens > 0).any() or (requests.cached_tokens > 0).any():
        notes.append(
            "the file's common prefixes count in what is simulated (capacity, presets, queue); the "
            "batch table and the KV ceilings compute and hold every prompt whole"
        )
    if question.model.sliding is not None and (question.objective or question.rate_per_second):
        notes.append(
            f"{question.model.name} has sliding windows, the simulator does not: there its KV "
            "cache fills earlier and is read for longer than it would"
        )
    if question.dtype_bytes < 2 and question.gpu.dense_tflops.fp8 is None:
        notes.append(
            f"{question.gpu.name} has no fp8 units: the weights are fp8, it computes in 16 bit"
        )
    if dropped:
        notes.append(f"{dropped:,} requests are longer than max_model_len and left out")
    return notes
