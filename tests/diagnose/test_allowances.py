"""How many requests each limit lets run, and which limit is named at a cost."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest
from limit_cases import AT_CAP, IDLE, lengths, row

from driftwatch.diagnose.limits import final_binding_limit
from driftwatch.diagnose.tree import limits_of


@pytest.mark.parametrize(
    ("text", "configured", "tokens"),
    [("None", None, 16_000.0), ("12345.0", None, 12_345.0), ("12345.0", 999.0, 999.0)],
)
def test_the_page_tells_the_kv_size_and_what_a_person_configured_wins(
    text: str, configured: float | None, tokens: float
) -> None:
    config = f'{{"block_size":"16","kv_cache_size_tokens":"{text}","num_gpu_blocks":"1000"}}'
    found = row(lengths(390, cache_config=config), kv_cache_tokens=configured)
    assert found["kv_cache_tokens"] == tokens


def test_limits_of_a_row_name_what_is_missing() -> None:
    found = row(lengths(390), max_num_seqs=None, max_num_batched_tokens=None)
    unknown = {"max_num_seqs": None, "allows_max_num_seqs": None, "binding_limit": None}
    unknown["max_num_seqs_inferred"] = False
    (limits,) = limits_of(pl.DataFrame([found | unknown], strict=False))
    notes = ["setting not given", "setting not given", "KV cache size not in /metrics"]
    assert [one.note for one in limits] == notes
    assert [one.margin_ratio for one in limits] == [None] * 3
    found = row([(40, AT_CAP)], kv_cache_tokens=1000.0)
    budget, seqs, kv = limits_of(pl.DataFrame([found], strict=False))[0]
    assert budget.note == kv.note == "no finished requests to size by"
    assert (seqs.allows_requests, seqs.binds, seqs.margin_ratio) == (64.0, True, 0.0)
    assert (kv.binds, kv.allows_requests) == (False, None)
    parts = [(1, {**IDLE, "running_requests": 3.0}) for _ in range(40)]
    found = row(parts, max_num_seqs=None, max_num_batched_tokens=None)
    assert found["allows_max_num_seqs"] is found["binding_margin_ratio"] is None


def test_the_closed_form_of_each_limit() -> None:
    found = row(lengths(390), kv_cache_tokens=100_000.0, kv_block_tokens=16.0)
    assert found["allows_max_num_seqs"] == 64.0
    # B E[G] / (E[P](1-h) + E[G]), h = 0.2
    assert found["allows_max_num_batched_tokens"] == pytest.approx(1024 * 50 / (400 + 50))
    # residents are length-biased: E[G²]/(2 E[G]), G spread evenly over (10, 100]
    residence = (10**2 + 10 * 100 + 100**2) / 3 / 50
    assert found["allows_kv_cache"] == pytest.approx(100_000 / (500 + residence / 2 + 8))
    assert found["binding_margin_ratio"] == 0.0  # 64 of the tightest, 64
    found = row(lengths(390, running_requests=16.0), max_num_seqs=512.0)
    tightest = found["allows_max_num_batched_tokens"]
    assert found["binding_margin_ratio"] == pytest.approx(1 - 16 / tightest)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, "max_num_seqs"),
        ({"slo_missed": False}, "none"),  # in target: bursts fill a batch, and nobody minds
        ({"slo_missed": None}, "none"),
        ({"limit_binding_share_10m_ratio": 0.24}, "none"),
        ({"batch_assembly_wait_10m_seconds": 0.98}, "none"),  # not the wait is what is missed
        ({"batch_assembly_wait_10m_seconds": None}, "none"),
        ({"tpot_in_target_10m_ratio": 0.5}, "none"),  # tokens are slow, not the start
        ({"ttft_in_target_10m_ratio": None}, "none"),
        ({"ttft_in_target_10m_ratio": None, "tpot_in_target_10m_ratio": None}, "max_num_seqs"),
        ({"queue_limit": None}, None),  # which limit it is cannot be told
        ({"binding_limit": "deferred"}, "deferred"),
        ({"binding_limit": None}, None),
    ],
)
def test_a_missed_target_names_the_limit_that_requests_wait_for(
    changes: dict[str, Any], expected: str | None
) -> None:
    known = {
        "binding_limit": "none",
        "queue_limit": "max_num_seqs",
        "limit_binding_share_10m_ratio": 0.4,
        "slo_missed": True,
        "batch_assembly_wait_10m_seconds": 1.7,
        "ttft_10m_seconds": 2.0,
        "ttft_in_target_10m_ratio": 0.6,
        "tpot_in_target_10m_ratio": 1.0,
    }
    texts = ("binding_limit", "queue_limit")
    schema = {name: pl.String if name in texts else pl.Float64 for name in known}
    schema |= {"slo_missed": pl.Boolean}
    frame = pl.DataFrame([known | changes], schema=schema)
    assert frame.select(final_binding_limit()).item() == expected
