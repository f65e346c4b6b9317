"""How long requests wait, and how long each part of an answer takes."""

from __future__ import annotations

from driftwatch.evidence.schema import Column, column


def _latency(stem: str, what: str, *alias: str) -> tuple[Column, ...]:
    name = f"{stem}_seconds"
    return (
        column(f"{name}_mean", "seconds", f"mean {what}, from sum and count", name, alias=alias),
        column(
            f"{name}_p95", "seconds", f"p95 {what}, linear inside its bucket", name, alias=alias
        ),
        column(
            f"{name}_p95_lower",
            "seconds",
            f"lower edge of the bucket that holds the p95 {what}",
            name,
        ),
        column(
            f"{name}_p95_upper",
            "seconds",
            f"upper edge of the bucket that holds the p95 {what}; "
            "NULL with a lower edge means above the last finite edge",
            name,
        ),
    )


LATENCY: tuple[Column, ...] = (
    column(
        "batch_assembly_wait_seconds",
        "seconds",
        "mean queue time, first queued to first scheduled",
        "queue_seconds",
        alias=("queue wait", "queue time"),
    ),
    column(
        "batch_assembly_wait_seconds_p95",
        "seconds",
        "p95 queue time, linear inside its bucket (first edge 0.3 s)",
        "queue_seconds",
        alias=("queue wait", "queue time"),
    ),
    column(
        "batch_assembly_wait_seconds_p95_lower",
        "seconds",
        "lower edge of its bucket",
        "queue_seconds",
    ),
    column(
        "batch_assembly_wait_seconds_p95_upper",
        "seconds",
        "upper edge of its bucket",
        "queue_seconds",
    ),
    column(
        "waiting_requests",
        "requests",
        "mean of the gauge",
        "waiting_requests",
        alias=("queue length", "queue depth"),
    ),
    column(
        "waiting_capacity_requests",
        "requests",
        "waiting for capacity, mean of the gauge",
        "waiting_capacity_requests",
        alias=("queue length", "queue depth"),
    ),
    column(
        "waiting_deferred_requests",
        "requests",
        "deferred by LoRA slots, KV transfer or grammar",
        "waiting_deferred_requests",
        alias=("queue length", "queue depth"),
    ),
    *_latency("ttft", "time to first token", "latency"),
    *_latency("itl", "inter-token latency", "latency"),
    *_latency("tpot", "time per output token of a request", "latency"),
    *_latency("e2e", "end-to-end time", "latency"),
    column(
        "queue_share_of_ttft_ratio",
        "1",
        "mean queue time over mean TTFT",
        "queue_seconds",
        "ttft_seconds",
    ),
    column(
        "prefill_share_of_e2e_ratio",
        "1",
        "mean prefill time over mean end-to-end time",
        "prefill_seconds",
        "e2e_seconds",
    ),
    column(
        "decode_share_of_e2e_ratio",
        "1",
        "mean decode time over mean end-to-end time",
        "decode_seconds",
        "e2e_seconds",
    ),
)
