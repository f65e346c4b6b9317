"""GPUs and models by name: what a datasheet and a config.json say, with the source of each value.

The shipped tables are ``gpus.yaml`` and ``models.yaml`` beside this module; a user's own file has
the same form (``gpus:``, ``models:`` or both) and comes first.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from driftwatch.errors import ConfigError, UsageError
from driftwatch.yaml_models import note_errors
from driftwatch.yaml_positions import Entries, Place, Scalar, YamlFile, plain, read_yaml

_HERE = Path(__file__).resolve().parent
_MOST_OFF = 0.01  # biases and norms, which the shapes below leave out, are below 0.2 %

Count = Annotated[int, Field(ge=1, le=10**15)]
# TFLOPS, GB/s and GiB of one GPU: far beyond any, near enough for the arithmetic to hold
Positive = Annotated[float, Field(ge=1e-3, le=1e7, allow_inf_nan=False)]
Text = Annotated[str, Field(min_length=1)]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class DenseTflops(_Part):
    """Peak of the matrix units without sparsity, 10^12 operations a second, by operand type."""

    bf16: Positive
    fp8: Positive | None = None


class GpuSources(_Part):
    """Where each value was read."""

    dense_tflops: Text
    memory_bandwidth_gb_per_second: Text
    memory_gib: Text


class Gpu(_Part):
    """One GPU."""

    name: Text  # as the table calls it
    aliases: tuple[Text, ...] = ()  # other names of it
    dense_tflops: DenseTflops  # 10^12 floating-point operations a second, by operand type
    memory_bandwidth_gb_per_second: Positive  # 10^9 bytes a second
    memory_gib: Positive  # what the driver gives to a process, 2^30 bytes
    sources: GpuSources  # where each of them was read

    @property
    def bandwidth_bytes_per_second(self) -> float:
        """Of the datasheet."""
        return self.memory_bandwidth_gb_per_second * 1e9

    @property
    def memory_bytes(self) -> int:
        """What a process can have."""
        return int(self.memory_gib * 2**30)

    def flops_per_second(self, dtype_bytes: float = 2.0) -> float:
        """Peak for weights of so many bytes; without such units the next wider type computes."""
        tflops = self.dense_tflops
        narrow = dtype_bytes <= 1.0 and tflops.fp8 is not None
        return (tflops.fp8 if narrow and tflops.fp8 is not None else tflops.bf16) * 1e12


class Experts(_Part):
    """Mixture of experts, by config.json's names."""

    num_experts: Count
    num_experts_per_tok: Count
    moe_intermediate_size: Count
    n_shared_experts: Annotated[int, Field(ge=0)] = 0
    first_k_dense_replace: Annotated[int, Field(ge=0)] = 0


class Latent(_Part):
    """Multi-head latent attention (DeepSeek-V2, arXiv 2405.04434), by config.json's names."""

    kv_lora_rank: Count
    qk_rope_head_dim: Count
    qk_nope_head_dim: Count
    v_head_dim: Count
    q_lora_rank: Annotated[int, Field(ge=0)] = 0


class Sliding(_Part):
    """Layers that see only the last tokens."""

    sliding_window: Count
    num_sliding_layers: Count


class Model(_Part):
    """One model's shapes, by config.json's names."""

    name: Text  # as the table calls it
    aliases: tuple[Text, ...] = ()  # other names, Hugging Face ids among them
    source: Text  # address of the config.json
    parameters: Count  # all tensors of the language model; checked against the shapes
    num_hidden_layers: Count
    num_attention_heads: Count
    num_key_value_heads: Count
    head_dim: Count
    hidden_size: Count
    intermediate_size: Count
    vocab_size: Count
    max_position_embeddings: Count
    tie_word_embeddings: bool = False
    # what the published weights are stored as
    checkpoint_dtype: Literal["bfloat16", "float16", "fp8"] = "bfloat16"
    experts: Experts | None = None
    latent: Latent | None = None
    sliding: Sliding | None = None

    @model_validator(mode="after")
    def _adds_up(self) -> Model:
        if self.num_attention_heads % self.num_key_value_heads:
            raise ValueError("num_attention_heads is no multiple of num_key_value_heads")
        if self.experts and self.experts.num_experts_per_tok > self.experts.num_experts:
            raise ValueError("num_experts_per_tok is above num_experts")
        if self.experts and self.experts.first_k_dense_replace >= self.num_hidden_layers:
            raise ValueError("first_k_dense_replace leaves no layer with experts")
        if self.sliding and self.sliding.num_sliding_layers > self.num_hidden_layers:
            raise ValueError("num_sliding_layers is above num_hidden_layers")
        total = self.shapes.total
        if abs(total - self.parameters) > _MOST_OFF * self.parameters:
            raise ValueError(f"parameters is {self.parameters:,}, the shapes give {total:,}")
        return self

    @property
    def shapes(self) -> Parameters:
        """Its parameters by what reads them."""
        return count_parameters(self)


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


def count_parameters(model: Model) -> Parameters:
    """Parameters from the shapes: gated feed-forward layers, no biases or norms."""
    hidden, heads = model.hidden_size, model.num_attention_heads
    if (mla := model.latent) is not None:
        key = mla.qk_nope_head_dim + mla.qk_rope_head_dim
        query = (
            mla.q_lora_rank * (hidden + heads * key) if mla.q_lora_rank else hidden * heads * key
        )
        down = hidden * (mla.kv_lora_rank + mla.qk_rope_head_dim)
        up = mla.kv_lora_rank * heads * (mla.qk_nope_head_dim + mla.v_head_dim)
        attention = query + down + up + heads * mla.v_head_dim * hidden
    else:
        attention = 2 * hidden * model.head_dim * (heads + model.num_key_value_heads)
    layers, dense, routed = model.num_hidden_layers, model.num_hidden_layers, 0
    always = layers * attention
    if (moe := model.experts) is not None:
        dense = moe.first_k_dense_replace
        expert = 3 * hidden * moe.moe_intermediate_size
        routed = (layers - dense) * moe.num_experts * expert
        always += (layers - dense) * (moe.n_shared_experts * expert + hidden * moe.num_experts)
    always += dense * 3 * hidden * model.intermediate_size
    table = model.vocab_size * hidden
    return Parameters(always, routed, table, 0 if model.tie_word_embeddings else table)


_Row = TypeVar("_Row", Gpu, Model)


@dataclass(frozen=True, slots=True)
class Hardware:
    """GPUs and models by name."""

    gpus: Mapping[str, Gpu]
    models: Mapping[str, Model]

    def gpu(self, name: str) -> Gpu:
        """A GPU by its name or an alias, whatever the case.

        Raises UsageError: it is in no table.
        """
        return _named(name, self.gpus, "GPU")

    def model(self, name: str) -> Model:
        """A model by its name or an alias, whatever the case.

        Raises UsageError: it is in no table.
        """
        return _named(name, self.models, "model")


def gpu(name: str) -> Gpu:
    """A GPU of the shipped table.

    Raises UsageError: it is not there.
    """
    return shipped_hardware().gpu(name)


def model(name: str) -> Model:
    """A model of the shipped table.

    Raises UsageError: it is not there.
    """
    return shipped_hardware().model(name)


@lru_cache(maxsize=1)
def shipped_hardware() -> Hardware:
    """The tables that come with this installation."""
    gpus, models = read_hardware(_HERE / "gpus.yaml"), read_hardware(_HERE / "models.yaml")
    return Hardware(gpus.gpus, models.models)


def with_hardware(path: Path | None) -> Hardware:
    """The shipped tables, and before them those of a user's file.

    Raises ConfigError: every problem of the file.
    """
    shipped = shipped_hardware()
    if path is None:
        return shipped
    own = read_hardware(path)
    return Hardware(
        {**own.gpus, **{n: row for n, row in shipped.gpus.items() if n not in own.gpus}},
        {**own.models, **{n: row for n, row in shipped.models.items() if n not in own.models}},
    )


def read_hardware(path: Path) -> Hardware:
    """One table file.

    Raises ConfigError: every problem of it, with line and column.
    """
    file = read_yaml(path)
    gpus: dict[str, Gpu] = {}
    models: dict[str, Model] = {}
    root = file.root
    if isinstance(root, Entries):
        for key, (place, node) in root.entries.items():
            if key not in ("gpus", "models"):
                file.add(place, "unknown-key", f"unknown key {key}", "known keys: gpus, models")
            elif not isinstance(node, Entries):
                file.add(place, "value", "names and their values are wanted here")
            elif key == "gpus":
                gpus = _rows(file, node, Gpu)
            else:
                models = _rows(file, node, Model)
    if not file.problems and not gpus and not models:
        file.add(Place(1, 1), "empty", "no GPU and no model in this file", "gpus: or models:")
    if file.problems:
        raise ConfigError(tuple(file.problems))
    return Hardware(gpus, models)


def _rows(file: YamlFile, node: Entries, kind: type[_Row]) -> dict[str, _Row]:
    by_name: dict[str, _Row] = {}
    for name, (place, child) in node.entries.items():
        if not isinstance(child, Entries):
            file.add(place, "value", "keys and values are wanted here")
            continue
        named = Entries(place, {**child.entries, "name": (place, Scalar(place, name))})
        try:
            by_name[name] = kind.model_validate_json(_json(plain(named)))
        except ValidationError as error:
            note_errors(file, named, kind, error)
    return by_name


def _json(value: object) -> bytes:
    import orjson

    return orjson.dumps(value)


def _named(name: str, table: Mapping[str, _Row], what: str) -> _Row:
    key: str
    wanted = _folded(name)
    spelled: dict[str, str] = {}
    for key in table:  # a user's own come first
        names = {_folded(spelling): spelling for spelling in (key, *table[key].aliases)}
        if wanted in names:
            return table[key]
        spelled |= names
    close = _closest(wanted, tuple(spelled))
    hint = f"did you mean {spelled[close]}? " if close else ""
    raise UsageError(
        f"no {what} {name!r} in the tables",
        help_text=f"{hint}Known: {', '.join(table)}; add your own with --hardware FILE",
    )


@lru_cache(256)  # advice asks for the model of a server some hundred times
def _closest(wanted: str, spelled: tuple[str, ...]) -> str | None:
    return next(iter(difflib.get_close_matches(wanted, spelled, n=1, cutoff=0.5)), None)


@lru_cache(1024)
def _folded(name: str) -> str:
    return name.casefold().replace("_", "-").replace(" ", "-")
