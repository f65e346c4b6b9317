"""KV blocks after a change of knobs: the memory that the profile run takes more or less.

vLLM measures its peak at max_num_batched_tokens tokens and max_num_seqs rows of logits and gives
the rest of the memory to the cache (``v1/worker/gpu_worker.py``). The observed block count is
corrected by the difference of two :func:`~driftwatch.simulate.kv_cache.memory_plan`, so that what
the plan has wrong in both cancels.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from driftwatch.errors import DriftwatchError
from driftwatch.recommend.calibration.prior import find_gpu, find_model
from driftwatch.recommend.server import Server
from driftwatch.simulate.configuration import SchedulerConfiguration
from driftwatch.simulate.hardware import Hardware, shipped_hardware
from driftwatch.simulate.kv_cache import CACHE_DTYPES, MemoryPlan, memory_plan


@dataclass(frozen=True, slots=True)
class BlockCount:
    """KV blocks with other knobs.

    Args:
        server: what is known of it.
        hardware: its tables.
    """

    server: Server
    hardware: Hardware

    @classmethod
    def of(cls, server: Server, hardware: Hardware | None = None) -> BlockCount:
        """With the shipped tables where none are given."""
        return cls(server, shipped_hardware() if hardware is None else hardware)

    def after(self, today: SchedulerConfiguration, knobs: Mapping[str, float]) -> int | None:
        """Blocks with these knobs; today's where the memory is not known; None = unknown today.

        At least 1: a count that vLLM would refuse is refused by the configuration's own check.
        """
        blocks = today.num_gpu_blocks
        if blocks is None:
            return None
        before, then = self._plan(today, {}), self._plan(today, knobs)
        if before is None or then is None:
            return blocks
        more = (then.kv - before.kv) / (before.kv_per_token * before.block_size)
        return max(1, blocks + int(more // 1))

    def doubled(self, today: SchedulerConfiguration) -> int | None:
        """Blocks with fp8 KV in the place of 16 bits: as many bytes, half a token's each."""
        return None if today.num_gpu_blocks is None else 2 * today.num_gpu_blocks

    @property
    def unknown(self) -> str | None:
        """Why the count is not corrected; None where it is."""
        why = "; ".join(self.lacking.values())
        return f"KV blocks not corrected for other settings: {why}" if why else None

    @property
    def lacking(self) -> Mapping[str, str]:
        """``model`` and ``GPU``, where the tables do not know it → why; empty = they know both."""
        _, no_gpu = find_gpu(self.hardware, self.server.gpu)
        _, no_model = find_model(self.hardware, self.server.model)
        return {name: why for name, why in (("model", no_model), ("GPU", no_gpu)) if why}

    def _plan(self, today: SchedulerConfiguration, knobs: Mapping[str, float]) -> MemoryPlan | None:
        server = self.server
        gpu, _ = find_gpu(self.hardware, server.gpu)
        model, _ = find_model(self.hardware, server.model)
        if gpu is None or model is None:
            return None
        cache = server.kv_cache_dtype or "auto"
        seqs = knobs.get("max_num_seqs", today.max_num_seqs)
        tokens = knobs.get("max_num_batched_tokens", today.max_num_batched_tokens)
        try:
            return memory_plan(
                gpu,
                model,
                max_num_seqs=round(seqs),
                max_num_batched_tokens=round(tokens),
                block_size=today.block_size,
                tensor_parallel=server.tensor_parallel or 1,
                gpu_memory_utilization=server.gpu_memory_utilization or 0.9,
                dtype_bytes=server.weight_bytes or 2.0,
                kv_cache_dtype=cache if cache in CACHE_DTYPES else "auto",
            )
        except DriftwatchError:
            return None
