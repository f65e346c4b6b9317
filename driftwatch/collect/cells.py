"""Which cell of the scrape table a series fills, by its name and labels."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

from driftwatch.collect.registry import BY_COLUMN, Metric, wire_names

Labels = Mapping[str, str]
Part = Literal["value", "bucket", "sum", "count", "labels"]

_PARTS: Mapping[str, Part] = {"_bucket": "bucket", "_sum": "sum", "_count": "count"}
_SHOWN_CHARACTERS = 200


class Slot(NamedTuple):
    """One number of a scrape row, or a summand of one."""

    column: str  # of the registry
    rank: int  # 0 for the current wire name, 1 for the newest old name, and so on
    part: Part
    edge: float = 0.0  # upper edge of a bucket, NaN where ``le`` is no number
    summand: str = ""  # value of the label that is summed away

    @property
    def metric(self) -> Metric:
        """The quantity that it is of."""
        return BY_COLUMN[self.column]

    @property
    def wire_name(self) -> str:
        """The name of its samples."""
        metric = self.metric
        family = (metric.wire_name, *(old.wire_name for old in metric.old_names))[self.rank]
        return family + ("" if self.part in ("value", "labels") else f"_{self.part}")


@dataclass(frozen=True, slots=True)
class _Reading:
    metric: Metric
    rank: int
    part: Part


def _readings() -> dict[str, tuple[_Reading, ...]]:
    readings: dict[str, tuple[_Reading, ...]] = {}
    for wire, metrics in wire_names().items():
        for metric in metrics:
            rank = (metric.wire_name, *(old.wire_name for old in metric.old_names)).index(wire)
            for suffix in metric.suffixes:
                part: Part = _PARTS.get(suffix, "labels" if metric.type == "info" else "value")
                one = _Reading(metric, rank, part)
                readings[wire + suffix] = (*readings.get(wire + suffix, ()), one)
    return readings


_READINGS = _readings()
SAMPLE_NAMES = frozenset(_READINGS)
# Labels that tell series of one engine apart; any other label says which server a series is of.
CHOOSING = tuple(
    sorted(
        {name for metric in BY_COLUMN.values() for name, _ in metric.labels}
        | {name for metric in BY_COLUMN.values() for name in metric.sum_over}
    )
)
# Names of samples that such a label is read of.
CHOSEN_NAMES = frozenset(
    name for name, of in _READINGS.items() if any(o.metric.labels or o.metric.sum_over for o in of)
)
OWN_LABELS = frozenset({"__name__", "le", "engine", "model_name", *CHOOSING})


# What an engine of vLLM always has; three of them under one prefix are no other program's.
_SHAPE = tuple(
    name.removeprefix("vllm:")
    for name in (
        *("vllm:num_requests_running", "vllm:num_requests_waiting", "vllm:generation_tokens_total"),
        *("vllm:prompt_tokens_total", "vllm:request_success_total", "vllm:num_preemptions_total"),
        *("vllm:iteration_tokens_total_count", "vllm:time_to_first_token_seconds_count"),
        *("vllm:e2e_request_latency_seconds_count", "vllm:inter_token_latency_seconds_count"),
    )
)
SHAPE_PATTERN = f".+[:_]({'|'.join(_SHAPE)})"
_LEAST = 3
VLLM = "vllm:"
# Engines that took over some of vLLM's names.
_OTHERS = ("sglang:", "tgi_", "trtllm:", "trtllm_", "lmdeploy:", "llamacpp:", "dynamo_", "nv_")


def prefixes_of(names: Iterable[str]) -> frozenset[str]:
    """What stands before vLLM's names, judged by the names that follow: ``vllm:``, ``ray_vllm_``.

    >>> core = ["num_requests_running", "num_requests_waiting", "generation_tokens_total"]
    >>> sorted(prefixes_of([f"kserve_vllm:{name}" for name in core] + ["node_load1"]))
    ['kserve_vllm:']
    """
    found: dict[str, set[str]] = {}
    for name in names:
        for suffix in _SHAPE:
            if name.endswith(suffix) and name[: -len(suffix)].endswith((":", "_")):
                found.setdefault(name[: -len(suffix)], set()).add(suffix)
    return frozenset(
        prefix
        for prefix, suffixes in found.items()
        if prefix == VLLM or (len(suffixes) >= _LEAST and not prefix.startswith(_OTHERS))
    )


def written_as(name: str, prefix: str) -> str:
    """A name of the registry as a server writes it that has this prefix.

    >>> written_as("vllm:num_requests_running", "ray_vllm_")
    'ray_vllm_num_requests_running'
    >>> written_as("process_start_time_seconds", "kserve_vllm:")
    'kserve_process_start_time_seconds'
    """
    if name.startswith(VLLM):
        return prefix + name.removeprefix(VLLM)
    return prefix.removesuffix(VLLM) + name


def wire_names_of(prefixes: Iterable[str]) -> dict[str, str]:
    """A sample's name as it is written with one of the prefixes → its name in the registry."""
    return {written_as(name, prefix): name for prefix in (*prefixes, VLLM) for name in SAMPLE_NAMES}


def slots_of(name: str, labels: Labels) -> tuple[Slot, ...]:
    """The cells that a series fills; none where nothing reads it.

    >>> [slot.column for slot in slots_of("vllm:num_requests_running", {})]
    ['running_requests']
    """
    return tuple(
        Slot(
            one.metric.column,
            one.rank,
            one.part,
            _edge(labels) if one.part == "bucket" else 0.0,
            "\x00".join(labels.get(label) or "" for label in one.metric.sum_over),
        )
        for one in _READINGS.get(name, ())
        if all(labels.get(label) == value for label, value in one.metric.labels)
    )


def _edge(labels: Labels) -> float:
    try:
        return float(labels["le"])
    except (KeyError, ValueError):
        return math.nan


def short_name(labels: Labels) -> str:
    """A series as problems name it, shortened."""
    rest = ",".join(f'{k}="{v}"' for k, v in sorted(labels.items()) if k != "__name__")
    text = labels.get("__name__", "") + (f"{{{rest}}}" if rest else "")
    return text if len(text) <= _SHOWN_CHARACTERS else text[:_SHOWN_CHARACTERS] + "…"
