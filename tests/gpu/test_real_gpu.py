"""A real GPU through NvmlSource: each field a value in its range, or a reason."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime
from typing import Any

import pytest

from driftwatch.collect.gpus import GPU_FIELDS
from driftwatch.collect.nvml import NvmlSource

# what no GPU is beyond: a unit that is wrong by a thousand shows
RANGES = {
    "sm_clock_hertz": (50e6, 5e9),
    "power_watts": (3.0, 3000.0),
    "framebuffer_used_bytes": (0.0, 2.0**42),
}


def _read(source: NvmlSource) -> list[dict[str, Any]]:
    now = datetime.now(UTC)
    found = source.collect(now, now)
    assert found.problems == ()
    return found.gpus.to_dicts()


@pytest.fixture(scope="module")
def rows() -> list[dict[str, Any]]:
    """The second of two readings."""
    source = NvmlSource()
    assert source.is_here()
    first = _read(source)
    time.sleep(1.0)  # shares are of the time between two readings
    second = _read(source)
    source.close()
    assert [row["uuid"] for row in first] == [row["uuid"] for row in second]
    return second


def test_every_gpu_has_a_name_and_is_not_lost(rows: list[dict[str, Any]]) -> None:
    assert rows
    for row in rows:
        assert row["uuid"].startswith("GPU-")
        assert row["gpu_model"]
        assert row["lost"] is False


def test_every_field_is_a_value_in_its_range_or_a_reason(rows: list[dict[str, Any]]) -> None:
    for row in rows:
        reasons = json.loads(row["reasons"])
        for field in GPU_FIELDS:
            value = row[field.column]
            if value is None:
                assert reasons[field.column].startswith("n/a: ")
                assert "no answer" not in reasons[field.column]
                continue
            assert field.column not in reasons
            ratio = (0.0, 1.0) if field.column.endswith("_ratio") else (0.0, 2.0**64)
            low, high = RANGES.get(field.column, ratio)
            assert low <= value <= high, field.column


def test_memory_and_clocks_are_told_by_a_whole_gpu(rows: list[dict[str, Any]]) -> None:
    for row in rows:
        assert row["sm_clock_hertz"] is not None
        assert row["framebuffer_used_bytes"] is not None
