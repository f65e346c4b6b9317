"""The question of ``driftwatch plan``, with every default taken."""

from __future__ import annotations

from dataclasses import dataclass

from driftwatch.lab.planning import Mix
from driftwatch.simulate.hardware import Gpu, Model
from driftwatch.simulate.kv_cache import MemoryPlan, memory_plan
from driftwatch.simulate.requests import Requests
from driftwatch.simulate.roofline import FASTEST, SLOWEST, STATED, Efficiency, roofline
from driftwatch.simulate.step_time import StepTime


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
