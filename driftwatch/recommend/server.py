"""What is known of a server's engine, for a replay; None is unknown, never a default."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from driftwatch.model import Serving


@dataclass(frozen=True, slots=True)
class Server:
    """One engine, as it runs.

    Attributes:
        serving: settings with their provenance; an inferred max_num_seqs is among them.
        model: model name as served; None = unknown.
        gpu: GPU name as NVML or DCGM tell it, or as configured; None = unknown.
        gpus: GPUs of this engine; None = unknown.
        tensor_parallel: GPUs that share each layer; None = unknown.
        weight_bytes: bytes of one weight (2 = bf16, 1 = fp8); None = unknown.
        kv_cache_dtype: vLLM's --kv-cache-dtype; None = unknown.
        num_gpu_blocks: KV blocks, vLLM's null block included; None = unknown.
        block_size: tokens a block holds; None = unknown.
        gpu_memory_utilization: vLLM's; None = unknown.
        prefix_caching: on or off; None = unknown.
        release: vLLM version; None = unknown.
        flags: other engine flags that the server told, by vLLM's own name (``async_scheduling``,
            ``scheduling_policy``, ``enable_chunked_prefill``, …); what is not in it is unknown.
        unsupported: what runs that no replay here knows (speculative decoding, LoRA, pipeline
            parallelism), in words.
    """

    serving: Serving = field(default_factory=Serving)
    model: str | None = None
    gpu: str | None = None
    gpus: float | None = None
    tensor_parallel: int | None = None
    weight_bytes: float | None = None
    kv_cache_dtype: str | None = None
    num_gpu_blocks: int | None = None
    block_size: int | None = None
    gpu_memory_utilization: float | None = None
    prefix_caching: bool | None = None
    release: str | None = None
    unsupported: tuple[str, ...] = ()
    flags: Mapping[str, str] = field(default_factory=dict)
