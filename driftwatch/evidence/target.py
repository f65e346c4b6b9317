"""The target itself: what is scraped of it, its knobs, its release, its restarts."""

from __future__ import annotations

from driftwatch.evidence.schema import Column, column

_NO_RELEASE = (
    "the release is not known: it is on no page, but in /version of a server that is scraped "
    "directly, in a label vllm_version, image or driver_version, or in kube_pod_container_info of "
    "its pod"
)

COVERAGE: tuple[Column, ...] = (
    column(
        "coverage_missing_seconds",
        "seconds",
        "how long inputs that were there in the last 24 h are gone",
        "any",
    ),
    column("coverage_missing_inputs", "1", "which inputs are gone", "any", dtype="string"),
    column(
        "pool_coverage_missing_ratio",
        "1",
        "share of the pool's targets with inputs gone for 5 min",
        "any",
    ),
    column("pool_coverage_missing_targets", "targets", "how many of them", "any"),
)

KNOBS: tuple[Column, ...] = (
    column(
        "max_num_seqs",
        "requests",
        "the sequence cap",
        off="not in any metric; inferred from a plateau, else unknown",
        needs=("max_num_seqs",),
    ),
    column(
        "max_num_seqs_inferred",
        "1",
        "max_num_seqs was inferred from the plateau of running requests",
        "running_requests",
        dtype="bool",
        optional=("running_requests",),
    ),
    column(
        "max_num_batched_tokens",
        "tokens",
        "the token budget",
        off="not in any metric",
        needs=("max_num_batched_tokens",),
    ),
    column("kv_cache_tokens", "tokens", "size of the KV cache", "cache_config"),
    column(
        "configuration_changed", "1", "knobs changed in the window", "cache_config", dtype="bool"
    ),
)

RELEASE_SINCE_PIN = column(
    "release_changed_since_pin",
    "1",
    "the release (vLLM, image, driver) is another than in the pinned window; without a pin, "
    "another than it was within the last day",
    off=f"no pin; or {_NO_RELEASE}",
    dtype="bool",
    alias=("upgrade", "version change"),
    needs=("release", "baseline"),
)
RELEASE_COMPARISON = column(
    "release_comparison",
    "1",
    "what of the release differs from the pinned window's and where that was read, or why the two "
    "are not compared",
    dtype="string",
    alias=("upgrade", "version change"),
)
RELEASE: tuple[Column, ...] = (
    column(
        "release_changed",
        "1",
        "the release (vLLM, image, driver) was seen to change in the window",
        off=_NO_RELEASE,
        dtype="bool",
        needs=("release",),
    ),
    RELEASE_SINCE_PIN,
    RELEASE_COMPARISON,
)

RESTARTS: tuple[Column, ...] = (
    column(
        "restarted",
        "1",
        "the engine restarted in the window",
        "process_start_time_seconds",
        "generation_tokens_total",
        dtype="bool",
        optional=("process_start_time_seconds", "generation_tokens_total"),
    ),
)
