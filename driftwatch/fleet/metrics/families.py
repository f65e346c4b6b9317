"""What a version of vLLM puts on ``/metrics``, as data: families in the order of the page.

A family names the columns of :mod:`driftwatch.fleet.metrics.history` that its children
show. Bucket edges come in groups, as in vLLM's own ``--custom-histogram-buckets``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from driftwatch.simulate.vllm_buckets import (
    INTER_TOKEN_LATENCY_SECONDS,
    ITERATION_TOKENS,
    NUM_PREEMPTIONS,
    REQUEST_LATENCY_SECONDS,
    TIME_TO_FIRST_TOKEN_SECONDS,
    request_tokens,
)

FamilyType = Literal["counter", "gauge", "histogram", "summary"]
Scope = Literal["engine", "model", "process"]

ZERO = ""  # column of what stays 0 here (no LoRA, no KV connector, no multi-modal input …)
ONE = "1"  # column of what is always 1

# prometheus-fastapi-instrumentator's two histograms
_HTTP_HIGHR = (
    *(0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5),
    *(5.0, 7.5, 10.0, 30.0, 60.0),
)

# finite edges of each group in vLLM 0.32; request_tokens follows max_model_len
GROUPS: Mapping[str, tuple[float, ...]] = {
    "iteration_tokens": ITERATION_TOKENS,
    "request_latency": REQUEST_LATENCY_SECONDS,
    "time_to_first_token": TIME_TO_FIRST_TOKEN_SECONDS,
    "inter_token_latency": INTER_TOKEN_LATENCY_SECONDS,
    "request_params_n": (1.0, 2.0, 5.0, 10.0, 20.0),
    "request_num_preemptions": NUM_PREEMPTIONS,
    "http_highr": _HTTP_HIGHR,
    "http_by_handler": (0.1, 0.5, 1.0),
}
REQUEST_TOKENS = "request_tokens"


@dataclass(frozen=True, slots=True)
class Family:
    """One family of a page."""

    name: str  # without what the client library appends (``_total``, ``_created``)
    type: FamilyType  # Prometheus type
    help: str  # HELP text
    columns: tuple[str, ...]  # one column name per child
    label: str = ""  # label that tells the children apart, "" where there is one child
    label_values: tuple[str, ...] = ("",)  # its value for each child
    group: str = ""  # group of bucket edges, for a histogram
    # ``engine`` (one set of children an engine), ``model`` (no engine label) or ``process``
    # (neither engine nor model_name)
    scope: Scope = "engine"
    created: bool = True  # the client library adds ``_created``


@dataclass(frozen=True, slots=True)
class Style:
    """A version of vLLM as its page shows it."""

    version: str  # release line
    # ``vllm:`` families in the order of the page, without cache_config_info
    families: tuple[Family, ...]
    groups: Mapping[str, tuple[float, ...]]  # bucket edges of each group
    # labels of cache_config_info that every server of this version has
    info_labels: Mapping[str, str]
    info_engine_label: bool = True  # cache_config_info carries ``engine`` as the others do
    # prompt tokens from the cache count as tokens of a step (until PR#43346)
    cached_in_iteration: bool = False
    prefix_in_blocks: bool = False  # prefix cache counters count blocks (0.8) instead of tokens.
    custom_buckets: bool = True  # knows ``--custom-histogram-buckets``

    def finite_edges(
        self, max_model_len: int, custom: Mapping[str, tuple[float, ...]]
    ) -> dict[str, tuple[float, ...]]:
        """Group → finite bucket edges, ascending.

        ``max_model_len``: caps the 1-2-5 series of request lengths; ``custom``: group, or family
        with or without ``vllm:``, → its edges.
        """
        edges = {REQUEST_TOKENS: request_tokens(max_model_len), **self.groups}
        for family in self.families:
            if family.type == "histogram":
                edges[family.name] = edges[family.group]
        for key, custom_edges in custom.items():
            names = [key, f"vllm:{key}", *(f.name for f in self.families if f.group == key)]
            edges |= {name: tuple(map(float, custom_edges)) for name in names if name in edges}
        return edges


_GENERATIONS = ("0", "1", "2")


def _process(name: str, kind: FamilyType, help_text: str) -> Family:
    return Family(name, kind, help_text, (name,), scope="process", created=False)


def _collected(name: str, help_text: str) -> Family:
    columns = tuple(f"{name}_{generation}" for generation in _GENERATIONS)
    return Family(
        name,
        "counter",
        help_text,
        columns,
        "generation",
        _GENERATIONS,
        scope="process",
        created=False,
    )


PYTHON: tuple[Family, ...] = (
    _collected("python_gc_objects_collected", "Objects collected during gc"),
    _collected("python_gc_objects_uncollectable", "Uncollectable objects found during GC"),
    _collected("python_gc_collections", "Number of times this generation was collected"),
    _process("python_info", "gauge", "Python platform information"),
    _process("process_virtual_memory_bytes", "gauge", "Virtual memory size in bytes."),
    _process("process_resident_memory_bytes", "gauge", "Resident memory size in bytes."),
    _process(
        "process_start_time_seconds",
        "gauge",
        "Start time of the process since unix epoch in seconds.",
    ),
    _process("process_cpu_seconds", "counter", "Total user and system CPU time spent in seconds."),
    _process("process_open_fds", "gauge", "Number of open file descriptors."),
    _process("process_max_fds", "gauge", "Maximum number of open file descriptors."),
)

PYTHON_INFO = {
    "implementation": "CPython",
    "major": "3",
    "minor": "11",
    "patchlevel": "7",
    "version": "3.11.7",
}

_SIZE = (
    "Content length of {} by handler. Only value of header is respected. Otherwise ignored. "
    "No percentile calculated. "
)

HTTP_REQUESTS = Family(
    "http_requests",
    "counter",
    "Total number of requests by method, status and handler.",
    ("http_requests_2xx", "http_requests_5xx"),
    "status",
    ("2xx", "5xx"),
    scope="process",
)
HTTP_REQUEST_SIZE = Family(
    "http_request_size_bytes",
    "summary",
    _SIZE.format("incoming requests"),
    ("http_request_size",),
    scope="process",
)
HTTP_RESPONSE_SIZE = Family(
    "http_response_size_bytes",
    "summary",
    _SIZE.format("outgoing responses"),
    ("http_response_size",),
    scope="process",
)
HTTP_HIGHR = Family(
    "http_request_duration_highr_seconds",
    "histogram",
    "Latency with many buckets but no API specific labels. Made for more accurate percentile "
    "calculations. ",
    ("http_highr",),
    group="http_highr",
    scope="process",
)
HTTP_BY_HANDLER = Family(
    "http_request_duration_seconds",
    "histogram",
    "Latency with only few buckets by handler. Made to be only used if aggregation by handler is "
    "important. ",
    ("http_by_handler",),
    group="http_by_handler",
    scope="process",
)
HTTP: tuple[Family, ...] = (
    HTTP_REQUESTS,
    HTTP_REQUEST_SIZE,
    HTTP_RESPONSE_SIZE,
    HTTP_HIGHR,
    HTTP_BY_HANDLER,
)
