"""Pools: how their servers were started, their latency targets and lengths."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, ClassVar, Self

from pydantic import AfterValidator, Field, ValidationInfo, field_validator, model_validator

from driftwatch.knobs import KNOBS, refusal
from driftwatch.settings.values import (
    Count,
    File,
    Labels,
    Name,
    Names,
    Number,
    Text,
    below,
)
from driftwatch.yaml_models import Part, fault


def _named(name: str, info: ValidationInfo) -> str:
    if name == "-":
        raise ValueError("a name or the path of a file is wanted here")
    is_file = name.endswith((".json", ".yaml", ".yml"))
    return str(below(Path(name), info)) if is_file else name


Named = Annotated[Text, AfterValidator(_named)]  # as the tables call it, or a file of it


class ServingSettings(Part):
    """How the pool's servers were started; what is left out comes from elsewhere, or is unknown."""

    INSTEAD: ClassVar[Mapping[str, tuple[str, str]]] = {
        name: ("arguments", f'vLLM\'s command line: "--{name.replace("_", "-")} N"')
        for name in (
            *("max_model_len", "block_size", "api_server_count"),
            *("max_num_queued_tokens", "long_prefill_token_threshold"),
        )
    }

    max_num_seqs: Count | None = Field(None, description=KNOBS["max_num_seqs"].meaning)
    max_num_batched_tokens: Count | None = Field(
        None, description=KNOBS["max_num_batched_tokens"].meaning
    )
    max_num_active_seqs: Count | None = Field(
        None, description=KNOBS["max_num_active_seqs"].meaning
    )
    model: Named | None = Field(
        None, description="the model or its config.json, where the served name says nothing"
    )
    gpu: Named | None = Field(None, description="the kind of GPU, where neither DCGM nor NVML is")
    startup_log: File | None = Field(None, description="vLLM startup log to read the rest from")
    arguments: str | tuple[str, ...] | None = Field(
        None, description="vLLM command line to read the rest from"
    )

    @model_validator(mode="after")
    def _check(self) -> Self:
        if (why := refusal({name: getattr(self, name, None) for name in KNOBS})) is not None:
            raise fault("value", why, inner=("max_num_batched_tokens",))
        return self


# The last bucket edge of time_to_first_token; of the time per output token, ten seconds a token.
MOST_SECONDS: Mapping[str, float] = {"ttft_seconds": 2_560.0, "tpot_seconds": 10.0}


class SloSettings(Part):
    """Latency targets."""

    ttft_seconds: Number | None = Field(None, description="target of time to first token")
    tpot_seconds: Number | None = Field(None, description="target of time per output token")
    share: float = Field(
        0.95, gt=0, le=1, strict=True, description="share of requests that must meet each target"
    )

    @field_validator(*MOST_SECONDS)
    @classmethod
    def _in_buckets(cls, value: float | None, info: ValidationInfo) -> float | None:
        name, most = info.field_name or "", MOST_SECONDS[info.field_name or ""]
        if value is not None and value > most:
            why = f"{name} {value:g} is above {most:g} seconds: are these milliseconds?"
            raise ValueError(why)
        return value

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.ttft_seconds is None and self.tpot_seconds is None:
            raise ValueError("an slo has ttft_seconds, tpot_seconds or both")
        return self


class TunedFor(Part):
    """Mean lengths that the settings were chosen for: a declared reference."""

    prompt_tokens: Number | None = Field(None, description="mean prompt length in tokens")
    generation_tokens: Number | None = Field(None, description="mean generation length in tokens")

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.prompt_tokens is None and self.generation_tokens is None:
            raise ValueError("tuned_for has prompt_tokens, generation_tokens or both")
        return self


class PoolSettings(Part):
    """Targets that serve the same thing in the same way."""

    name: Name = Field(description="name of the pool, as pages print it")
    match: Labels = Field(
        default_factory=dict, description="labels a target must carry to belong to it"
    )
    gpus_per_replica: Number | None = Field(
        None, description="GPUs of one replica, all its engines together"
    )
    gpu_uuids: tuple[str, ...] = Field(
        (), description="its GPUs on bare metal, joined to targets by hostname"
    )
    serving: ServingSettings = Field(
        default_factory=lambda: ServingSettings.model_validate({}),
        description="serving configuration",
    )
    slo: SloSettings | None = Field(None, description="latency targets")
    tuned_for: TunedFor | None = Field(None, description="lengths it was tuned for")
    receivers: Names | None = Field(
        None,
        min_length=1,
        description="names of the receivers that get its pages, where no rule decides",
    )
