"""Is a step bound by memory or by compute: its arithmetic intensity against the GPU's ratio.

Intensity = operations / bytes moved (Williams et al., "Roofline", CACM 2009). Bytes are weights and
KV cache; activations between kernels are left out, which makes every phase look a little more
compute-bound than it is. Both figures are those of one GPU of ``tensor_parallel``.
"""

from __future__ import annotations

from dataclasses import dataclass

from driftwatch.simulate.hardware import Gpu, Model
from driftwatch.simulate.kv_cache import bytes_per_token
from driftwatch.simulate.roofline import active_parameters, attention_flops_per_pair, read_weights

MEMORY, COMPUTE = "memory", "compute"
_MOST_BATCH = 1 << 20


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


def prefill(
    gpu: Gpu,
    model: Model,
    tokens: int,
    *,
    context: int = 0,
    dtype_bytes: float = 2.0,
    tensor_parallel: int = 1,
    kv_cache_dtype: str = "auto",
) -> Phase:
    """``tokens`` prompt tokens of one request after ``context`` computed ones."""
    share = tensor_parallel
    pairs = tokens * context + tokens * (tokens + 1) / 2
    # only the last token's logits are computed
    operations = 2 * active_parameters(model, head=False) * tokens + 2 * model.shapes.head
    operations += attention_flops_per_pair(model) * pairs
    kv = bytes_per_token(model, tensor_parallel=share, kv_cache_dtype=kv_cache_dtype)
    moved = read_weights(model, tokens) * dtype_bytes / share + (context + tokens) * kv
    return Phase(operations / share, moved, ridge(gpu, dtype_bytes=dtype_bytes))


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
    return mean_step(
        gpu,
        model,
        batch,
        0.0,
        context=context,
        dtype_bytes=dtype_bytes,
        tensor_parallel=tensor_parallel,
        kv_cache_dtype=kv_cache_dtype,
    )


def mean_step(
    gpu: Gpu,
    model: Model,
    requests: float,
    prompt_tokens: float,
    *,
    context: float,
    dtype_bytes: float = 2.0,
    tensor_parallel: int = 1,
    kv_cache_dtype: str = "auto",
) -> Phase:
    """A step that decodes ``requests`` of ``context`` tokens each and computes prompt tokens.

    Both share the weights; the attention of prompts, which is little, is left out.
    """
    share, tokens = tensor_parallel, requests + prompt_tokens
    each = 2 * active_parameters(model, head=True) + attention_flops_per_pair(model) * context
    operations = requests * each + prompt_tokens * 2 * active_parameters(model, head=False)
    kv = bytes_per_token(model, tensor_parallel=share, kv_cache_dtype=kv_cache_dtype)
    moved = read_weights(model, tokens) * dtype_bytes / share
    moved += (requests * (context + 1) + prompt_tokens) * kv
    return Phase(operations / share, moved, ridge(gpu, dtype_bytes=dtype_bytes))


def compute_bound_batch(
    gpu: Gpu,
    model: Model,
    *,
    context: int,
    dtype_bytes: float = 2.0,
    tensor_parallel: int = 1,
    kv_cache_dtype: str = "auto",
) -> int | None:
    """The smallest batch at which decode is bound by compute; None where none is.

    With a context, each request brings its own KV bytes: beyond some context no batch is enough.
    """

    def bound(batch: int) -> bool:
        phase = decode(
            gpu,
            model,
            batch,
            context=context,
            dtype_bytes=dtype_bytes,
            tensor_parallel=tensor_parallel,
            kv_cache_dtype=kv_cache_dtype,
        )
        return phase.bound == COMPUTE

    if not bound(_MOST_BATCH):
        return None
    low, high = 0, _MOST_BATCH  # intensity grows with the batch
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if bound(middle) else (middle, high)
    return high
