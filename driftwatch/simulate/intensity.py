"""Is decoding bound by memory or by compute: its arithmetic intensity against the GPU's ratio.

Intensity = operations / bytes moved (Williams et al., "Roofline", CACM 2009). Bytes are weights and
KV cache; activations between kernels are left out, which makes every phase look a little more
compute-bound than it is. Both figures are those of one GPU of ``tensor_parallel``.
"""

from __future__ import annotations

from dataclasses import dataclass

from driftwatch.simulate.hardware import Gpu
from driftwatch.simulate.kv_cache import bytes_per_token
from driftwatch.simulate.model_config import Model
from driftwatch.simulate.roofline import active_parameters, attention_flops_per_pair, read_weights

MEMORY, COMPUTE = "memory", "compute"


@dataclass(frozen=True, slots=True)
class Phase:
    """One phase of serving on one GPU."""

    flops: float  # operations
    bytes_moved: float  # weights and KV, read and written
    ridge: float  # the GPU's peak operations a byte of its bandwidth

    @property
    def intensity(self) -> float:
        """Operations a byte."""
        return self.flops / self.bytes_moved

    @property
    def bound(self) -> str:
        """``memory`` or ``compute``."""
        return COMPUTE if self.intensity >= self.ridge else MEMORY


def ridge(gpu: Gpu, *, dtype_bytes: float = 2.0) -> float:
    """Operations a byte from which the GPU is bound by compute."""
    return gpu.flops_per_second(dtype_bytes) / gpu.bandwidth_bytes_per_second


def decode(
    gpu: Gpu,
    model: Model,
    batch: int,
    *,
    context: int,
    dtype_bytes: float = 2.0,
    tensor_parallel: int = 1,
    kv_cache_dtype: str = "auto",
) -> Phase:
    """One token for each of ``batch`` requests with ``context`` tokens each."""
    share = tensor_parallel
    each = 2 * active_parameters(model, head=True) + attention_flops_per_pair(model) * context
    kv = bytes_per_token(model, tensor_parallel=share, kv_cache_dtype=kv_cache_dtype)
    moved = read_weights(model, batch) * dtype_bytes / share + batch * (context + 1) * kv
    return Phase(batch * each / share, moved, ridge(gpu, dtype_bytes=dtype_bytes))
