"""KV and memory arithmetic: bytes a token, blocks a GPU.

Bytes a token are exact (vLLM ``v1/kv_cache_interface.py``). vLLM's number of blocks comes from a
profile run on the GPU (``v1/worker/gpu_worker.py``: requested − weights − peak activations − CUDA
graphs), which is estimated here; ``docs/sre/planning.md`` gives the error.
"""

from __future__ import annotations

from dataclasses import dataclass

from driftwatch.errors import ImpossibleConfiguration
from driftwatch.simulate.hardware import Gpu
from driftwatch.simulate.model_config import Model

# vLLM's --kv-cache-dtype → bytes of one number; auto is the type of the activations
CACHE_BYTES = {
    "auto": 2.0,
    "bfloat16": 2.0,
    "float16": 2.0,
    "fp8": 1.0,
    "fp8_e4m3": 1.0,
    "fp8_e5m2": 1.0,
}
# and types with a format of their own for the latent of one layer, in bytes a token
LATENT_BYTES = {"fp8_ds_mla": 656, "nvfp4_ds_mla": 352}
CACHE_DTYPES = (*CACHE_BYTES, *LATENT_BYTES)

_ACTIVATION_BYTES = 2  # activations keep 16 bits with any weights
# Of each logit in the sampler's dummy run (v1/worker/gpu_model_runner.py, v1/sample/sampler.py,
# v1/sample/ops/topk_topp_sampler.py): 16-bit and 32-bit logits, sorted copy, 64-bit order,
# probabilities, their running sum.
_SAMPLER_BYTES = 2 + 4 + 4 + 8 + 4 + 4
_GRAPH_BYTES = 10 << 20  # a captured size: start-up logs show 0.1 to 0.7 GiB for up to 51
_OTHER_BYTES = 300 << 20  # workspaces outside PyTorch's allocator: logs show 0.16 to 0.2 GiB …
_NCCL_BYTES = 700 << 20  # … and more where several GPUs talk to each other


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """One GPU's memory as vLLM would divide it, in bytes."""

    total: int  # available to a process
    requested: int  # gpu_memory_utilization of it
    weights: int  # this GPU's share of the weights
    # estimated peak of the profile run at max_num_batched_tokens tokens and max_num_seqs rows of
    # logits
    activations: int
    graphs: int  # estimated CUDA graphs
    other: int  # estimated workspaces outside PyTorch
    kv_per_token: float  # exact
    block_size: int  # tokens a block

    @property
    def kv(self) -> int:
        """Memory left for the KV cache; negative where the rest does not fit."""
        return self.requested - self.weights - self.activations - self.graphs - self.other

    @property
    def num_gpu_blocks(self) -> int:
        """Blocks of the KV cache, with vLLM's null block; 0 where no memory is left."""
        return max(0, int(self.kv // (self.kv_per_token * self.block_size)))

    @property
    def kv_tokens(self) -> int:
        """Tokens that requests can hold: the null block holds none."""
        return max(0, self.num_gpu_blocks - 1) * self.block_size


def bytes_per_token(
    model: Model, *, tensor_parallel: int = 1, kv_cache_dtype: str = "auto"
) -> float:
    """KV-cache bytes of one token on one GPU, over all layers.

    Grouped-query attention: 2 · max(1, kv_heads / TP) · head_dim · bytes a layer. Latent attention:
    (kv_lora_rank + qk_rope_head_dim) · bytes a layer, whole on every GPU.

    Raises:
        ImpossibleConfiguration: the GPUs cannot share the heads, or the format is not the model's.

    >>> from driftwatch.simulate.hardware import model
    >>> bytes_per_token(model("llama-2-7b")) / 1024
    512.0
    """
    check_split(model, tensor_parallel)
    if kv_cache_dtype in LATENT_BYTES:
        if model.latent is None:
            raise ImpossibleConfiguration(
                (f"kv_cache_dtype {kv_cache_dtype}: {model.name} has no latent attention",),
                help_text=f"one of {', '.join(CACHE_BYTES)}",
            )
        return float(model.num_hidden_layers * LATENT_BYTES[kv_cache_dtype])
    if kv_cache_dtype not in CACHE_BYTES:
        raise ImpossibleConfiguration(
            (f"kv_cache_dtype is one of {', '.join(CACHE_DTYPES)}, not {kv_cache_dtype!r}",),
            help_text="auto is the type of the activations",
        )
    number = CACHE_BYTES[kv_cache_dtype]
    if model.latent is not None:
        width = model.latent.kv_lora_rank + model.latent.qk_rope_head_dim
        return model.num_hidden_layers * width * number
    heads = max(1, model.num_key_value_heads // tensor_parallel)
    return 2 * model.num_hidden_layers * heads * model.head_dim * number


def check_split(model: Model, tensor_parallel: int) -> None:
    """Refuse a split of the heads that vLLM refuses.

    Raises ImpossibleConfiguration: every reason.
    """
    problems = []
    if tensor_parallel < 1:
        problems.append(f"tensor_parallel must be at least 1, not {tensor_parallel}")
    else:
        if model.num_attention_heads % tensor_parallel:
            problems.append(
                f"{model.num_attention_heads} attention heads of {model.name} cannot be shared by "
                f"{tensor_parallel} GPUs"
            )
        kv = model.num_key_value_heads
        if model.latent is None and max(kv, tensor_parallel) % min(kv, tensor_parallel):
            problems.append(
                f"{kv} KV heads of {model.name} cannot be shared by {tensor_parallel} GPUs"
            )
    if problems:
        raise ImpossibleConfiguration(
            tuple(problems), help_text="a tensor parallel size that divides the heads: 1, 2, 4, 8"
        )


def held_tokens(model: Model, tokens: float) -> float:
    """The KV cache of a sequence of ``tokens`` tokens, as a number of full-attention tokens.

    A layer with a sliding window keeps only the last window (vLLM's hybrid KV cache manager).
    """
    if model.sliding is None:
        return tokens
    share = model.sliding.num_sliding_layers / model.num_hidden_layers
    return tokens * (1 - share) + min(tokens, model.sliding.sliding_window) * share


def weight_bytes(model: Model, *, dtype_bytes: float = 2.0, tensor_parallel: int = 1) -> int:
    """One GPU's share of the weights; input table and head always keep at least 16 bits."""
    shapes, wide = model.shapes, max(dtype_bytes, _ACTIVATION_BYTES)
    layers = (shapes.always + shapes.routed) * dtype_bytes
    return int((layers + (shapes.head + shapes.embedding) * wide) / tensor_parallel)


def capture_sizes(
    max_num_seqs: int, max_num_batched_tokens: int, *, largest: int = 512
) -> tuple[int, ...]:
    """Batch sizes that vLLM captures as CUDA graphs (``config/vllm.py``), in order.

    1, 2, 4, 8 to 248 in steps of 8, 256 up to min(2 · max_num_seqs, ``largest``, B) in steps of 16,
    and S and B themselves where they are in that range.

    Args:
        max_num_seqs: S.
        max_num_batched_tokens: B.
        largest: 512; 1024 on datacenter Blackwell.

    >>> capture_sizes(12, 2048)
    (1, 2, 4, 8, 12, 16, 24)
    """
    top = min(2 * max_num_seqs, largest, max_num_batched_tokens)
    sizes = {1, 2, 4, *range(8, 256, 8), *range(256, largest + 1, 16)}
    sizes |= {max_num_seqs, max_num_batched_tokens}
    return tuple(sorted(size for size in sizes if size <= top))


def largest_capture_size(gpu: Gpu) -> int:
    """The largest batch that vLLM captures on a GPU: 1024 on datacenter Blackwell, else 512."""
    return 1024 if gpu.name.startswith(("B200", "B300", "GB200", "GB300")) else 512


def activation_bytes(
    model: Model, *, max_num_seqs: int, max_num_batched_tokens: int, tensor_parallel: int = 1
) -> int:
    """Estimated peak of vLLM's profile run on one GPU.

    The larger of one layer at B tokens and of the sampler over S rows of logits, plus the hidden
    states of the B tokens.
    """
    hidden, share = model.hidden_size, tensor_parallel
    heads, kv = model.num_attention_heads, max(1, model.num_key_value_heads // share)
    attention = (2 * heads // share + 2 * kv) * model.head_dim
    layer = max(attention, 3 * model.intermediate_size // share)
    if (moe := model.experts) is not None:
        inner = moe.moe_intermediate_size // share
        routed = moe.num_experts_per_tok * (max(2 * inner, hidden) + inner)
        layer = max(layer if moe.first_k_dense_replace else attention, routed)
    body = max_num_batched_tokens * (hidden + layer) * _ACTIVATION_BYTES
    stays = max_num_batched_tokens * hidden * _ACTIVATION_BYTES
    rows = min(max_num_seqs, max_num_batched_tokens)
    return int(stays + max(body, rows * model.vocab_size * _SAMPLER_BYTES))


def memory_plan(
    gpu: Gpu,
    model: Model,
    *,
    max_num_seqs: int,
    max_num_batched_tokens: int,
    block_size: int = 16,
    tensor_parallel: int = 1,
    gpu_memory_utilization: float = 0.92,
    dtype_bytes: float = 2.0,
    kv_cache_dtype: str = "auto",
    count_graphs: bool = True,
) -> MemoryPlan:
    """One GPU's memory under settings that vLLM starts with.

    ``count_graphs``: vLLM subtracts them from the cache since 0.21; False before, and without them.

    Raises ImpossibleConfiguration: the GPUs cannot share the heads, or
    ``gpu_memory_utilization`` is out of range.
    """
    if not 0 < gpu_memory_utilization <= 1:
        raise ImpossibleConfiguration(
            (f"gpu_memory_utilization is above 0 and at most 1, not {gpu_memory_utilization}",),
            help_text="give vLLM's own value, as its start-up log shows it",
        )
    check_split(model, tensor_parallel)
    sizes = capture_sizes(max_num_seqs, max_num_batched_tokens, largest=largest_capture_size(gpu))
    return MemoryPlan(
        total=gpu.memory_bytes,
        requested=int(gpu.memory_bytes * gpu_memory_utilization),
        weights=weight_bytes(model, dtype_bytes=dtype_bytes, tensor_parallel=tensor_parallel),
        activations=activation_bytes(
            model,
            max_num_seqs=max_num_seqs,
            max_num_batched_tokens=max_num_batched_tokens,
            tensor_parallel=tensor_parallel,
        ),
        graphs=len(sizes) * _GRAPH_BYTES if count_graphs else 0,
        other=_OTHER_BYTES + (_NCCL_BYTES if tensor_parallel > 1 else 0),
        kv_per_token=bytes_per_token(
            model, tensor_parallel=tensor_parallel, kv_cache_dtype=kv_cache_dtype
        ),
        block_size=block_size,
    )
