"""What figures of a verification are called in text."""

from __future__ import annotations

from typing import Final

WORDS: Final[dict[str, str]] = {
    "in_target_ratio": "requests in target",
    "ttft_in_target_ratio": "requests in the TTFT target",
    "tpot_in_target_ratio": "requests in the TPOT target",
    "ttft_seconds_mean": "TTFT mean",
    "itl_seconds_mean": "ITL mean",
    "e2e_seconds_mean": "time of a request",
    "batch_assembly_wait_seconds": "queue wait",
    "generation_tokens_per_second": "tokens/s",
    "requests_per_forward_pass": "requests a pass",
    "running_requests": "running requests",
    "kv_cache_usage_ratio": "KV cache",
    "preemptions_per_second": "preemptions",
}
