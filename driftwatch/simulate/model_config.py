"""A model's shapes and longest context, from its config.json.

The rows of ``models.yaml`` have the same keys. Derived values follow vLLM 0.32
(``config/model.py``, ``transformers_utils/model_arch_config_convertor.py``). A layout whose KV
cache is not keys and values of each layer, or latents of each, is refused and never guessed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from driftwatch.errors import UsageError

_MOST = 10**9  # of any count: more is no model
# vLLM's names of the longest context; the smallest value counts.
_LENGTHS = (
    *("max_position_embeddings", "n_positions", "max_seq_len", "seq_length", "model_max_length"),
    *("max_sequence_length", "max_seq_length", "seq_len"),
)
_MLA = ("deepseek_v2", "deepseek_v3", "kimi_k2")  # vLLM stores their latents
# model_type → defaults of its class in transformers
_CLASS_DEFAULTS: Mapping[str, Mapping[str, Any]] = {
    "gemma2": {"tie_word_embeddings": True, "sliding_window_pattern": 2},
    "gemma3_text": {
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "head_dim": 256,
        "vocab_size": 262208,
        "max_position_embeddings": 131072,
        "sliding_window_pattern": 6,
        "tie_word_embeddings": True,
    },
}
# Decoders with gated feed-forward layers: three matrices. For others the weights are a guess.
_GATED = frozenset(
    {
        *("llama", "mistral", "mixtral", "qwen2", "qwen2_moe", "qwen3", "qwen3_moe", "phi3"),
        *("gemma2", "gemma3_text", "glm4", "glm4_moe", "gpt_oss", "granite", "olmo2", *_MLA),
        *("qwen2_vl", "qwen2_5_vl", "qwen2_5_vl_text", "qwen3_vl_text", "qwen3_vl_moe_text"),
    }
)
# Key → why its KV cache is not keys and values of each layer.
_OTHER_LAYOUTS: Mapping[str, str] = {
    "attention_chunk_size": "layers with chunked attention",
    "attn_layer_period": "Mamba layers",
    "block_configs": "layers of different shapes",
    "compress_ratios": "a compressed cache",
    "cross_attention_layers": "cross-attention layers",
    "global_head_dim": "layers of two head sizes",
    "hybrid_override_pattern": "Mamba layers",
    "index_topk": "sparse attention with a cache of its own",
    "is_encoder_decoder": "an encoder",
    "layers_block_type": "layers of several kinds",
    "linear_attn_config": "linear-attention layers",
    "linear_num_key_heads": "linear-attention layers",
    "mamba_d_state": "Mamba layers",
    "num_kv_shared_layers": "layers that share a cache",
    "ssm_cfg": "Mamba layers",
}
# Bytes of a weight, by vLLM's --quantization (quant_method of a config.json) and --dtype. Four bits
# carry scales beside them, which are not counted.
QUANTIZED_BYTES: Mapping[str, float] = {
    **dict.fromkeys(("fp8", "fbgemm_fp8", "modelopt", "experts_int8"), 1.0),
    **dict.fromkeys(("awq", "awq_marlin", "gptq", "gptq_marlin"), 0.5),
    **dict.fromkeys(("mxfp4", "modelopt_fp4", "bitsandbytes"), 0.5),
}
DTYPE_BYTES: Mapping[str, float] = {
    **dict.fromkeys(("bfloat16", "float16", "half"), 2.0),
    **dict.fromkeys(("float", "float32"), 4.0),
}


@dataclass(frozen=True, slots=True)
class Experts:
    """Mixture of experts, by config.json's names."""

    num_experts: int
    num_experts_per_tok: int
    moe_intermediate_size: int
    n_shared_experts: int = 0
    first_k_dense_replace: int = 0  # layers without experts, wherever they stand


@dataclass(frozen=True, slots=True)
class Latent:
    """Multi-head latent attention (DeepSeek-V2, arXiv 2405.04434), by config.json's names."""

    kv_lora_rank: int
    qk_rope_head_dim: int
    qk_nope_head_dim: int
    v_head_dim: int
    q_lora_rank: int = 0  # 0: queries are not compressed


@dataclass(frozen=True, slots=True)
class Sliding:
    """Layers that see only the last tokens."""

    sliding_window: int
    num_sliding_layers: int


@dataclass(frozen=True, slots=True)
class Parameters:
    """A model's parameters by what a step reads of them."""

    always: int  # read by every step: attention, dense and shared layers, routers
    routed: int  # all routed experts of all layers together
    head: int  # the output projection; one row of logits for each request
    embedding: int  # the input table (0 where it is the head); looked up, not read

    @property
    def total(self) -> int:
        """All of them."""
        return self.always + self.routed + self.head + self.embedding


@dataclass(frozen=True, slots=True)
class Model:
    """A decoder's shapes, by config.json's names."""

    name: str  # served name
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    hidden_size: int
    intermediate_size: int
    vocab_size: int
    max_model_len: int  # tokens of the longest request, by vLLM's default
    tie_word_embeddings: bool = False
    # of the published weights, without embeddings and head where they are quantized; None = unknown
    weight_bytes_per_parameter: float | None = 2.0
    experts: Experts | None = None
    latent: Latent | None = None
    sliding: Sliding | None = None
    notes: tuple[str, ...] = ()  # what is a guess

    @property
    def shapes(self) -> Parameters:
        """Its parameters, with gated feed-forward layers and without biases and norms."""
        hidden, heads, layers = self.hidden_size, self.num_attention_heads, self.num_hidden_layers
        if (mla := self.latent) is not None:
            key = mla.qk_nope_head_dim + mla.qk_rope_head_dim
            rank = mla.q_lora_rank
            query = rank * (hidden + heads * key) if rank else hidden * heads * key
            down = hidden * (mla.kv_lora_rank + mla.qk_rope_head_dim)
            up = mla.kv_lora_rank * heads * (mla.qk_nope_head_dim + mla.v_head_dim)
            attention = query + down + up + heads * mla.v_head_dim * hidden
        else:
            attention = 2 * hidden * self.head_dim * (heads + self.num_key_value_heads)
        dense, routed, always = layers, 0, layers * attention
        if (moe := self.experts) is not None:
            dense = moe.first_k_dense_replace
            expert = 3 * hidden * moe.moe_intermediate_size
            routed = (layers - dense) * moe.num_experts * expert
            always += (layers - dense) * (moe.n_shared_experts * expert + hidden * moe.num_experts)
        always += dense * 3 * hidden * self.intermediate_size
        table = self.vocab_size * hidden
        return Parameters(always, routed, table, 0 if self.tie_word_embeddings else table)


@dataclass(slots=True)
class _Config:
    """A config.json that is being read; it collects what is missing or wrong."""

    values: Mapping[str, Any]
    problems: list[str] = field(default_factory=list)

    def count(self, *names: str, default: int | None = None, least: int = 1) -> int:
        """The value of the first of these keys that is set."""
        found = next((one for one in names if self.values.get(one) is not None), None)
        value = default if found is None else self.values[found]
        if value is None:
            self.problems.append(f"{' or '.join(names)} is missing")
        elif isinstance(value, bool) or not isinstance(value, int) or not least <= value <= _MOST:
            self.problems.append(f"{found} is no whole number from {least}: {value!r:.40}")
        else:
            return value
        return least


def model_of(config: Mapping[str, Any], *, name: str, where: str) -> Model:
    """The model that a config.json describes.

    ``where``: the file, for errors. Of a multimodal model only the language model counts.

    Raises UsageError: keys are missing or wrong, each named; or the KV size is unknown.
    """
    inner = next((config[one] for one in ("text_config", "llm_config") if one in config), None)
    read = _Config({**config, **inner} if isinstance(inner, Mapping) else config)
    kind = str(read.values.get("model_type", "llama"))
    read.values = {**_CLASS_DEFAULTS.get(kind, {}), **read.values}
    if why := _other_layout(read.values, kind):
        raise UsageError(
            f"{where}: KV size unknown: {name} ({kind}) has {why}",
            help_text="measure a server that runs: --step-time C0,C1,C2,C3 without --model, and "
            "--num-gpu-blocks-override N of its vllm:cache_config_info",
        )
    layers, heads = read.count("num_hidden_layers", "n_layer"), read.count("num_attention_heads")
    hidden, experts = read.count("hidden_size"), _experts(read, layers)
    notes = []
    if kind not in _GATED:
        notes.append(f"model_type {kind} is unknown: its weights are a guess, as Llama's")
    if "vision_config" in config:
        notes.append(f"the vision part of {name} is not counted: its weights are more")
    model = Model(
        name=name,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=read.count("num_key_value_heads", "num_kv_heads", default=heads),
        head_dim=read.count("head_dim", default=hidden // heads),
        hidden_size=hidden,
        intermediate_size=read.count("intermediate_size", "moe_intermediate_size"),
        vocab_size=read.count("vocab_size"),
        max_model_len=_max_model_len(read, kind),
        tie_word_embeddings=read.values.get("tie_word_embeddings") is True,
        weight_bytes_per_parameter=_weight_bytes(read.values),
        experts=experts,
        latent=_latent(read),
        sliding=_sliding(read, layers),
        notes=tuple(notes),
    )
    if heads % model.num_key_value_heads:
        read.problems.append("num_attention_heads is no multiple of num_key_value_heads")
    if read.problems:
        raise UsageError(
            f"{where}: {'; '.join(read.problems)}",
            help_text="give the config.json that lies beside the model's weights, as vLLM reads it",
        )
    return model


def _other_layout(config: Mapping[str, Any], kind: str) -> str | None:
    kinds = set(config.get("layer_types") or ()) - {"full_attention", "sliding_attention"}
    if kinds:
        return f"layers of the kind {', '.join(sorted(map(str, kinds)))}"
    if 0 in (config.get("attn_type_list") or ()):  # MiniMax: 0 is linear, 1 is full
        return "linear-attention layers"
    if config.get("kv_lora_rank") and kind not in _MLA:
        return "latent attention of an unknown kind"
    return next((why for key, why in _OTHER_LAYOUTS.items() if config.get(key)), None)


def _experts(read: _Config, layers: int) -> Experts | None:
    names = ("num_experts", "num_local_experts", "n_routed_experts")
    if not any(read.values.get(one) for one in names):
        return None
    inner = read.count("moe_intermediate_size", "intermediate_size")
    shared = read.values.get("shared_expert_intermediate_size") or 0
    dense = read.count("first_k_dense_replace", default=0, least=0)
    dense += len(read.values.get("mlp_only_layers") or ())
    dense += layers - layers // read.count("decoder_sparse_step", default=1)
    found = Experts(
        read.count(*names),
        read.count("num_experts_per_tok", "experts_per_token"),
        inner,
        read.count("n_shared_experts", default=shared // inner, least=0),
        dense,
    )
    if found.num_experts_per_tok > found.num_experts:
        read.problems.append("num_experts_per_tok is above the number of experts")
    if found.first_k_dense_replace >= layers:
        read.problems.append("first_k_dense_replace leaves no layer with experts")
    return found


def _latent(read: _Config) -> Latent | None:
    if not read.values.get("kv_lora_rank"):
        return None
    return Latent(
        kv_lora_rank=read.count("kv_lora_rank"),
        qk_rope_head_dim=read.count("qk_rope_head_dim"),
        qk_nope_head_dim=read.count("qk_nope_head_dim"),
        v_head_dim=read.count("v_head_dim"),
        q_lora_rank=read.count("q_lora_rank", default=0, least=0),
    )


def _sliding(read: _Config, layers: int) -> Sliding | None:
    config = read.values
    if not config.get("sliding_window") or config.get("use_sliding_window") is False:
        return None
    if types := config.get("layer_types"):
        count = list(types).count("sliding_attention")
    else:  # every ``pattern``-th layer sees all tokens; without a pattern none does
        pattern = read.count("sliding_window_pattern", default=layers + 1)
        count = layers - layers // pattern
    return Sliding(read.count("sliding_window"), count) if count else None


def _max_model_len(read: _Config, kind: str) -> int:
    """With scaled positions the scaled length; with LongRoPE the length before scaling."""
    config = read.values
    present = [one for one in _LENGTHS if config.get(one) is not None]
    length = min((read.count(one) for one in present), default=0) or read.count(_LENGTHS[0])
    rope = config.get("rope_parameters") or config.get("rope_scaling") or {}
    if "gemma3" in kind or not isinstance(rope, Mapping):  # Gemma's length is scaled already
        return length
    factor = 1.0
    for one in [each for each in rope.values() if isinstance(each, Mapping)] or [rope]:
        scaling = one.get("rope_type", one.get("type"))
        whole = _Config({**config, **one}, read.problems)
        first = whole.count("original_max_position_embeddings", default=length)
        if scaling in ("longrope", "su"):
            return first
        if scaling == "yarn":
            length = first
        if scaling != "llama3" and isinstance(one.get("factor"), int | float):
            factor = one["factor"]
    return int(length * factor)


def _weight_bytes(config: Mapping[str, Any]) -> float | None:
    """Bytes of a weight; vLLM loads 32-bit weights as 16-bit ones. None = unknown quantization."""
    quantized = config.get("quantization_config") or config.get("compression_config")
    if not isinstance(quantized, Mapping):
        return 2.0
    bits = quantized.get("bits")
    for group in dict(quantized.get("config_groups") or {}).values():  # compressed-tensors
        bits = bits or (group.get("weights") or {}).get("num_bits")
    if isinstance(bits, int) and 1 <= bits <= 16:
        return bits / 8
    if quantized.get("load_in_8bit"):  # bitsandbytes
        return 1.0
    return QUANTIZED_BYTES.get(str(quantized.get("quant_method")))
