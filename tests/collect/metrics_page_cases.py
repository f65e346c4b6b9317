"""What the tests of pages with bad numbers, lines and histograms share."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from driftwatch.collect.pages import PageParser
from driftwatch.collect.schema import Collected

T0 = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


PAGE = """\
# HELP process_start_time_seconds Start time.
# TYPE process_start_time_seconds gauge
process_start_time_seconds 1.7e+09
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="m"} 3.0
vllm:num_requests_waiting{engine="0",model_name="m"} 0.0
# TYPE vllm:generation_tokens counter
vllm:generation_tokens_total{engine="0",model_name="m"} 100.0
# TYPE vllm:request_success counter
vllm:request_success_total{engine="0",finished_reason="stop",model_name="m"} 5.0
vllm:request_success_total{engine="0",finished_reason="abort",model_name="m"} 2.0
# TYPE vllm:time_to_first_token_seconds histogram
vllm:time_to_first_token_seconds_bucket{engine="0",le="0.1",model_name="m"} 1.0
vllm:time_to_first_token_seconds_bucket{engine="0",le="1.0",model_name="m"} 4.0
vllm:time_to_first_token_seconds_bucket{engine="0",le="+Inf",model_name="m"} 7.0
vllm:time_to_first_token_seconds_count{engine="0",model_name="m"} 7.0
vllm:time_to_first_token_seconds_sum{engine="0",model_name="m"} 9.5
"""


def read(page: str | bytes, parser: PageParser | None = None) -> Collected:
    body = page if isinstance(page, bytes) else page.encode()
    return (parser or PageParser()).parse("h:8000", T0, body)


def one(page: str | bytes) -> dict[str, Any]:
    (row,) = read(page).scrapes.to_dicts()
    return row


def only(parsed: Collected) -> tuple[dict[str, Any], str]:
    """The row of a page with one problem, and that problem."""
    (row,), (problem,) = parsed.scrapes.to_dicts(), parsed.problems
    assert problem.where == "h:8000"
    assert problem.time == T0
    return row, problem.reason


def real(shared_data: Path, name: str) -> Collected:
    return read((shared_data / "vllm-0.32" / name).read_bytes())
