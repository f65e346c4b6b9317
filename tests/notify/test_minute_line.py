"""One minute on one line: unknown is said, never 0."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from driftwatch.notify.minute_line import limit_line, minute_line

ROW: dict[str, Any] = {
    "end": datetime(2026, 11, 18, 9, 52, tzinfo=UTC),
    "scrapes": 4.0,
    "running_requests": 12.0,
    "requests_per_forward_pass": 12.0,
    "generation_tokens_per_second": 1300.0,
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


def test_as_the_mock_up_has_it() -> None:
    assert minute_line(ROW) == (
        "09:52 UTC  12.0 requests a step, 1,300 tokens/s, wait 0.01 s, KV 4 %, 0 waiting"
    )
    assert limit_line(ROW) == "none full: 0 waiting (both settings unknown)"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"scrapes": 0.0}, "no usable scrape"),
        ({"kv_cache_usage_ratio": None}, "KV unknown"),
        ({"queue_seconds_sum": 0.0003}, "wait <0.01 s"),
        ({"queue_seconds_sum": 0.0}, "wait 0 s"),
        ({"kv_cache_usage_ratio": 0.0004}, "KV <0.1 %"),
        ({"waiting_requests": 0.083}, "<0.1 waiting"),
        ({"running_requests": 0.0, "generation_tokens_per_second": 0.0}, "idle"),
        ({"forward_passes_overcounted": True}, "≥12.0 requests a step"),
        ({"restarted": True}, "restarted"),
        ({"running_requests": 0.0, "generation_tokens_per_second": None}, "tokens/s unknown"),
        ({"scrapes": 1.0, "waiting_requests": None}, "1 scrape"),
    ],
)
def test_what_is_special_is_said(change: dict[str, Any], said: str) -> None:
    assert said in " ".join(minute_line({**ROW, **change}).split())


def test_a_long_line_is_wrapped_and_keeps_its_units() -> None:
    slow = ROW | {"requests_per_forward_pass": 3.88, "waiting_requests": 1234.0, "restarted": True}
    assert minute_line(slow).splitlines() == [
        "09:52 UTC  3.88 requests a step, 1,300 tokens/s, wait 0.01 s, KV 4 %,",
        "           1,234 waiting, restarted",
    ]
    unknown = slow | {"requests_per_forward_pass": None}
    assert minute_line(unknown).startswith("09:52 UTC  requests a step unknown, 1,300 tokens/s,")


def test_idle_is_known_never_guessed() -> None:
    quiet = ROW | {"running_requests": 0.0, "generation_tokens_per_second": 0.0}
    assert minute_line(quiet) == "09:52 UTC  idle"
    assert "idle" not in minute_line(quiet | {"generation_tokens_per_second": None})
    assert "idle" not in minute_line(quiet | {"running_requests": None})
    assert minute_line(quiet | {"scrapes": 1.0}) == "09:52 UTC  idle, 1 scrape"
    assert "scrape" not in minute_line(ROW | {"scrapes": 2.0})


@pytest.mark.parametrize(
    ("change", "line"),
    [
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
            {"limit_binding_share_10m_ratio": 0.2, "max_num_seqs": 64.0},
            "none full: waiting in 20 % of the last 10 min (token budget unknown)",
        ),
        (
            {
                "limit_binding_share_10m_ratio": 0.59,
                "binding_limit": "max_num_batched_tokens",
                "max_num_batched_tokens": 2048.0,
                "scrapes_10m": 120.0,
            },
            "max_num_batched_tokens 2048 full in 59 % of 120 scrapes",
        ),
        (
            {"limit_binding_share_10m_ratio": None},
            "unknown: /metrics has no vllm:num_requests_waiting",
        ),
    ],
)
def test_limits(change: dict[str, Any], line: str) -> None:
    assert limit_line({**ROW, **change}) == line


@pytest.mark.parametrize("restarted", [False, True])
@pytest.mark.parametrize("wait", [None, 0.00003, 0.83, 123.0])
@pytest.mark.parametrize("waiting", [None, 0.0, 0.083, 8.8, 12_345.0])
@pytest.mark.parametrize("tokens", [None, 799.0, 123_456.0])
def test_no_line_is_wider_than_80(
    restarted: bool, wait: float | None, waiting: float | None, tokens: float | None
) -> None:
    row = ROW | {
        "queue_seconds_sum": None if wait is None else 10 * wait,
        "waiting_requests": waiting,
        "generation_tokens_per_second": tokens,
        "kv_cache_usage_ratio": 0.999,
        "forward_passes_overcounted": True,
        "restarted": restarted,
    }
    said = minute_line(row).splitlines()
    assert all(len(line) <= 80 for line in said)
    assert all(line.startswith(" " * 11) for line in said[1:])
    assert ("restarted" in said[-1]) is restarted
