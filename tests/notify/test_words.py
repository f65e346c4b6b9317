"""Engines, GPUs and minutes in words: numbers from → to, and what is unknown is never 0."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from driftwatch.notify.engine_words import engine_text, gpu_count_text, gpus_text
from driftwatch.notify.minute_line import gpu_line, limit_line, minute_line, speed_line

GPUS: dict[str, Any] = {
    "gpu_count": 8.0,
    "gpu_count_source": "declared, DCGM agrees",
    "gpu_utilization_ratio": 0.99,
    "gpu_power_watts": 540.4,
    "gpu_sm_clock_hertz": 1.155e9,
    "gpu_clock_event_reasons": "none",
    "gpus_lost": 0.0,
}
BEFORE = {"gpu_sm_clock_hertz": 1.98e9, "gpu_utilization_ratio": 0.98, "gpu_power_watts": 540.0}
ROW: dict[str, Any] = {
    "end": datetime(2026, 11, 18, 9, 52, tzinfo=UTC),
    "scrapes": 4.0,
    "running_requests": 12.0,
    "requests_per_forward_pass": 12.0,
    "generation_tokens_per_second": 1300.0,
    "prompt_tokens_total": 60 * 36_000.0,
    "duration_seconds": 60.0,
    "queue_seconds_sum": 0.1,
    "queue_seconds_count": 10.0,
    "kv_cache_usage_ratio": 0.04,
    "waiting_requests": 0.0,
    "forward_passes_overcounted": False,
    "restarted": False,
    "max_num_seqs": None,
    "max_num_seqs_inferred": False,
    "max_num_batched_tokens": None,
    "limit_binding_share_10m_ratio": 0.0,
    "observed_10m_seconds": 600.0,
    "binding_limit": "none",
}


@pytest.mark.parametrize(
    ("change", "ending"),
    [
        ({"gpu_clock_event_reasons": "sw_power_cap"}, "; clock held down by sw_power_cap"),
        ({"gpu_clock_event_reasons": None}, "; the reason is not collected (clock events)"),
        (
            {"tokens_per_second_per_gpu_ratio": 0.57},
            "; GPU_UTIL stays while tokens/s/GPU -43 %: it only shows that a kernel is loaded",
        ),
        ({"gpus_lost": 1.0}, ", 1 lost"),
    ],
)
def test_gpus_of_explain(change: dict[str, Any], ending: str) -> None:
    said = gpus_text(GPUS | change, BEFORE)
    assert said is not None and said.endswith(ending)
    assert "SM clock" in said


def test_a_reading_that_is_unknown_is_left_out_and_never_zero() -> None:
    assert gpus_text(dict.fromkeys(GPUS)) is None and gpu_line(dict.fromkeys(GPUS)) is None
    assert gpus_text({"gpu_utilization_ratio": 0.0}) == "GPU_UTIL 0 %"  # a measured 0 is 0
    said = "8 GPUs: SM clock 1,155 MHz, GPU_UTIL 99 %, power 540 W"
    assert gpu_line(GPUS) == said
    assert gpu_count_text({"gpu_count": None}) == "GPU count unknown"


@pytest.mark.parametrize(
    ("evidence", "said"),
    [
        ({"engine_kind": "generate", "engine_asleep": False}, ""),
        ({"engine_kind": "pooling"}, "pooling engine (it generates no tokens); not applicable: "),
        ({"spec_decode_acceptance_ratio": 0.41}, "speculative decoding: 41 % of drafted tokens"),
        ({"engine_asleep": True}, "the engine sleeps: requests are held until it is woken"),
    ],
)
def test_what_the_engine_is(evidence: dict[str, Any], said: str) -> None:
    assert engine_text(evidence).startswith(said) and bool(engine_text(evidence)) is bool(said)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({}, "12.0 requests a step, 1,300 tokens/s, wait 0.01 s, KV 4 %, 0 waiting"),
        ({"scrapes": 0.0}, "no usable scrape"),
        ({"kv_cache_usage_ratio": None}, "KV unknown"),
        ({"running_requests": 0.0, "generation_tokens_per_second": 0.0}, "UTC idle"),
        ({"forward_passes_overcounted": True}, "≥12.0 requests a step"),
        ({"running_requests": 0.0, "generation_tokens_per_second": None}, "tokens/s unknown"),
        ({"scrapes": 1.0, "waiting_requests": None}, "1 scrape"),
        ({"engine_kind": "pooling"}, "36,000 prompt tokens/s (pooling)"),
        ({"engine_asleep": True, "waiting_requests": 3.0}, "asleep, 3 requests held"),
        ({"waiting_requests": 12_345.0, "restarted": True}, "12,345 waiting, restarted"),
    ],
)
def test_a_minute_on_a_line(change: dict[str, Any], said: str) -> None:
    lines = minute_line({**ROW, **change}).splitlines()
    assert all(len(line) <= 80 for line in lines)
    assert said in " ".join(" ".join(lines).split())


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ({}, "none full: 0 waiting (both settings unknown)"),
        (
            {
                "limit_binding_share_10m_ratio": 0.78,
                "binding_limit": "max_num_seqs",
                "max_num_seqs": 8.0,
                "max_num_seqs_inferred": True,
                "observed_10m_seconds": 90.0,
            },
            "max_num_seqs 8 (inferred) full in 78 % of the last 2 min",
        ),
        (
            {"limit_binding_share_10m_ratio": 0.6, "binding_limit": None},
            "one is full in 60 % of the last 10 min; unknown which (both settings unknown)",
        ),
        (
            {"limit_binding_share_10m_ratio": None},
            "unknown: /metrics has no vllm:num_requests_waiting",
        ),
    ],
)
def test_limits_of_a_minute(change: dict[str, Any], line: str) -> None:
    assert limit_line({**ROW, **change}) == line


def test_the_speed_or_why_it_is_unknown() -> None:
    assert speed_line({"speed_unknown_reason": "not judged yet: 5 of 20 minutes"}) == (
        "not judged yet: 5 of 20 minutes"
    )
    slow = {"speed_at_equal_load_ratio": 0.81, "slower_at_equal_load": True}
    assert speed_line(slow) == "19 % slower at equal load (its baseline)"
