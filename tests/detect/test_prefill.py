"""What more computed prompt tokens are made of: requests, longer prompts, lost prefix hits."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from driftwatch.detect.reference import extra_prefill_columns

REFERENCE = {
    "reference_requests_per_second": 2.0,
    "reference_prompt_tokens_mean": 1000.0,
    "reference_prefix_cache_hit_ratio": 0.5,
}


def found(
    requests_per_second: float = 2.0, prompt: float = 1000.0, hit: float | None = 0.5, **change: Any
) -> dict[str, float | None]:
    requests = requests_per_second * 600.0
    row = {
        "ttft_seconds_count": requests,
        "prompt_tokens_total": requests * prompt,
        "duration_seconds": 600.0,
        "prefix_cache_hit_ratio": hit,
        **REFERENCE,
        **change,
    }
    frame = pl.DataFrame([row], schema=dict.fromkeys(row, pl.Float64))
    return frame.select(**extra_prefill_columns(100.0)).row(0, named=True)


def test_as_before_nothing_is_lost() -> None:
    row = found()
    assert row["computed_prompt_tokens_ratio"] == pytest.approx(1.0)
    assert row["lost_prefix_hits_prefill_ratio"] == pytest.approx(1.0)
    assert row["lost_prefix_hits_share_ratio"] == 0.0


def test_all_hits_gone_at_the_same_demand_explain_it_all() -> None:
    row = found(hit=0.0)
    assert row["computed_prompt_tokens_ratio"] == pytest.approx(2.0)
    assert row["lost_prefix_hits_prefill_ratio"] == pytest.approx(2.0)
    assert row["lost_prefix_hits_share_ratio"] == pytest.approx(1.0)


def test_a_prompt_that_grows_behind_its_prefix_loses_nothing() -> None:
    """500 of 1,000 tokens were found; of 4,000 the same 500 are, and the ratio is a quarter."""
    row = found(prompt=4000.0, hit=0.125)
    assert row["computed_prompt_tokens_ratio"] == pytest.approx(7.0)
    assert row["lost_prefix_hits_prefill_ratio"] == pytest.approx(1.0)
    assert row["lost_prefix_hits_share_ratio"] == pytest.approx(0.0, abs=1e-9)


def test_a_shorter_prompt_is_expected_to_hit_as_before_and_no_more() -> None:
    row = found(prompt=250.0, hit=0.25)
    assert row["lost_prefix_hits_prefill_ratio"] == pytest.approx(1.5)
    assert found(prompt=250.0)["lost_prefix_hits_prefill_ratio"] == pytest.approx(1.0)


def test_four_times_the_requests_with_a_few_hits_less_are_a_matter_of_requests() -> None:
    row = found(requests_per_second=8.0, hit=0.42)
    assert row["lost_prefix_hits_prefill_ratio"] == pytest.approx(1.16)
    assert row["lost_prefix_hits_share_ratio"] == pytest.approx(0.0967, abs=1e-3)


def test_fewer_requests_finish_in_a_full_batch_and_explain_nothing() -> None:
    row = found(requests_per_second=1.2, hit=0.0)
    assert row["computed_prompt_tokens_ratio"] == pytest.approx(1.2)
    assert row["lost_prefix_hits_share_ratio"] == pytest.approx(1.0)


@pytest.mark.parametrize(
    "change",
    [
        {"hit": None},
        {"requests_per_second": 0.16},  # 96 requests
        {"reference_prefix_cache_hit_ratio": None},
        {"reference_prefix_cache_hit_ratio": 1.0},  # nothing was computed: no ratio to it
        {"reference_requests_per_second": 0.0},
        {"reference_prompt_tokens_mean": None},
        {"prompt_tokens_total": None},
    ],
)
def test_what_is_missing_leaves_it_unknown(change: dict[str, Any]) -> None:
    assert set(found(**change).values()) == {None}


@given(rate=st.floats(0.2, 20.0), prompt=st.floats(10.0, 50_000.0), hit=st.floats(0.0, 0.99))
def test_the_factors_multiply_and_the_share_is_one(rate: float, prompt: float, hit: float) -> None:
    row = found(rate, prompt, hit)
    whole = rate * prompt * (1 - hit) / (2.0 * 1000.0 * 0.5)
    assert row["computed_prompt_tokens_ratio"] == pytest.approx(whole)
    share = row["lost_prefix_hits_share_ratio"]
    assert share is not None and 0.0 <= share <= 1.0
