"""Which limit binds, for how long, and what it costs those that wait."""

from __future__ import annotations

from driftwatch.evidence.schema import Column, column

LIMITS: tuple[Column, ...] = (
    column(
        "pool_idle_ratio",
        "1",
        "share of the pool's other targets with free slots and no queue, to which less than half "
        "of the pool's mean of requests came in 10 min",
        "running_requests",
        "ttft_seconds",
        off="a pool of one",
        needs=("pool_of_several",),
    ),
    column(
        "binding_limit",
        "1",
        "max_num_seqs, max_num_batched_tokens, kv_cache, deferred or none: "
        "what binds in most of the window's queued scrapes, from half of its scrapes on, or from a "
        "quarter on while the TTFT target is missed and most of the TTFT is waiting",
        "running_requests",
        "waiting_capacity_requests",
        "kv_cache_usage_ratio",
        "preemptions_total",
        alias=("what binds",),
        dtype="string",
        optional=("running_requests", "kv_cache_usage_ratio", "preemptions_total"),
    ),
    column(
        "binding_margin_ratio",
        "1",
        "room under the tightest known limit; none under one that binds",
        "running_requests",
        off="no limit known",
        alias=("what binds",),
    ),
    column(
        "limit_binding_share_10m_ratio",
        "1",
        "share of the last 10 min's scrapes in which a batch "
        "limit binds, cut at restarts and knob changes",
        "running_requests",
        "waiting_capacity_requests",
        "kv_cache_usage_ratio",
        "preemptions_total",
        off="queued scrapes with no limit known",
        optional=("running_requests", "kv_cache_usage_ratio", "preemptions_total"),
    ),
    column(
        "limit_binding_share_10m_low_ratio",
        "1",
        "lower end of the 90 % interval of that share as one of time: scrapes are a sample of it",
        "running_requests",
        "waiting_capacity_requests",
        "kv_cache_usage_ratio",
        "preemptions_total",
        off="fewer than three scrapes in 10 min",
        optional=("running_requests", "kv_cache_usage_ratio", "preemptions_total"),
    ),
    column(
        "binding_running_requests",
        "requests",
        "mean running requests over those of the last 10 min's scrapes in which a batch limit "
        "binds",
        "running_requests",
        off="no batch limit binds",
    ),
    column(
        "binding_kv_cache_usage_ratio",
        "1",
        "mean KV cache usage over those of the last 10 min's scrapes in which a batch limit binds",
        "kv_cache_usage_ratio",
        off="no batch limit binds",
        alias=("KV pressure",),
    ),
    column(
        "binding_waiting_requests",
        "requests",
        "mean requests waiting for capacity over the same scrapes",
        "waiting_capacity_requests",
        off="no batch limit binds",
        alias=("queue length",),
    ),
    column(
        "scrapes_10m",
        "scrapes",
        "scrapes of the last 10 min since the last restart or knob change that show who waits",
        "waiting_capacity_requests",
    ),
    column(
        "waiting_deferred_share_10m_ratio",
        "1",
        "share of the last 10 min's scrapes with deferred requests",
        "waiting_deferred_requests",
    ),
    column(
        "observed_10m_seconds",
        "seconds",
        "how much of the last 10 min was observed since the last restart or knob change",
        "any",
    ),
    column(
        "batch_assembly_wait_10m_seconds",
        "seconds",
        "mean queue time of the last 10 min",
        "queue_seconds",
    ),
    column(
        "ttft_10m_seconds", "seconds", "mean time to first token of the last 10 min", "ttft_seconds"
    ),
    column(
        "queue_share_of_ttft_10m_ratio",
        "1",
        "queue time over TTFT in the last 10 min",
        "queue_seconds",
        "ttft_seconds",
    ),
    column(
        "queue_wait_estimate_10m_seconds",
        "seconds",
        "what a request that queues now will wait: mean waiting for capacity over first tokens per "
        "second of the last 10 min (Little's law); speaks of those that no histogram has yet seen; "
        "a lower bound where no first token came",
        "waiting_capacity_requests",
        "ttft_seconds",
        alias=("queue wait", "queue time"),
    ),
    column(
        "deferred_requests_10m",
        "requests",
        "mean deferred requests over those of the last 10 min's scrapes that show any",
        "waiting_deferred_requests",
        off="none is deferred",
    ),
)
