"""Step-time models from a datasheet.

The roofline (Williams et al., CACM 2009): a step takes as long as its bytes at the memory's
bandwidth, or its operations at the units' peak. As a linear model: every step reads the weights
(c0), each prompt token costs its operations (c1), each context token its KV bytes (c3). The
operations of decoding hide behind the weights up to some batch; c2 is the chord from there to the
batch that the model is made for. It is a prior: fit a model where there is data.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from driftwatch.simulate.hardware import Gpu
from driftwatch.simulate.kv_cache import bytes_per_token, check_split
from driftwatch.simulate.model_config import Model
from driftwatch.simulate.step_time import StepTime


@dataclass(frozen=True, slots=True)
class Efficiency:
    """The part of a datasheet's values that a serving engine reaches: assumed, not measured."""

    bandwidth_ratio: float = 0.85  # of the memory bandwidth (large reads reach 0.8 to 0.92)
    flops_ratio: float = 0.6  # of the dense peak (prefill reaches 0.4 to 0.8)
    # of a step, besides the kernels: launches, sampling, the scheduler
    overhead_seconds: float = 0.001
    # latency of an all-reduce; a layer has two where several GPUs share a model
    all_reduce_seconds: float = 10e-6
    # between those GPUs, each way: an all-reduce over a ring moves 2 (n - 1) / n of a row's bytes
    # (Patarasuk and Yuan 2009). Infinite = not counted, as the table has no interconnect.
    link_bytes_per_second: float = math.inf


STATED = Efficiency()
# The two recorded servers lie between (docs/sre/planning.md): RTX 4090 and RTX PRO 6000. A slow
# link probably explains a reported forecast that was 44 % too fast (Qwen3-32B on two GPUs, not
# recorded). The links are PCIe 4.0 x16 shared by two directions, and NVLink 4 of an H100.
SLOWEST = Efficiency(0.55, 0.35, 0.003, 40e-6, 12e9)
FASTEST = Efficiency(0.95, 0.85, 0.0003, 5e-6, 450e9)


def read_weights(model: Model, tokens: float) -> float:
    """Parameters that a step with this many tokens reads.

    Of E routed experts a token picks k; n tokens that pick independently reach
    E · (1 − (1 − k/E)^n) of them.
    """
    shapes = model.shapes
    weights = float(shapes.always + shapes.head)
    if (moe := model.experts) is not None:
        weights += shapes.routed * (1 - (1 - moe.num_experts_per_tok / moe.num_experts) ** tokens)
    return weights


def active_parameters(model: Model, *, head: bool) -> float:
    """Parameters that one token is multiplied with; ``head``: with the output projection."""
    shapes = model.shapes
    parameters = float(shapes.always + (shapes.head if head else 0))
    if (moe := model.experts) is not None:
        parameters += shapes.routed * moe.num_experts_per_tok / moe.num_experts
    return parameters


def attention_flops_per_pair(model: Model) -> float:
    """Operations of attention for each pair of tokens: query · key and probability · value."""
    if (mla := model.latent) is not None:
        width = mla.qk_nope_head_dim + mla.qk_rope_head_dim + mla.v_head_dim
        return 2.0 * model.num_hidden_layers * model.num_attention_heads * width
    return 4.0 * model.num_hidden_layers * model.num_attention_heads * model.head_dim


def roofline(
    gpu: Gpu,
    model: Model,
    *,
    dtype_bytes: float = 2.0,
    tensor_parallel: int = 1,
    kv_cache_dtype: str = "auto",
    efficiency: Efficiency = STATED,
    decode_batch: int = 256,
) -> StepTime:
    """The linear step-time model of a model on a GPU.

    Args:
        gpu: one of ``tensor_parallel`` equal ones.
        model: shapes.
        dtype_bytes: of a weight (2 = bf16, 1 = fp8).
        tensor_parallel: GPUs that share each layer.
        kv_cache_dtype: vLLM's --kv-cache-dtype.
        efficiency: part of the datasheet's values that is reached.
        decode_batch: the batch for which the model is exact: max_num_seqs, or the number that is
            known to run. Below it the model is too slow where the operations of that batch no
            longer hide (by less than c2 · batch), above it too fast. Mixture of experts: every step
            reads the weights that this many tokens reach, which is too slow for smaller batches.

    Raises:
        ImpossibleConfiguration: the GPUs cannot share the heads.
    """
    check_split(model, tensor_parallel)
    bandwidth = gpu.bandwidth_bytes_per_second * efficiency.bandwidth_ratio * tensor_parallel
    flops = gpu.flops_per_second(dtype_bytes) * efficiency.flops_ratio * tensor_parallel
    talk = 2 * model.num_hidden_layers * efficiency.all_reduce_seconds
    kv = bytes_per_token(
        model, tensor_parallel=tensor_parallel, kv_cache_dtype=kv_cache_dtype
    )  # of one GPU, read at the bandwidth of one
    weights = read_weights(model, decode_batch) * dtype_bytes / bandwidth
    operations = decode_batch * 2 * active_parameters(model, head=True) / flops
    rows = decode_row_bytes(model) / (gpu.bandwidth_bytes_per_second * efficiency.bandwidth_ratio)
    shared = 2 * (tensor_parallel - 1) / tensor_parallel * 2 * model.hidden_size  # bytes, bf16 rows
    passed = 2 * model.num_hidden_layers * shared / efficiency.link_bytes_per_second
    return StepTime(
        c0_seconds=weights + efficiency.overhead_seconds + (talk if tensor_parallel > 1 else 0.0),
        c1_seconds_per_prefill_token=2 * active_parameters(model, head=False) / flops + passed,
        c2_seconds_per_decode_seq=max(0.0, operations - weights) / decode_batch + rows + passed,
        c3_seconds_per_kv_token=kv * tensor_parallel / bandwidth,
    )


def decode_row_bytes(model: Model) -> float:
    """Bytes moved for each decoding request besides weights and KV: activations and sampling.

    A layer writes and reads about ten rows of its width between its kernels; the sampler goes over
    16 and 32 bits of each logit.
    """
    return 2 * 2 * 10 * model.hidden_size * model.num_hidden_layers + 2 * 6 * model.vocab_size


def pair_seconds(model: Model, gpu: Gpu, *, tensor_parallel: int = 1) -> float:
    """Seconds of attention for each pair of a prompt's tokens: c4 of a step-time model."""
    flops = gpu.flops_per_second(2.0) * STATED.flops_ratio * tensor_parallel
    return attention_flops_per_pair(model) / flops
