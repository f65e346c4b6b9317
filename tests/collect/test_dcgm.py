"""Numbers of DCGM → rows of the GPU table."""

from __future__ import annotations

import json
import math
from datetime import UTC, datetime
from typing import Any

import polars as pl
import pytest
from gpu_label_cases import gpu

from driftwatch.collect.dcgm.names import Gpu
from driftwatch.collect.dcgm.rows import SAMPLE_SCHEMA, GpuSamples
from driftwatch.collect.gpus import GPU_FIELDS

T0 = datetime(2026, 1, 2, tzinfo=UTC)


def table(*samples: tuple[Gpu, datetime, str, float], unread: str | None = None) -> pl.DataFrame:
    held = GpuSamples()
    rows = [(held.number(one), name, _micros(at), value) for one, at, name, value in samples]
    held.add(pl.DataFrame(rows, dict(SAMPLE_SCHEMA), orient="row"))
    return held.table(unread)


def _micros(at: datetime) -> int:
    return round(at.timestamp() * 1e6)


def one_row(name: str, value: float, **labels: str) -> tuple[dict[str, Any], dict[str, str]]:
    (row,) = table((gpu(**labels), T0, name, value)).to_dicts()
    return row, json.loads(row["reasons"])


UNITS = [
    ("DCGM_FI_DEV_GPU_UTIL", 99, "utilization_ratio", 0.99),
    ("DCGM_FI_PROF_GR_ENGINE_ACTIVE", 0.97, "engine_active_ratio", 0.97),
    ("DCGM_FI_DEV_SM_CLOCK", 1980, "sm_clock_hertz", 1.98e9),
    ("DCGM_FI_DEV_POWER_USAGE", 512.25, "power_watts", 512.25),
    ("DCGM_FI_DEV_FB_USED", 2, "framebuffer_used_bytes", 2.0 * 1024**2),
    ("DCGM_FI_DEV_XID_ERRORS", 31, "xid_code", 31.0),
    ("DCGM_FI_DEV_CLOCKS_EVENT_REASONS", 4, "clock_event_reasons", 4.0),
    ("DCGM_FI_DEV_CLOCK_THROTTLE_REASONS", 8, "clock_event_reasons", 8.0),
]


@pytest.mark.parametrize(("name", "value", "column", "expected"), UNITS)
def test_each_field_in_its_unit(name: str, value: float, column: str, expected: float) -> None:
    row, reasons = one_row(name, value)
    assert row[column] == pytest.approx(expected, rel=1e-12)
    assert list(reasons) == [f.column for f in GPU_FIELDS if f.column != column]
    assert all(row[f.column] is None for f in GPU_FIELDS if f.column != column)


@pytest.mark.parametrize(
    ("name", "value", "column", "reason"),
    [
        (
            "DCGM_FI_DEV_GPU_UTIL",
            9223372036854775794.0,
            "utilization_ratio",
            "not supported: DCGM_FI_DEV_GPU_UTIL is DCGM's mark for no value",
        ),
        (
            "DCGM_FI_DEV_POWER_USAGE",
            140737488355330.0,
            "power_watts",
            "not supported: DCGM_FI_DEV_POWER_USAGE is DCGM's mark for no value",
        ),
        ("DCGM_FI_DEV_FB_USED", math.nan, "framebuffer_used_bytes", "DCGM_FI_DEV_FB_USED is NaN"),
        ("DCGM_FI_DEV_SM_CLOCK", math.inf, "sm_clock_hertz", "DCGM_FI_DEV_SM_CLOCK is infinite"),
        ("DCGM_FI_DEV_POWER_USAGE", -1, "power_watts", "DCGM_FI_DEV_POWER_USAGE is -1: negative"),
        (
            "DCGM_FI_DEV_GPU_UTIL",
            102,
            "utilization_ratio",
            "DCGM_FI_DEV_GPU_UTIL is 102: above 100 %",
        ),
        (
            "DCGM_FI_PROF_GR_ENGINE_ACTIVE",
            1.0100004,
            "engine_active_ratio",
            "DCGM_FI_PROF_GR_ENGINE_ACTIVE is 1.0100004: above 100 %",
        ),
        (
            "DCGM_FI_DEV_SM_CLOCK",
            0x7FFFFFF0,
            "sm_clock_hertz",
            "not supported: DCGM_FI_DEV_SM_CLOCK is DCGM's mark for no value",
        ),
    ],
)
def test_a_value_that_is_none_has_a_reason(
    name: str, value: float, column: str, reason: str
) -> None:
    row, reasons = one_row(name, value)
    assert row[column] is None
    assert reasons[column] == reason


@pytest.mark.parametrize("value", [1.000004, 1.01])
def test_a_share_a_hair_above_the_whole_is_the_whole(value: float) -> None:
    row, reasons = one_row("DCGM_FI_PROF_GR_ENGINE_ACTIVE", value)
    assert row["engine_active_ratio"] == 1.0
    assert "engine_active_ratio" not in reasons


def test_why_a_field_is_not_there() -> None:
    _, reasons = one_row("DCGM_FI_DEV_SM_CLOCK", 40)
    assert reasons["power_watts"] == "DCGM_FI_DEV_POWER_USAGE not exported"
    assert reasons["clock_event_reasons"].endswith(
        "not exported: it is off in dcgm-exporter's shipped list of counters"
    )
    assert reasons["engine_active_ratio"] == (
        "DCGM_FI_PROF_GR_ENGINE_ACTIVE not exported: the GPU or its driver gives no profiling "
        "fields, or a profiler has paused them"
    )
    assert "first XID" in reasons["xid_code"]


def test_a_complete_reading_has_no_reasons() -> None:
    found = table(*((gpu(), T0, field.dcgm_names[0], 0) for field in GPU_FIELDS))
    assert found["reasons"].to_list() == [None]


@pytest.mark.parametrize(("xid", "lost"), [(79, True), (0, False), (31, False)])
def test_the_gpu_that_fell_off_the_bus(xid: float, lost: bool) -> None:
    assert one_row("DCGM_FI_DEV_XID_ERRORS", xid)[0]["lost"] is lost


def test_an_xid_that_stays_after_the_gpu_is_back_is_no_loss() -> None:
    """dcgm-exporter#500: the gauge keeps the last XID for good."""
    found = table(
        (gpu(), T0, "DCGM_FI_DEV_XID_ERRORS", 79), (gpu(), T0, "DCGM_FI_DEV_SM_CLOCK", 1980)
    )
    assert found["lost"].to_list() == [False]


def test_whether_a_gpu_is_lost_is_unknown_without_xid() -> None:
    assert one_row("DCGM_FI_DEV_FB_USED", 40)[0]["lost"] is None
    assert one_row("DCGM_FI_DEV_XID_ERRORS", 9.223372036854776e18)[0]["lost"] is None


def test_the_preferred_name_counts_where_both_are_there() -> None:
    old, new = "DCGM_FI_DEV_CLOCK_THROTTLE_REASONS", "DCGM_FI_DEV_CLOCKS_EVENT_REASONS"
    found = table((gpu(), T0, old, 8), (gpu(), T0, new, 4))
    assert found["clock_event_reasons"].to_list() == [4.0]


def test_of_two_samples_the_first_counts() -> None:
    found = table(*((gpu(), T0, "DCGM_FI_DEV_POWER_USAGE", watts) for watts in (40.0, 41.0)))
    assert found["power_watts"].to_list() == [40.0]
