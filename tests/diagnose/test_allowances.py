"""How many requests each limit lets run, and which limit is named at a cost."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest
from limit_cases import AT_CAP, IDLE, lengths, row

from driftwatch.diagnose.limits import final_binding_limit
from driftwatch.diagnose.tree import limits_of


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


def test_the_page_tells_the_kv_size() -> None:
    config = '{"block_size":"16","kv_cache_size_tokens":"None","num_gpu_blocks":"1000"}'
    found = row([(n, changes | {"cache_config": config}) for n, changes in lengths(390)])
    assert found["kv_cache_tokens"] == 16_000.0
    config = config.replace("None", "12345.0")
    found = row([(n, changes | {"cache_config": config}) for n, changes in lengths(390)])
    assert found["kv_cache_tokens"] == 12_345.0
    found = row(
        [(n, changes | {"cache_config": config}) for n, changes in lengths(390)],
        kv_cache_tokens=999.0,
    )
    assert found["kv_cache_tokens"] == 999.0  # what a person configured wins


def test_the_margin_is_unknown_where_no_limit_is() -> None:
    parts = [(1, {**IDLE, "running_requests": 3.0}) for _ in range(40)]
    found = row(parts, max_num_seqs=None, max_num_batched_tokens=None)
    assert found["allows_max_num_seqs"] is None
    assert found["binding_margin_ratio"] is None


def test_limits_of_a_row_name_what_is_missing() -> None:
    found = row(lengths(390), max_num_seqs=None, max_num_batched_tokens=None)
    frame = pl.DataFrame(
        [
            found
            | {
                "max_num_seqs": None,
                "max_num_seqs_inferred": False,
                "allows_max_num_seqs": None,
                "binding_limit": None,
            }
        ],
        strict=False,
    )
    budget, seqs, kv = limits_of(frame)[0]
    assert (budget.name, budget.note) == (
        "max_num_batched_tokens",
        "setting not given",
    )
    assert (seqs.name, seqs.note, seqs.margin_ratio) == (
        "max_num_seqs",
        "setting not given",
        None,
    )
    assert (kv.name, kv.note) == ("kv_cache", "KV cache size not in /metrics")


def test_limits_of_a_row_without_finished_requests() -> None:
    found = row([(40, AT_CAP)], kv_cache_tokens=1000.0)
    budget, seqs, kv = limits_of(pl.DataFrame([found], strict=False))[0]
    assert budget.note == kv.note == "no finished requests to size by"
    assert (seqs.allows_requests, seqs.binds, seqs.margin_ratio) == (64.0, True, 0.0)
    assert (kv.binds, kv.allows_requests) == (False, None)


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
    schema = {
        "binding_limit": pl.String,
        "queue_limit": pl.String,
        "limit_binding_share_10m_ratio": pl.Float64,
        "slo_missed": pl.Boolean,
        "batch_assembly_wait_10m_seconds": pl.Float64,
        "ttft_10m_seconds": pl.Float64,
        "ttft_in_target_10m_ratio": pl.Float64,
        "tpot_in_target_10m_ratio": pl.Float64,
    }
    row = pl.DataFrame([known | changes], schema=schema)
    assert row.select(final_binding_limit()).item() == expected
