"""Requests that come and are turned away, and the KV cache they fill."""

from __future__ import annotations

from driftwatch.evidence.schema import NO_REFERENCE, Column, column

_NO_PREFILL = (
    f"{NO_REFERENCE}; fewer than 100 first tokens in the window, or no prompt was looked up in the "
    "prefix cache"
)
_EXTRA_PREFILL = {
    "computed_prompt_tokens_ratio": (
        "prompt tokens computed per second (found in the prefix cache: not computed) over the "
        "reference's"
    ),
    "lost_prefix_hits_prefill_ratio": (
        "the factor of it that prefix hits bring: (1 - hit ratio) over what it would be if each "
        "request still found as many tokens as in the reference"
    ),
    "lost_prefix_hits_share_ratio": (
        "share of lost prefix hits in what made the computed prompt tokens rise, by logarithms; "
        "the rest is longer prompts and more requests"
    ),
}

CACHE: tuple[Column, ...] = (
    column(
        "kv_cache_usage_ratio",
        "1",
        "mean of the gauge",
        "kv_cache_usage_ratio",
        alias=("gpu_cache_usage_perc", "KV pressure"),
    ),
    column(
        "preemptions_per_second",
        "1/s",
        "requests preempted and recomputed",
        "preemptions_total",
        alias=("sequence eviction",),
    ),
    column(
        "prefix_cache_hit_ratio",
        "1",
        "prompt tokens found in the prefix cache, or in an external one, over those looked up",
        "prefix_cache_queries_total",
        "prefix_cache_hits_total",
        "external_prefix_cache_hits_total",
        alias=("cache efficiency",),
        optional=("external_prefix_cache_hits_total",),
    ),
    column(
        "reference_prefix_cache_hit_ratio",
        "1",
        "the reference's prefix-cache hit ratio",
        "prefix_cache_queries_total",
        "prefix_cache_hits_total",
        "external_prefix_cache_hits_total",
        off=NO_REFERENCE,
        needs=("baseline",),
        optional=("external_prefix_cache_hits_total",),
    ),
    *(
        column(
            name,
            "1",
            meaning,
            "prompt_tokens_total",
            "ttft_seconds",
            "prefix_cache_queries_total",
            "prefix_cache_hits_total",
            off=_NO_PREFILL,
            needs=("baseline",),
        )
        for name, meaning in _EXTRA_PREFILL.items()
    ),
)

DEMAND: tuple[Column, ...] = (
    column(
        "requests_per_second",
        "requests/s",
        "finished requests per second",
        "finished_requests_total",
        alias=("request rate", "demand"),
    ),
    column(
        "requests_per_second_ratio",
        "1",
        "the same over the reference",
        "finished_requests_total",
        off=NO_REFERENCE,
        alias=("request rate", "demand"),
        needs=("baseline",),
    ),
    column(
        "requests_per_second_low_ratio",
        "1",
        "the same over the lowest tenth of the reference's 10-min rates: below it, demand is lower "
        "than the reference's quiet hours",
        "finished_requests_total",
        off="no reference of several 10-min stretches (a pin)",
        alias=("request rate", "demand"),
        needs=("baseline",),
    ),
    column(
        "rejected_requests_per_second",
        "requests/s",
        "503 answers of the queue limits",
        "rejected_requests_total",
    ),
    column(
        "aborted_requests_per_second",
        "requests/s",
        "requests finished by abort",
        "aborted_requests_total",
    ),
)
