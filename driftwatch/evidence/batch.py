"""How much work the engine has in hand at each step."""

from __future__ import annotations

from driftwatch.evidence.schema import STEPS, Column, column

BATCH: tuple[Column, ...] = (
    column("duration_seconds", "seconds", "how much of the window the scrapes cover", "any"),
    column("scrapes", "scrapes", "usable scrapes in the window", "any"),
    column(
        "effective_batch_size",
        "requests",
        "requests decoding, time-weighted, without sampling: rate of the summed inter-token "
        "latency (Little's law)",
        "itl_seconds",
        alias=("batch size", "real concurrency"),
    ),
    column(
        "requests_per_forward_pass",
        "requests",
        "decode and first-token requests per engine step: (ITL count + TTFT count) / steps; a "
        "lower bound with several API servers, which count a step once each",
        *STEPS,
        alias=("requests per step", "batch size"),
    ),
    column(
        "decode_requests_per_forward_pass",
        "requests",
        "ITL count / steps: decoding requests per engine step",
        "itl_seconds",
        "iteration_tokens",
    ),
    column(
        "running_requests",
        "requests",
        "mean of the gauge over the window's scrapes; up to 2x off under bursts",
        "running_requests",
        alias=("num_requests_running",),
    ),
    column(
        "batch_estimate_spread_ratio",
        "1",
        "largest over smallest of the three batch estimates",
        "running_requests",
        *STEPS,
        optional=("running_requests", "ttft_seconds", "iteration_tokens"),
    ),
    column(
        "tokens_per_forward_pass",
        "tokens",
        "computed tokens per engine step; steps that only prefill are not counted: an upper bound",
        "iteration_tokens",
        alias=("batch tokens",),
    ),
    column(
        "batch_utilization",
        "1",
        "tokens_per_forward_pass / max_num_batched_tokens (same bound)",
        "iteration_tokens",
        off="max_num_batched_tokens unknown",
        alias=("token budget use",),
        needs=("max_num_batched_tokens",),
    ),
    column(
        "sequence_utilization",
        "1",
        "running_requests / max_num_seqs",
        "running_requests",
        off="max_num_seqs unknown and not inferred",
        alias=("slot use",),
        needs=("max_num_seqs",),
    ),
)
