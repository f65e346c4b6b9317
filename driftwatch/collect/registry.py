"""What vLLM calls each metric, by version, and which cell of the scrape table a series fills.

The only place that knows wire names.

Sources: vLLM 0.32 ``v1/metrics/loggers.py`` and recorded pages; renames from PR#18354, #29330
(``gpu_cache_usage_perc``), #24110, #32661 (``time_per_output_token_seconds``), #12383.
Wire names are as on the wire: the client library appends ``_total`` to counters, and
``vllm:iteration_tokens_total`` is a histogram in spite of its name.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Literal, NamedTuple

MetricType = Literal["counter", "gauge", "histogram", "info"]


@dataclass(frozen=True, slots=True)
class OldName:
    """A name the same quantity had."""

    wire_name: str  # name on the wire
    until: str  # last vLLM release line that served it


@dataclass(frozen=True, slots=True)
class Metric:
    """One quantity that driftwatch reads."""

    # its column in the scrape table; a histogram has ``<column>_sum``, ``_count`` and, where they
    # are read, ``_buckets`` and ``_edges``
    column: str
    wire_name: str  # name on the wire (a histogram's family name)
    unit: str  # base unit of the value
    meaning: str  # one line
    type: MetricType  # Prometheus type
    since: str = "0.6"  # first vLLM release with this name, ``0.6`` where it was always there.
    until: str | None = None  # last release with it, None while it is served
    old_names: tuple[OldName, ...] = ()  # names it had before, newest first
    labels: tuple[tuple[str, str], ...] = ()  # only series with these label values count
    sum_over: tuple[str, ...] = ()  # labels that are summed away (one column for all their values)
    per_engine: bool = True  # False where the series carries no ``engine`` label
    buckets: bool = True  # False: of the histogram only sum and count are read

    @property
    def wire_names(self) -> tuple[str, ...]:
        """Its name on the wire and those that it had before, newest first."""
        return (self.wire_name, *(old.wire_name for old in self.old_names))

    @property
    def suffixes(self) -> tuple[str, ...]:
        """What the names of its samples that are read end with."""
        if self.type != "histogram":
            return ("",)
        return ("_bucket", "_sum", "_count") if self.buckets else ("_sum", "_count")

    @property
    def largest(self) -> float:
        """The largest number that this metric can have: see :data:`LARGEST`."""
        return LARGEST.get(self.unit, LARGEST_EXACT)


# Above 2**53 a float64 skips whole numbers: two scrapes of a counter have no difference.
LARGEST_EXACT = 2.0**53
# Largest value that a unit leaves room for: unix seconds end with the year 9999, as datetimes do.
LARGEST: Mapping[str, float] = {"unix seconds": 253_402_300_799.0}

_gauge = partial(Metric, type="gauge")
_counter = partial(Metric, type="counter")
_histogram = partial(Metric, type="histogram")
_info = partial(Metric, type="info")

# column, name on the wire, unit, meaning
# fmt: off
REGISTRY: tuple[Metric, ...] = (
    # gauges: updated once per engine step, after finished requests have left
    _gauge("running_requests", "vllm:num_requests_running", "requests",
        "requests in the scheduler's running set after the step"),
    _gauge("waiting_requests", "vllm:num_requests_waiting", "requests",
        "requests not yet scheduled, for any reason"),
    _gauge("waiting_capacity_requests", "vllm:num_requests_waiting_by_reason", "requests",
        "requests waiting for scheduling capacity",
        since="0.15", labels=(("reason", "capacity"),)),
    _gauge("waiting_deferred_requests", "vllm:num_requests_waiting_by_reason", "requests",
        "requests deferred by LoRA slots, KV transfer or grammar",
        since="0.15", labels=(("reason", "deferred"),)),
    _gauge("kv_cache_usage_ratio", "vllm:kv_cache_usage_perc", "ratio",
        "share of KV blocks in use; cached but unreferenced blocks count as free",
        since="0.9", old_names=(OldName("vllm:gpu_cache_usage_perc", "0.11"),)),
    _gauge("engine_awake", "vllm:engine_sleep_state", "1",
        "1 while the engine is awake, 0 while it sleeps (weights offloaded or discarded)",
        since="0.11", labels=(("sleep_state", "awake"),)),
    # counters
    _counter("prompt_tokens_total", "vllm:prompt_tokens_total", "tokens",
        "prompt tokens, cache hits included, booked at the first token"),
    _counter("prompt_tokens_computed_total", "vllm:prompt_tokens_by_source_total", "tokens",
        "prompt tokens computed, cache hits excluded",
        since="0.13", labels=(("source", "local_compute"),)),
    _counter("prompt_tokens_transferred_total", "vllm:prompt_tokens_by_source_total", "tokens",
        "prompt tokens whose KV cache came from a KV connector",
        since="0.13", labels=(("source", "external_kv_transfer"),)),
    _counter("generation_tokens_total", "vllm:generation_tokens_total", "tokens",
        "generated tokens"),
    _counter("finished_requests_total", "vllm:request_success_total", "requests",
        "finished requests, every reason", sum_over=("finished_reason",)),
    _counter("aborted_requests_total", "vllm:request_success_total", "requests",
        "requests finished by abort (client disconnects are mostly not counted by vLLM)",
        labels=(("finished_reason", "abort"),)),
    _counter("rejected_requests_total", "vllm:admission_rejections_total", "requests",
        "503 answers of max_num_queued_reqs and max_num_queued_tokens",
        since="0.31", sum_over=("reason",), per_engine=False),
    _counter("preemptions_total", "vllm:num_preemptions_total", "preemptions",
        "requests thrown out of the running set and recomputed"),
    _counter("prefix_cache_queries_total", "vllm:prefix_cache_queries_total", "tokens",
        "prompt tokens looked up in the prefix cache",
        since="0.9", old_names=(OldName("vllm:gpu_prefix_cache_queries_total", "0.11"),)),
    _counter("prefix_cache_hits_total", "vllm:prefix_cache_hits_total", "tokens",
        "prompt tokens found in the prefix cache",
        since="0.9", old_names=(OldName("vllm:gpu_prefix_cache_hits_total", "0.11"),)),
    _counter("external_prefix_cache_hits_total", "vllm:external_prefix_cache_hits_total", "tokens",
        "prompt tokens that a KV connector found outside of the engine's own prefix cache",
        since="0.11"),
    _counter("spec_decode_draft_tokens_total", "vllm:spec_decode_num_draft_tokens_total", "tokens",
        "tokens drafted by speculative decoding; absent without it", since="0.9"),
    _counter("spec_decode_accepted_tokens_total", "vllm:spec_decode_num_accepted_tokens_total",
        "tokens", "drafted tokens that were accepted", since="0.9"),
    # histograms
    _histogram("iteration_tokens", "vllm:iteration_tokens_total", "tokens",
        "tokens of an engine step; steps that only prefill are not observed, buckets are wrong "
        "under chunked prefill, the sum is right", buckets=False),
    _histogram("prompt_tokens", "vllm:request_prompt_tokens", "tokens",
        "prompt length, observed when the request finishes"),
    _histogram("generation_tokens", "vllm:request_generation_tokens", "tokens",
        "generation length, observed when the request finishes"),
    _histogram("ttft_seconds", "vllm:time_to_first_token_seconds", "seconds",
        "time to first token, observed at the first token"),
    _histogram("itl_seconds", "vllm:inter_token_latency_seconds", "seconds",
        "time between two outputs of a request",
        since="0.11", old_names=(OldName("vllm:time_per_output_token_seconds", "0.12"),)),
    _histogram("tpot_seconds", "vllm:request_time_per_output_token_seconds", "seconds",
        "mean time per output token of a finished request", since="0.11"),
    _histogram("e2e_seconds", "vllm:e2e_request_latency_seconds", "seconds",
        "end-to-end time of a finished request"),
    _histogram("queue_seconds", "vllm:request_queue_time_seconds", "seconds",
        "first queued to first scheduled; re-queueing after preemption is not in it"),
    _histogram("prefill_seconds", "vllm:request_prefill_time_seconds", "seconds",
        "first scheduled to first token", buckets=False),
    _histogram("decode_seconds", "vllm:request_decode_time_seconds", "seconds",
        "first token to last token", buckets=False),
    # info: labels are the value
    _info("cache_config", "vllm:cache_config_info", "labels",
        "KV cache configuration as labels; the newest series counts, a changed set is a "
        "configuration change"),
    # the process, not the engine
    _gauge("process_start_time_seconds", "process_start_time_seconds", "unix seconds",
        "start of the API server process; absent with several API servers", per_engine=False),
    _gauge("created_seconds", "vllm:generation_tokens_created", "unix seconds",
        "when the engine's counters were made; absent with several API servers"),
)
# fmt: on

BY_COLUMN: dict[str, Metric] = {metric.column: metric for metric in REGISTRY}
GAUGES = tuple(m.column for m in REGISTRY if m.type == "gauge")
COUNTERS = tuple(m.column for m in REGISTRY if m.type == "counter")
HISTOGRAMS = tuple(m.column for m in REGISTRY if m.type == "histogram")
BUCKETED = tuple(h for h in HISTOGRAMS if BY_COLUMN[h].buckets)

# --- cells

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
        """Its quantity."""
        return BY_COLUMN[self.column]

    @property
    def wire_name(self) -> str:
        """The name of its samples."""
        family = self.metric.wire_names[self.rank]
        return family + ("" if self.part in ("value", "labels") else f"_{self.part}")


def _slots() -> dict[str, tuple[Slot, ...]]:
    """Name of a sample → the cells that its series may fill, without edge and summand."""
    slots: dict[str, tuple[Slot, ...]] = {}
    for metric in BY_COLUMN.values():
        for rank, wire in enumerate(metric.wire_names):
            for suffix in metric.suffixes:
                part: Part = _PARTS.get(suffix, "labels" if metric.type == "info" else "value")
                slots.setdefault(wire + suffix, ())
                slots[wire + suffix] += (Slot(metric.column, rank, part),)
    return slots


_SLOTS = _slots()
SAMPLE_NAMES = frozenset(_SLOTS)
# Labels that tell series of one engine apart; any other label tells servers apart.
CHOOSING = tuple(
    sorted(
        {name for metric in BY_COLUMN.values() for name, _ in metric.labels}
        | {name for metric in BY_COLUMN.values() for name in metric.sum_over}
    )
)
# Each engine has one of each of these series: their labels distinguish servers.
SERVER_SERIES = ("num_requests_running", "num_requests_waiting", "generation_tokens_total")
OWN_LABELS = frozenset({"__name__", "le", "engine", "model_name", *CHOOSING})


# Series that every vLLM engine has; three of them under one prefix show vLLM.
_SHAPE = (
    *("num_requests_running", "num_requests_waiting", "generation_tokens_total"),
    *("prompt_tokens_total", "request_success_total", "num_preemptions_total"),
    *("iteration_tokens_total_count", "time_to_first_token_seconds_count"),
    *("e2e_request_latency_seconds_count", "inter_token_latency_seconds_count"),
)
SHAPE_PATTERN = f".+[:_]({'|'.join(_SHAPE)})"
_LEAST = 3
VLLM = "vllm:"
# Engines that took over some of vLLM's names.
_OTHERS = ("sglang:", "tgi_", "trtllm:", "trtllm_", "lmdeploy:", "llamacpp:", "dynamo_", "nv_")


def prefixes_of(names: Iterable[str]) -> frozenset[str]:
    """The prefixes of vLLM's names (``vllm:``, ``ray_vllm_``), found by the names behind them.

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
    """A registry name as a server with this prefix writes it.

    >>> written_as("vllm:num_requests_running", "ray_vllm_")
    'ray_vllm_num_requests_running'
    >>> written_as("process_start_time_seconds", "kserve_vllm:")
    'kserve_process_start_time_seconds'
    """
    if name.startswith(VLLM):
        return prefix + name.removeprefix(VLLM)
    return prefix.removesuffix(VLLM) + name


def wire_names_of(prefixes: Iterable[str]) -> dict[str, str]:
    """Sample name on the page, with one of these prefixes → its name in the registry."""
    return {written_as(name, prefix): name for prefix in (*prefixes, VLLM) for name in SAMPLE_NAMES}


def slots_of(name: str, labels: Labels) -> tuple[Slot, ...]:
    """The cells that a series fills; none where nothing reads it.

    >>> [slot.column for slot in slots_of("vllm:num_requests_running", {})]
    ['running_requests']
    """
    return tuple(
        one._replace(
            edge=_edge(labels) if one.part == "bucket" else 0.0,
            summand="\x00".join(labels.get(label) or "" for label in one.metric.sum_over),
        )
        for one in _SLOTS.get(name, ())
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
