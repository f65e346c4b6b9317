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

FamilyType = Literal["counter", "gauge", "histogram"]
Scope = Literal["engine", "model", "process"]

ZERO = ""  # column of what stays 0 here (no LoRA, no KV connector, no multi-modal input …)
ONE = "1"  # column of what is always 1

# finite edges of each group in vLLM 0.32; request_tokens follows max_model_len
GROUPS: Mapping[str, tuple[float, ...]] = {
    "iteration_tokens": ITERATION_TOKENS,
    "request_latency": REQUEST_LATENCY_SECONDS,
    "time_to_first_token": TIME_TO_FIRST_TOKEN_SECONDS,
    "inter_token_latency": INTER_TOKEN_LATENCY_SECONDS,
    "request_params_n": (1.0, 2.0, 5.0, 10.0, 20.0),
    "request_num_preemptions": NUM_PREEMPTIONS,
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


# of the metrics of the client library and the HTTP server, only those that driftwatch reads
PROCESS = Family(
    "process_start_time_seconds",
    "gauge",
    "Start time of the process since unix epoch in seconds.",
    ("process_start_time_seconds",),
    scope="process",
    created=False,
)
